"""The binary log of MySQL and MariaDB as a source of changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from flowctl.changes.capture import CaptureSink
from flowctl.changes.shape import Shape
from flowctl.connectors.mysql import catalog
from flowctl.connectors.mysql.changes import description, moment
from flowctl.connectors.mysql.changes.capture import IDLE_SECONDS, Reader, Tables
from flowctl.connectors.mysql.changes.decoder import MysqlDecoder
from flowctl.connectors.mysql.changes.events import TableMap
from flowctl.connectors.mysql.changes.moment import MysqlMoment
from flowctl.connectors.mysql.changes.names import server_id_of, wants_files
from flowctl.connectors.mysql.changes.places import progress
from flowctl.connectors.mysql.changes.protocol import reading
from flowctl.connectors.mysql.changes.shapes import charsets, now_of, shape_of
from flowctl.connectors.mysql.client import Client
from flowctl.connectors.mysql.source import MysqlSource
from flowctl.connectors.stream import StreamInfo, StreamProblem, StreamSource
from flowctl.model import binlog
from flowctl.model.position import BinlogPosition, Position
from flowctl.model.table_info import ObjectName
from flowctl.spec.spec import StreamSpec

#: Seconds between two looks at a sink that was full.
_PAUSE = 0.05


@dataclass(frozen=True)
class MysqlStreams(StreamSource):
    """The server keeps nothing for a stream: it purges its log by age. A reader is known by the stream's `server_id`;
    the server ends an older one that has the same."""

    client: Client
    source: MysqlSource

    def discover(self, pattern: tuple[str, ...]) -> list[ObjectName]:
        return self.source.discover(pattern)

    def describe_stream(self, stream: StreamSpec, objects: Sequence[ObjectName]) -> StreamInfo:
        with self.client.connect() as connection:
            return description.describe(connection, stream, objects)

    def prepare(self, stream: StreamSpec, statements: Sequence[str]) -> None:
        assert not statements, "nothing in the source is changed"

    @contextmanager
    def moment(
        self,
        stream: StreamSpec,
        objects: Sequence[ObjectName],
        *,
        creates_reader: bool,
        reach: Callable[[], None] | None = None,
    ) -> Iterator[MysqlMoment]:
        with moment.take(self.client, objects, wants_files=wants_files(stream)) as taken:
            if not creates_reader:  # the server would end the stream's own, which reads the log now
                yield taken
                return
            with reading(self.client, stream.name, server_id_of(stream), taken.at.place) as log:
                at = replace(taken.at, log=str(log.opened()))
            yield replace(taken, at=at)

    def reach_standbys(self) -> None:
        """The spec's checks have refused standbys."""

    def why_no_snapshots(self, system: str) -> StreamProblem | None:
        return StreamProblem("tables are read at a moment of the server itself", "Remove `snapshot.from`")

    def capture(
        self,
        stream: StreamSpec,
        objects: Sequence[ObjectName],
        after: Position,
        until: Callable[[], Position | None],
        sink: CaptureSink,
        stopping: threading.Event,
    ) -> None:
        assert isinstance(after, BinlogPosition)
        with self.client.connect() as connection:
            facts, numbers = connection.facts, charsets(connection)
            names = {object: catalog.parts_of(connection, object) for object in objects}
        fold = facts.fold
        tables = Tables({(fold(schema), fold(name)): object for object, (schema, name) in names.items()}, fold)

        def described(found: TableMap, object: ObjectName) -> Shape:
            with self.client.connect() as connection:
                return shape_of(connection, found, object, numbers)

        def described_now(object: ObjectName) -> Shape:
            with self.client.connect() as connection:
                return now_of(connection, object)

        reached = progress(after.place, is_mariadb=facts.is_mariadb, log=after.log)
        while not stopping.is_set():
            with reading(self.client, stream.name, server_id_of(stream), reached.place) as log:
                reader = Reader(
                    log,
                    sink,
                    tables,
                    reached,
                    described,
                    described_now,
                    facts.is_mariadb,
                    IDLE_SECONDS if stream.heartbeat is None else stream.heartbeat,
                )
                if reader.read(lambda: _binlog(until()), stopping):
                    return
            while sink.is_full and not stopping.wait(_PAUSE):
                pass  # the server's connection was given up: it would not wait for ever

    def acknowledge(self, stream: StreamSpec, position: Position) -> None:
        """The server does not wait."""

    def drop_reader(self, stream: StreamSpec) -> None:
        """There is none."""

    def end(self, stream: StreamSpec) -> None:
        """Nothing in the source is this stream's."""

    def decoder(self, shape: Shape) -> MysqlDecoder:
        return MysqlDecoder(shape)

    def position_at(self, order: int) -> BinlogPosition:
        return BinlogPosition(f"{binlog.ORDER_ONLY}{order}")

    def commit_text(self, order: int) -> str:
        """The number of the GTID, if there is one domain; with zeros, so that texts are in the same order."""
        return f"{order + 1:020d}"


def _binlog(position: Position | None) -> BinlogPosition | None:
    return position if isinstance(position, BinlogPosition) else None
