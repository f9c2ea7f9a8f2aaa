"""One moment of one relation, shared by every executor that reads a part of it.

A connection of the driver holds a lock and an exported snapshot for as long as the read lasts; each JDBC connection
imports that snapshot before its first statement. The traps, each with a test:

- The lock comes before the snapshot: TRUNCATE and rewriting ALTER are not MVCC-safe, so one that commits between the
  two would leave the snapshot with 0 rows. (The holder is in READ COMMITTED for that: in REPEATABLE READ, EXPLAIN, the
  only way to lock what a query uses, would take the snapshot before the lock.)
- Who waits for an exclusive lock behind ours blocks executors that come later, and cannot be waited for: executors give
  up after ``lock_timeout``, the whole read fails as transient and starts again (as in `pg_dump -j`).
- Fetch size 0 would make the driver commit at once, without the snapshot and without an error. It is refused, and each
  part asserts inside its query that it sees this very snapshot.
- Readers idle in their transaction while Spark writes, and so does the holder: no time-out may end them.
- A partition attached meanwhile would be seen by some parts only: the leaves are those of the snapshot's moment.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowctl.connectors.base import Relation
from flowctl.connectors.postgres.client import SESSION_SETTINGS, Client
from flowctl.connectors.postgres.columns import quoted, text_literal
from flowctl.connectors.postgres.conditions import from_clause
from flowctl.connectors.postgres.splits import PAGED_KINDS

if TYPE_CHECKING:
    import psycopg

_PING_SECONDS = 30.0
#: The holder waits so long for DDL in progress; readers so long behind somebody who waits for the holder.
_HOLDER_LOCK_TIMEOUT = "300s"
READER_SETTINGS = {**SESSION_SETTINGS, "lock_timeout": "10s"}
#: TID range scans. Before it a condition on ctid reads the whole table each time.
_TID_RANGES_SINCE = 140000
_TRANSACTION_TIMEOUT_SINCE = 170000


@dataclass(frozen=True)
class Leaf:
    """A table that holds rows itself: the relation, or one of its partitions or children. ``pages`` of 8 KiB as
    the file is now; None where there are none to count (a foreign table)."""

    oid: int
    pages: int | None


@dataclass(frozen=True)
class HeldSnapshot:
    """``id`` is for SET TRANSACTION SNAPSHOT, ``contents`` what `txid_current_snapshot()` answers inside it.
    ``leaves`` is empty for views and queries, and where ctid ranges do not help."""

    id: str
    contents: str
    server_version: int
    leaves: tuple[Leaf, ...]
    block_size: int

    def join_statement(self) -> str:
        """What every reading connection runs first in its transaction. The JDBC driver has begun one by itself,
        because the fetch size is not 0."""
        settings = dict(READER_SETTINGS)
        if self.server_version >= _TRANSACTION_TIMEOUT_SINCE:
            settings["transaction_timeout"] = "0"
        statements = (
            "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",
            f"SET TRANSACTION SNAPSHOT {text_literal(self.id)}",
            *(f"SET {name} = {text_literal(value)}" for name, value in settings.items()),
        )
        return "; ".join(statements)

    def join(self, connection: psycopg.Connection[Any]) -> None:
        """Begins a transaction that sees it."""
        connection.execute(f"BEGIN; {self.join_statement()}")

    def assertion(self) -> str:
        """True inside this snapshot, an error elsewhere. Only when the query runs: the planner must not know it."""
        seen = "current_setting('transaction_isolation') || ' ' || txid_current_snapshot()::text"
        wanted = text_literal(f"repeatable read {self.contents}")
        return f"CASE WHEN {seen} = {wanted} THEN true ELSE ('{SNAPSHOT_LOST} ' || {seen})::boolean END"


#: In the error of a part that does not see the snapshot.
SNAPSHOT_LOST = "flowctl: not in the exported snapshot:"


@contextmanager
def hold_snapshot(client: Client, relation: Relation, kind: str | None) -> Iterator[HeldSnapshot]:
    """``kind`` is `pg_class.relkind`, None for a query. The snapshot lives until the block ends or the connection
    is lost; readers then fail, and the read starts again."""
    with client.connect() as connection:
        version = connection.info.server_version
        connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY")
        connection.execute(f"SET LOCAL lock_timeout = '{_HOLDER_LOCK_TIMEOUT}'")
        if version >= _TRANSACTION_TIMEOUT_SINCE:
            connection.execute("SET LOCAL transaction_timeout = 0")
        _lock(connection, relation, kind)
        held = _export(connection, relation, kind)
        with _kept_alive(connection):
            yield held


def _lock(connection: psycopg.Connection[Any], relation: Relation, kind: str | None) -> None:
    """ACCESS SHARE on everything that will be read, before any snapshot. Only tables and views take LOCK TABLE."""
    if kind in ("r", "p", "v") and relation.object is not None:
        name = ".".join(quoted(part) for part in relation.object.parts)
        connection.execute(f"LOCK TABLE {name} IN ACCESS SHARE MODE")
    connection.execute(f"EXPLAIN SELECT * FROM {from_clause(relation)}")


def _export(connection: psycopg.Connection[Any], relation: Relation, kind: str | None) -> HeldSnapshot:
    """Snapshot and leaves in one statement: they are of one moment."""
    version = connection.info.server_version
    ranged = relation.object is not None and kind in PAGED_KINDS and version >= _TID_RANGES_SINCE
    name = ".".join(quoted(part) for part in relation.object.parts) if relation.object and ranged else ""
    row = connection.execute(_EXPORT, {"name": name}).fetchone()
    assert row is not None
    snapshot, contents, block_size, leaves = row
    return HeldSnapshot(snapshot, contents, version, tuple(Leaf(*leaf) for leaf in leaves), block_size)


_EXPORT = """
    WITH RECURSIVE tree(oid) AS (
        SELECT nullif(%(name)s, '')::regclass::oid WHERE %(name)s <> ''
        UNION ALL
        SELECT i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid
    ),
    leaves AS (
        SELECT c.oid::bigint AS oid,
            CASE WHEN c.relkind <> 'f'
                 THEN pg_relation_size(c.oid) / current_setting('block_size')::bigint END AS pages
        FROM tree JOIN pg_class c ON c.oid = tree.oid WHERE c.relkind IN ('r', 'm', 'f')
    )
    SELECT pg_export_snapshot(), txid_current_snapshot()::text, current_setting('block_size')::int,
        coalesce((SELECT jsonb_agg(jsonb_build_array(oid, pages) ORDER BY oid) FROM leaves), '[]')
"""


@contextmanager
def _kept_alive(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Asks the server something now and then, so that nothing between us takes the connection for dead."""
    import psycopg

    done = threading.Event()

    def ping() -> None:
        while not done.wait(_PING_SECONDS):
            try:
                connection.execute("SELECT 1")
            except psycopg.Error:
                return  # the readers find out by themselves: their snapshot is gone

    thread = threading.Thread(target=ping, name="flowctl-snapshot", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
