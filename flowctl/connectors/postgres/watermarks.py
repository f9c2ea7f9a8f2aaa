"""High watermarks of PostgreSQL's tables, estimates of new rows, and the number of open writers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flowctl.connectors.postgres.client import Client, from_driver
from flowctl.connectors.postgres.conditions import COMPARISONS, cursor_column
from flowctl.connectors.postgres.planner import planned
from flowctl.connectors.source import HighWatermark, WatermarkRequest
from flowctl.connectors.sql.source import in_own_zone, read_watermark, watermark_values
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model.position import CursorPosition
from flowctl.model.table_info import Column, RowEstimate
from flowctl.model.value import TypedValue, from_text

if TYPE_CHECKING:
    import psycopg


def high_watermarks(client: Client, requests: Mapping[str, WatermarkRequest]) -> Mapping[str, HighWatermark]:
    """One statement for all tables; if it fails, one for each, so that only the faulty ones fail. The planner estimates
    the number of new rows."""
    import psycopg

    requests, own_zone = in_own_zone(requests, client.own_time_zone)
    values: dict[str, str] = {}
    failed: dict[str, HighWatermark] = {}
    for name, request in requests.items():
        try:
            column = cursor_column(request.info, request.cursor.name) if request.cursor else None
            values[name] = f"now(), {watermark_values(COMPARISONS, request, column).sql}"
        except TableError as error:
            failed[name] = HighWatermark(None, RowEstimate(), failure=error)
    if not values:
        return failed
    with client.connect() as connection:
        busy = _writers(connection, requests)
        together = "\nUNION ALL ".join(f"SELECT {at}, {one}" for at, one in enumerate(values.values()))
        try:
            names, read = list(values), {}
            for at, clock, *row in connection.execute(together).fetchall():
                read[names[at]] = read_watermark(requests[names[at]], row, clock, _exact_value)
        except psycopg.Error:
            read = {name: _alone(client, connection, requests[name], one) for name, one in values.items()}
        found = {
            name: replace(one, writers=busy.get(name, 0), zone=own_zone.get(name, "")) for name, one in read.items()
        }
        return failed | found | _estimated(connection, requests, found)


def _alone(
    client: Client, connection: psycopg.Connection[Any], request: WatermarkRequest, values: str
) -> HighWatermark:
    import psycopg

    try:
        ((clock, *row),) = connection.execute(f"SELECT {values}").fetchall()
    except psycopg.Error as error:
        failure = from_driver(error, client)
        if not isinstance(failure, TableError):
            raise
        return HighWatermark(None, RowEstimate(), failure=failure)
    return read_watermark(request, row, clock, _exact_value)


def _exact_value(cursor: Column, newest: str) -> TypedValue:
    unusable = StoppedByPolicy(
        f"the greatest value of cursor column {cursor.name} ({cursor.native}) is {newest}: it would freeze the table",
        hint=f'Fix that row, or leave it out: `where: "{cursor.name} < ..."`',
    )
    if newest in ("Infinity", "-Infinity", "NaN"):
        raise unusable
    try:
        return from_text(cursor.type, newest)
    except (ValueError, ArithmeticError):
        raise unusable from None


def _estimated(
    connection: psycopg.Connection[Any],
    requests: Mapping[str, WatermarkRequest],
    watermarks: Mapping[str, HighWatermark],
) -> dict[str, HighWatermark]:
    """The high watermarks of tables with new rows, with an estimate of their number: the rows that the planner expects,
    plus those inserted or changed since the last ANALYZE, which it does not know."""
    import psycopg

    parts = {name: requests[name] for name, one in watermarks.items() if _has_part(requests[name], one)}
    try:
        found = planned(connection, {name: _part_query(one) for name, one in parts.items()}) if parts else {}
    except psycopg.Error:  # an estimate is not worth failing a plan
        found = {}
    rows = {name: one.rows + int(parts[name].info.extra["changes"]) for name, one in found.items()}
    return {name: replace(watermarks[name], rows=RowEstimate(count, "stats")) for name, count in rows.items()}


def _has_part(request: WatermarkRequest, watermark: HighWatermark) -> bool:
    """Whether the relation has rows above the request's ``lower``, and statistics to estimate how many."""
    if watermark.failure is not None:
        return False
    newest = watermark.position.at if isinstance(watermark.position, CursorPosition) else None
    is_told = request.info.rows.value is not None and request.info.extra.get("changes") is not None
    return request.estimate == "stats" and request.lower is not None and newest != request.lower and is_told


def _part_query(request: WatermarkRequest) -> str:
    assert request.cursor is not None and request.lower is not None
    lower = COMPARISONS.bound(cursor_column(request.info, request.cursor.name), ">=", request.lower)
    return f"SELECT FROM {COMPARISONS.from_clause(request.relation, lower)}"


def _writers(connection: psycopg.Connection[Any], requests: Mapping[str, WatermarkRequest]) -> dict[str, int]:
    """The number of open transactions that have written to the table or one of its partitions, by the caller's names;
    for views and queries, to any table of the database. Their rows are not visible yet, and may have lower cursors than
    visible rows: time and sequences are taken when a row is written, not when it is committed. Every INSERT, UPDATE,
    DELETE and COPY keeps its lock on the table until its transaction ends."""
    asked = {name: request for name, request in requests.items() if request.count_writers and request.cursor}
    if not asked:
        return {}
    found = dict(connection.execute(_WRITERS).fetchall())
    return {name: found.get(_oid(request), 0) for name, request in asked.items()}


def _oid(request: WatermarkRequest) -> str:
    """The table's OID; empty, which stands for all tables, if the relation is not a table."""
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
