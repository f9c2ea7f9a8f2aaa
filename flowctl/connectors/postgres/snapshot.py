"""One moment of one relation, shared by every executor that reads a part of it.

A connection of the driver holds a lock and an exported snapshot for the duration of the read; each JDBC connection
imports that snapshot before its first statement. The pitfalls, each with a test:

- The lock comes before the snapshot: TRUNCATE and rewriting ALTER are not MVCC-safe, so one that commits between the
  two would leave the snapshot with 0 rows. (Therefore the holder is in READ COMMITTED: in REPEATABLE READ, EXPLAIN, the
  only way to lock what a query uses, would take the snapshot before the lock.)
- A session that waits for an exclusive lock behind flowctl's blocks executors that come later. Waiting for it would be
  a deadlock: executors give up after ``lock_timeout``, the whole read fails as transient and restarts (as in
  `pg_dump -j`).
- With fetch size 0 the driver would commit immediately, without the snapshot and without an error. It is refused, and
  each part asserts inside its query that it sees exactly this snapshot.
- Meanwhile the driver sends its queries on the holder's own connection, which already has the locks that they need. On
  another one they would wait for ever behind a session that waits for flowctl's lock, and block everybody else.
- An exported snapshot covers this server alone: each query of a foreign table sees a moment of the other server. A
  relation that contains one, also below a view or as a partition, is read over one connection (:mod:`.foreign`).
- Readers are idle in their transaction while Spark writes, and so is the holder: no time-out may end them.
- Only some parts would see a partition attached meanwhile: the leaves are those of the snapshot's moment.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flowctl.connectors.postgres.client import SESSION_SETTINGS, Client
from flowctl.connectors.postgres.columns import quoted, text_literal
from flowctl.connectors.postgres.conditions import COMPARISONS
from flowctl.connectors.postgres.planner import foreign_scans
from flowctl.connectors.source import Relation
from flowctl.connectors.sql import timeouts

if TYPE_CHECKING:
    import psycopg

READER_SETTINGS = {**SESSION_SETTINGS, "lock_timeout": timeouts.milliseconds(timeouts.READER_LOCK)}
#: `pg_class.relkind` of relations stored in pages: tables, partitioned tables, materialized views.
PAGED_KINDS = ("r", "p", "m")
#: First version with TID range scans. Earlier, a condition on ctid reads the whole table each time.
_TID_RANGES_SINCE = 140000
_TRANSACTION_TIMEOUT_SINCE = 170000


@dataclass(frozen=True)
class Leaf:
    """A table that holds rows itself: the relation, or one of its partitions or children. ``pages`` is the current size
    of its file in blocks (8 KiB by default); None if there is no file (a foreign table)."""

    oid: int
    pages: int | None


@dataclass(frozen=True)
class HeldSnapshot:
    """``id`` is for SET TRANSACTION SNAPSHOT, ``contents`` is the result of `txid_current_snapshot()` inside it.
    ``leaves`` is empty for views and queries, and if ctid ranges do not help. ``oid`` and ``columns`` (each with its
    type as text) are those of the object at this moment. ``is_foreign``: other servers hold some of its rows."""

    id: str
    contents: str
    server_version: int
    leaves: tuple[Leaf, ...]
    block_size: int
    oid: int | None = None
    columns: tuple[tuple[str, str], ...] = ()
    is_foreign: bool = False
    _connection: psycopg.Connection[Any] | None = field(default=None, repr=False, compare=False)
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @contextmanager
    def asking(self) -> Iterator[psycopg.Connection[Any]]:
        """The holder's own connection, for a short query that need not see the snapshot but must not wait for a foreign
        lock. If it fails, locks and snapshot are kept."""
        assert self._connection is not None
        with self._one_at_a_time, self._connection.transaction():
            yield self._connection

    def join_statement(self) -> str:
        """What every reading connection runs first in its transaction, which the JDBC driver has already begun because
        the fetch size is not 0."""
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
        """Begins a transaction that sees the snapshot."""
        connection.execute(f"BEGIN; {self.join_statement()}")

    def assertion(self) -> str:
        """An expression that is true inside this snapshot and an error elsewhere; it is evaluated when the query runs,
        not by the planner."""
        seen = "current_setting('transaction_isolation') || ' ' || txid_current_snapshot()::text"
        wanted = text_literal(f"repeatable read {self.contents}")
        return f"CASE WHEN {seen} = {wanted} THEN true ELSE ('{SNAPSHOT_LOST} ' || {seen})::boolean END"


#: Part of the error of a part that does not see the snapshot.
SNAPSHOT_LOST = "flowctl: not in the exported snapshot:"


@contextmanager
def hold_snapshot(client: Client, relation: Relation, kind: str | None) -> Iterator[HeldSnapshot]:
    """``kind`` is `pg_class.relkind`, None for a query. The snapshot exists until the block ends or the connection is
    lost; in that case readers fail, and the read starts again."""
    with client.connect() as connection:
        is_foreign = lock(connection, relation, kind)
        held = take_moment(connection, relation, kind, is_foreign=is_foreign)
        with kept_alive(held):
            yield held
        # Closing the connection releases both. A ROLLBACK on a lost one would fail a read that is already done.


def lock(connection: psycopg.Connection[Any], relation: Relation, kind: str | None) -> bool:
    """Begins the transaction that holds ACCESS SHARE on everything that will be read, but has no snapshot yet. Returns
    whether any of it is on other servers."""
    import psycopg

    try:
        return _lock(connection, relation, kind, whole=True)
    except psycopg.errors.InsufficientPrivilege:  # perhaps only some columns are granted
        release(connection)
        return _lock(connection, relation, kind, whole=False)


def release(connection: psycopg.Connection[Any]) -> None:
    """Releases locks and snapshot; readers that have joined keep theirs until they end."""
    connection.execute("ROLLBACK")


def _lock(connection: psycopg.Connection[Any], relation: Relation, kind: str | None, *, whole: bool) -> bool:
    """LOCK TABLE works for tables and views only, and like ``*`` requires the right to read the ``whole``. If only some
    columns are granted, the locks of the query itself have to suffice."""
    begin = [
        "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY",
        f"SET LOCAL lock_timeout = '{timeouts.milliseconds(timeouts.SNAPSHOT_LOCK)}'",
    ]
    if connection.info.server_version >= _TRANSACTION_TIMEOUT_SINCE:
        begin.append("SET LOCAL transaction_timeout = 0")
    if whole and kind in ("r", "p", "v") and relation.object is not None:
        name = ".".join(quoted(part) for part in relation.object.parts)
        begin.append(f"LOCK TABLE {name} IN ACCESS SHARE MODE")
    connection.execute("; ".join(begin).encode())
    everything = "*" if whole else ""
    query = f"SELECT {everything} FROM {COMPARISONS.from_clause(relation)}"
    explained = connection.execute(f"EXPLAIN (FORMAT JSON) {query}".encode())
    return bool(foreign_scans(explained))


def take_moment(
    connection: psycopg.Connection[Any], relation: Relation, kind: str | None, *, is_foreign: bool
) -> HeldSnapshot:
    """Runs in the transaction of :func:`lock`, or in one that already has a snapshot. Snapshot, leaves and columns come
    from one statement, so they are of one moment. From then on this connection waits for a lock as long as a reader."""
    version = connection.info.server_version
    ranged = relation.object is not None and kind in PAGED_KINDS and version >= _TID_RANGES_SINCE
    name = ".".join(quoted(part) for part in relation.object.parts) if relation.object else ""
    row = connection.execute(_EXPORT, {"name": name, "ranged": ranged}).fetchone()
    assert row is not None
    snapshot, contents, block_size, oid, columns, leaves = row
    held = tuple(Leaf(*leaf) for leaf in leaves)
    connection.execute(f"SET LOCAL lock_timeout = '{timeouts.milliseconds(timeouts.READER_LOCK)}'")
    return HeldSnapshot(
        snapshot,
        contents,
        version,
        held,
        block_size,
        oid,
        tuple((column, native) for column, native in columns),
        is_foreign or any(leaf.pages is None for leaf in held),
        connection,
    )


#: System columns (``ctid``, ``tableoid``) require the right to read the whole table; without it there are no leaves.
_EXPORT = """
    WITH RECURSIVE named(oid) AS (
        SELECT nullif(%(name)s, '')::regclass::oid
    ),
    tree(oid) AS (
        SELECT oid FROM named WHERE %(ranged)s AND has_table_privilege(oid, 'SELECT')
        UNION ALL
        SELECT i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid
    ),
    leaves AS (
        SELECT c.oid::bigint AS oid,
            CASE WHEN c.relkind <> 'f'
                 THEN pg_relation_size(c.oid) / current_setting('block_size')::bigint END AS pages
        FROM tree JOIN pg_class c ON c.oid = tree.oid WHERE c.relkind IN ('r', 'm', 'f')
    ),
    columns AS (
        SELECT attname, format_type(atttypid, atttypmod) AS native, attnum
        FROM named JOIN pg_attribute ON attrelid = named.oid WHERE attnum > 0 AND NOT attisdropped
    )
    SELECT pg_export_snapshot(), txid_current_snapshot()::text, current_setting('block_size')::int,
        (SELECT oid::bigint FROM named),
        coalesce((SELECT jsonb_agg(jsonb_build_array(attname, native) ORDER BY attnum) FROM columns), '[]'),
        coalesce((SELECT jsonb_agg(jsonb_build_array(oid, pages) ORDER BY oid) FROM leaves), '[]')
"""


@contextmanager
def kept_alive(held: HeldSnapshot) -> Iterator[None]:
    """Sends a statement from time to time, so that nothing in the network considers the connection dead."""
    done = threading.Event()

    def ping() -> None:
        while not done.wait(timeouts.PING):
            try:
                with held.asking() as connection:
                    connection.execute("SELECT 1")
            except Exception:  # noqa: BLE001 - the readers notice by themselves: their snapshot is lost
                return

    thread = threading.Thread(target=ping, name="flowctl-snapshot", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
