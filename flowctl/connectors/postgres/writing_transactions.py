"""Open transactions that have written to tables. Their rows cannot be seen yet, and may have lower cursors than those
that can: time and sequences are taken when a row is made, not when it is committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flowctl.connectors.source import WatermarkRequest

if TYPE_CHECKING:
    import psycopg


def writers(connection: psycopg.Connection[Any], requests: Mapping[str, WatermarkRequest]) -> dict[str, int]:
    """How many have, by the caller's names: to the table or one of its partitions; for views and queries to any table
    of the database. Every INSERT, UPDATE, DELETE and COPY keeps its lock on the table until its transaction ends."""
    asked = {name: request for name, request in requests.items() if request.minds_writers and request.cursor}
    if not asked:
        return {}
    found = dict(connection.execute(_WRITERS).fetchall())
    return {name: found.get(_oid(request), 0) for name, request in asked.items()}


def _oid(request: WatermarkRequest) -> str:
    """Empty for what is no table, and so for all."""
    is_table = request.relation.object is not None and request.info.extra.get("kind") in ("r", "p")
    return request.info.identity.rpartition("/")[2] if is_table else ""


_WRITERS = """
    WITH written(oid, writer) AS (
        SELECT l.relation, l.virtualtransaction FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
        WHERE l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND l.granted AND c.relkind IN ('r', 'p')
          AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND l.pid IS DISTINCT FROM pg_backend_pid()
          AND c.relnamespace <> 'pg_catalog'::regnamespace AND c.relnamespace <> 'pg_toast'::regnamespace
          AND c.relname !~ '^_flowctl_'
    )
    SELECT oid::text, count(DISTINCT writer) FROM (
        SELECT oid, writer FROM written
        UNION SELECT above.relid, writer FROM written, pg_partition_ancestors(oid) AS above
    ) w GROUP BY oid
    UNION ALL SELECT '', count(DISTINCT writer) FROM written
"""
