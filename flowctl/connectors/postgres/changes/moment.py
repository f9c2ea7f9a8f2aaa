"""A consistent point of the log with snapshots of it: a replication slot, and what it exports when it is created.

The order matters, each for a reason that a test shows:

1. A connection locks all tables in ACCESS SHARE mode, without a snapshot: TRUNCATE and rewriting ALTERs are not
   MVCC-safe, so one that commits after the point would empty the snapshot. It cannot lock after the slot exists.
2. The slot is created, and exports its snapshot. This waits for all transactions that are writing. One that waits in
   turn for the locks of (1) is a deadlock that PostgreSQL does not see, so the wait is bounded, and all starts again.
3. Another connection imports the snapshot and exports it once more: the first export ends with the next command of the
   replication connection.
"""

from __future__ import annotations

import datetime as dt
import select
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowctl import crashpoints
from flowctl.connectors.postgres.changes.replication import replication_connection, result_rows
from flowctl.connectors.postgres.client import Client
from flowctl.connectors.postgres.columns import quoted, text_literal
from flowctl.connectors.postgres.policies import hidden_from_stream
from flowctl.connectors.postgres.reading import PostgresSnapshot
from flowctl.connectors.postgres.snapshot import READER_SETTINGS, kept_alive, take_moment
from flowctl.connectors.postgres.source import snapshot_of
from flowctl.connectors.preconditions import require_no_new_columns
from flowctl.connectors.source import Relation
from flowctl.connectors.sql import timeouts, waiting
from flowctl.connectors.stream import DirectMoment
from flowctl.errors import Interrupted, StoppedByPolicy, TransientError
from flowctl.model.position import LsnPosition, lsn_from_text
from flowctl.model.table_info import ObjectName, TableInfo
from flowctl.spec.spec import ReadHints
from flowctl.storage.buffer import Buffer

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import SparkSession

#: Seconds for the slot to find a consistent point; then the locks are released for a while.
SLOT_SECONDS = 60.0


@dataclass(frozen=True)
class PostgresMoment(DirectMoment):
    """``snapshot_id`` can be imported while the context is open."""

    at: LsnPosition
    event_at: str
    commit: str
    snapshot_id: str
    client: Client
    buffer: Buffer | None

    @contextmanager
    def snapshot(
        self, spark: SparkSession, relation: Relation, info: TableInfo, hints: ReadHints, takes: Callable[[str], bool]
    ) -> Iterator[PostgresSnapshot]:
        with self.client.connect() as connection:
            _import(connection, self.snapshot_id)
            _require_all_rows(connection, relation)
            held = take_moment(connection, relation, info.extra.get("kind"), is_foreign=False)
            here = [name for name, _ in held.columns]  # `numbers` are those of all columns, also of ones not published
            require_no_new_columns(info.object, info.extra["numbers"], here, takes)
            with (
                kept_alive(held),
                snapshot_of(self.client, held, spark, relation, info, hints, self.buffer) as snapshot,
            ):
                yield snapshot


@contextmanager
def take(
    client: Client,
    objects: Sequence[ObjectName],
    slot: str,
    buffer: Buffer | None,
    *,
    is_temporary: bool,
    reach: Callable[[], None] | None = None,
) -> Iterator[PostgresMoment]:
    """Creates the slot ``slot``, which must not exist; ``reach`` is called while the server looks for its point."""
    with ExitStack() as stack:
        holder = stack.enter_context(client.connect())
        _lock(holder, objects)
        walsender = stack.enter_context(replication_connection(client))
        created = _create_slot(walsender, slot, reach, is_temporary=is_temporary)
        if not is_temporary:
            crashpoints.reached("slot_created")
        sharer = stack.enter_context(client.connect())
        _import(sharer, str(created["snapshot_name"]))
        row = sharer.execute("SELECT pg_export_snapshot(), clock_timestamp()").fetchone()
        assert row is not None
        snapshot, now = row
        at = lsn_from_text(str(created["consistent_point"]))
        event_at = now.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
        yield PostgresMoment(at, event_at, str(at), snapshot, client, buffer)


def _lock(connection: psycopg.Connection[Any], objects: Sequence[ObjectName]) -> None:
    """Waits for the locks one after the other, without a snapshot."""
    connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY")
    connection.execute(f"SET LOCAL lock_timeout = '{timeouts.milliseconds(timeouts.SNAPSHOT_LOCK)}'")
    if connection.info.server_version >= 170000:
        connection.execute("SET LOCAL transaction_timeout = 0")
    for object in objects:
        name = ".".join(quoted(part) for part in object.parts)
        connection.execute(f"LOCK TABLE {name} IN ACCESS SHARE MODE".encode())


def _import(connection: psycopg.Connection[Any], snapshot: str) -> None:
    settings = "; ".join(f"SET LOCAL {name} = {text_literal(value)}" for name, value in READER_SETTINGS.items())
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    connection.execute(f"SET TRANSACTION SNAPSHOT {text_literal(snapshot)}".encode())
    connection.execute(settings.encode())
    if connection.info.server_version >= 170000:
        connection.execute("SET LOCAL transaction_timeout = 0")


def _require_all_rows(connection: psycopg.Connection[Any], relation: Relation) -> None:
    """The plan asks on the stream's connection: a standby's may have another user, and policies may be new."""
    assert relation.object is not None, "a stream has tables"
    name = ".".join(quoted(part) for part in relation.object.parts)
    row = connection.execute("SELECT row_security_active(%s), current_user", [name]).fetchone()
    assert row is not None
    is_active, user = row
    if is_active:
        what, repair = hidden_from_stream(relation.object, user)
        raise StoppedByPolicy(what, hint=repair)


def _create_slot(
    connection: psycopg.Connection[Any], name: str, reach: Callable[[], None] | None, *, is_temporary: bool
) -> dict[str, str | None]:
    kind = "TEMPORARY " if is_temporary else ""
    pgconn: Any = connection.pgconn
    pgconn.send_query(f"CREATE_REPLICATION_SLOT {quoted(name)} {kind}LOGICAL pgoutput EXPORT_SNAPSHOT".encode())
    until = time.monotonic() + SLOT_SECONDS
    while pgconn.is_busy():
        if time.monotonic() > until:
            pgconn.get_cancel().cancel()
            raise TransientError(
                f"the slot {name} waited {SLOT_SECONDS:.0f} s for transactions that are writing",
                hint="Look for long ones in pg_stat_activity, and in pg_prepared_xacts; it starts again",
            )
        if waiting.is_interrupted():
            pgconn.get_cancel().cancel()
            raise Interrupted("the run was asked to stop while the slot was created", hint="Run again to finish it")
        if reach is not None:
            reach()
        select.select([pgconn.socket], [], [], 0.5)
        pgconn.consume_input()
    (row,) = result_rows(pgconn.get_result())
    while pgconn.get_result() is not None:
        pass
    return row
