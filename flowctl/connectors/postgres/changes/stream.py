"""PostgreSQL's logical replication as a source of changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowctl.changes.capture import CaptureSink
from flowctl.changes.shape import Shape
from flowctl.connectors.postgres import catalog
from flowctl.connectors.postgres.changes import description, moment, replication
from flowctl.connectors.postgres.changes.capture import Reader
from flowctl.connectors.postgres.changes.decoder import PostgresDecoder
from flowctl.connectors.postgres.changes.heartbeat import Heartbeat
from flowctl.connectors.postgres.changes.messages import Relation
from flowctl.connectors.postgres.changes.moment import PostgresMoment
from flowctl.connectors.postgres.changes.names import publication_of, slot_of
from flowctl.connectors.postgres.changes.shapes import shape_of
from flowctl.connectors.postgres.client import Client
from flowctl.connectors.postgres.columns import quoted
from flowctl.connectors.stream import StreamInfo, StreamProblem, StreamSource
from flowctl.errors import StoppedByPolicy, TransientError
from flowctl.model.position import LsnPosition, Position, lsn_from_text
from flowctl.model.table_info import ObjectName
from flowctl.spec.spec import StreamSpec
from flowctl.storage.buffer import Buffer

if TYPE_CHECKING:
    import psycopg

#: Seconds for the server to end a reader that this stream's lease has outlived.
_END_SECONDS = 10.0


@dataclass(frozen=True)
class PostgresStreams(StreamSource):
    """Callers hold the stream's lease, so a reader that still uses its slot is a stale one, and is ended."""

    client: Client
    buffer: Buffer | None = None

    def discover(self, pattern: tuple[str, ...]) -> list[ObjectName]:
        """Tables and partitioned tables."""
        with self.client.connect() as connection:
            return catalog.discover(connection, pattern, kinds=("r", "p"))

    def describe_stream(self, stream: StreamSpec, objects: Sequence[ObjectName]) -> StreamInfo:
        with self.client.connect() as connection:
            return description.describe(connection, stream, objects)

    def prepare(self, stream: StreamSpec, statements: Sequence[str]) -> None:
        with self.client.connect() as connection:
            for statement in statements:
                connection.execute(statement.encode())

    @contextmanager
    def moment(
        self,
        stream: StreamSpec,
        objects: Sequence[ObjectName],
        *,
        creates_reader: bool,
        reach: Callable[[], None] | None = None,
    ) -> Iterator[PostgresMoment]:
        slot = slot_of(stream)
        if creates_reader:
            self.drop_reader(stream)
        else:
            slot = f"{slot[:40]}_moment_{time.time_ns():x}"[:63]
        is_temporary = not creates_reader
        with moment.take(self.client, objects, slot, self.buffer, is_temporary=is_temporary, reach=reach) as taken:
            yield taken

    def reach_standbys(self) -> None:
        with self.client.connect() as connection:
            connection.execute("SELECT pg_log_standby_snapshot()")

    def why_no_snapshots(self, system: str) -> StreamProblem | None:
        with self.client.connect() as connection:
            return description.why_no_snapshots(connection, system)

    def capture(
        self,
        stream: StreamSpec,
        objects: Sequence[ObjectName],
        after: Position,
        until: Callable[[], Position | None],
        sink: CaptureSink,
        stopping: threading.Event,
    ) -> None:
        assert isinstance(after, LsnPosition)
        with self.client.connect() as catalogs:
            self._require(catalogs, stream, after)
            named = _by_oid(catalogs, objects)

            def described(relation: Relation) -> Shape | None:
                object = named.get(relation.oid)
                return shape_of(catalogs, relation, object) if object is not None else None

            with replication.replication_connection(self.client) as connection:
                slot, publication, every = slot_of(stream), publication_of(stream).name, stream.heartbeat
                heartbeat = Heartbeat(catalogs, every, slot) if every is not None else None
                messages = heartbeat is not None
                running = replication.start(connection, slot, publication, after.lsn, messages=messages)
                Reader(running, sink, described, heartbeat).read(lambda: _lsn(until()), stopping)
                durable = sink.durable
                assert isinstance(durable, LsnPosition)
                running.end(durable.lsn)

    def acknowledge(self, stream: StreamSpec, position: Position) -> None:
        """Never moves a slot backwards: the server refuses that."""
        assert isinstance(position, LsnPosition)
        with self.client.connect() as connection:
            self._end_reader(connection, stream)
            connection.execute(
                "SELECT pg_replication_slot_advance(slot_name, %s) FROM pg_replication_slots"
                " WHERE slot_name = %s AND confirmed_flush_lsn < %s",
                [str(position), slot_of(stream), str(position)],
            )

    def drop_reader(self, stream: StreamSpec) -> None:
        with self.client.connect() as connection:
            self._end_reader(connection, stream)
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
                [slot_of(stream)],
            )

    def end(self, stream: StreamSpec) -> None:
        """A publication that the spec names may serve others: only one of the default name is dropped."""
        self.drop_reader(stream)
        if stream.options.get("publication") is None:
            with self.client.connect() as connection:
                connection.execute(f"DROP PUBLICATION IF EXISTS {quoted(publication_of(stream).name)}".encode())

    def decoder(self, shape: Shape) -> PostgresDecoder:
        return PostgresDecoder(shape)

    def commit_text(self, order: int) -> str:
        return str(LsnPosition(order))

    def position_at(self, order: int) -> LsnPosition:
        return LsnPosition(order)

    def _require(self, connection: psycopg.Connection[Any], stream: StreamSpec, after: LsnPosition) -> None:
        """The slot exists and still has what follows ``after``; nobody else reads it. A server would silently begin
        where the slot stands."""
        slot = slot_of(stream)
        row = connection.execute(
            "SELECT confirmed_flush_lsn::text, wal_status FROM pg_replication_slots WHERE slot_name = %s", [slot]
        ).fetchone()
        why = ""
        if row is None:
            why = f"there is no slot {slot} any more"
        elif row[1] == "lost":
            why = f"the server has removed what the slot {slot} would send"
        elif row[0] is not None and lsn_from_text(row[0]) > after:
            why = f"the slot {slot} is at {row[0]}, behind which {after} is gone: something else has read it"
        if why:
            raise StoppedByPolicy(
                f"the position of stream {stream.name} is lost: {why}",
                hint="Plan again: it says what to do",
            )
        self._end_reader(connection, stream)

    def _end_reader(self, connection: psycopg.Connection[Any], stream: StreamSpec) -> None:
        until = time.monotonic() + _END_SECONDS
        query = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s AND active"
        while (row := connection.execute(query, [slot_of(stream)]).fetchone()) is not None:
            if time.monotonic() > until:
                raise TransientError(
                    f"process {row[0]} of the server still uses the slot {slot_of(stream)}",
                    hint="End whatever reads it, or wait: it starts again",
                )
            connection.execute("SELECT pg_terminate_backend(%s)", [row[0]])
            time.sleep(0.1)


def _lsn(position: Position | None) -> int | None:
    return position.lsn if isinstance(position, LsnPosition) else None


def _by_oid(connection: psycopg.Connection[Any], objects: Sequence[ObjectName]) -> Mapping[int, ObjectName]:
    infos = catalog.describe(connection, objects)
    return {int(info.identity.rpartition("/")[2]): object for object, info in infos.items() if info is not None}
