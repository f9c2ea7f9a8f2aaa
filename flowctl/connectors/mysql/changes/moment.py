"""A consistent point of the log with a snapshot of it.

On MariaDB `START TRANSACTION WITH CONSISTENT SNAPSHOT` tells the log's place, so nobody has to wait. MySQL does not: a
global read lock keeps all commits waiting while the snapshot is taken and the place is read. A snapshot cannot be
shared by connections, so one of them reads all tables, one after the other.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from flowctl.connectors.mysql import catalog
from flowctl.connectors.mysql.changes import server
from flowctl.connectors.mysql.client import Client, MysqlConnection
from flowctl.connectors.mysql.source import MysqlCapture
from flowctl.connectors.preconditions import require_no_new_columns
from flowctl.connectors.source import ReadRequest, Relation
from flowctl.connectors.stream import LandedMoment
from flowctl.errors import TransientError
from flowctl.model.position import BinlogPosition
from flowctl.model.table_info import ObjectName, TableInfo
from flowctl.storage.buffer import SegmentSink


@dataclass(frozen=True)
class MysqlMoment(LandedMoment):
    """``connection``, of ``client``, has the snapshot, and reads one table at a time: ``turn``."""

    at: BinlogPosition
    event_at: str
    commit: str
    client: Client
    connection: MysqlConnection
    turn: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def capture(self, relation: Relation, info: TableInfo, takes: Callable[[str], bool]) -> Iterator[MomentCapture]:
        with self.turn, self.client.translated():
            _require_open(self.connection)
            comparisons = catalog.comparisons(self.connection)
            here = catalog.relation_columns(self.connection, relation) or ()
        by_name = {column.name: column for column in here}
        require_no_new_columns(info.object, {column.name for column in info.columns}, by_name, takes)
        yield MomentCapture(relation, info, by_name, comparisons, self.connection, self.client, self.turn)


@dataclass(frozen=True)
class MomentCapture(MysqlCapture):
    client: Client
    turn: threading.Lock

    def read(self, request: ReadRequest, sink: SegmentSink, rejected: SegmentSink | None = None) -> int:
        with self.turn, self.client.translated():
            _require_open(self.connection)
            return super().read(request, sink, rejected)

    def is_empty(self, request: ReadRequest) -> bool:
        with self.turn, self.client.translated():
            _require_open(self.connection)
            return super().is_empty(request)


@contextmanager
def take(client: Client, objects: Sequence[ObjectName], *, wants_files: bool) -> Iterator[MysqlMoment]:
    """From here on nobody alters ``objects``: DDL waits until the moment ends. A table that was altered after the
    snapshot, and before its lock, cannot be read at it."""
    with client.connect() as connection:
        place = _begin(connection, wants_files=wants_files)
        for object in objects:
            connection.execute(f"SELECT 1 FROM {catalog.comparisons(connection).from_clause(Relation(object))} LIMIT 0")
        # The log has whole seconds: a version of the snapshot must not begin after the next change of its row.
        now = catalog.clock(connection).replace(microsecond=0)
        at = BinlogPosition(place)
        event_at = now.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
        yield MysqlMoment(at, event_at, f"{at.order:020d}", client, connection)


def _begin(connection: MysqlConnection, *, wants_files: bool) -> str:
    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    if connection.facts.is_mariadb:
        connection.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        found = dict(connection.fetch("SHOW STATUS LIKE 'binlog_snapshot_%'"))
        file, offset = found["Binlog_snapshot_file"], int(found["Binlog_snapshot_position"])
        return server.place_at(connection, file, offset, wants_files=wants_files)
    connection.execute("FLUSH TABLES WITH READ LOCK")
    try:
        connection.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        return server.head(connection, wants_files=wants_files)
    finally:
        connection.execute("UNLOCK TABLES")


def _require_open(connection: MysqlConnection) -> None:
    if not connection.driver.open:
        raise TransientError("the moment has ended with its connection", hint="Wait: the table is read at another one")
