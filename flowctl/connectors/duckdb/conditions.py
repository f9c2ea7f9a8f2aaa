"""Cursor bounds in DuckDB's SQL: literals with type and offset, compared in the order of the cursor's type."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field

from flowctl.connectors.duckdb.columns import exact, quoted
from flowctl.connectors.duckdb.types import parsed, sorts_as_text
from flowctl.connectors.source import WatermarkRequest
from flowctl.connectors.sql.conditions import Comparisons, Condition, Operator, earliest_local, unsorted_text
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import DataType
from flowctl.model.value import TypedValue
from flowctl.sql import dialects

#: The zone of a cursor without one, unless the spec names it: the file has none, and every session is in UTC.
OWN_ZONE = "UTC"


@dataclass(frozen=True)
class DuckdbComparisons(Comparisons):
    """``catalog`` is the name of the file inside DuckDB; ``now`` is aware UTC."""

    catalog: str
    now: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))

    def quoted(self, name: str) -> str:
        return quoted(name)

    def table(self, parts: tuple[str, ...]) -> str:
        """In full: a schema may have the file's name, and a table that of a file, which DuckDB would read."""
        return dialects.table((self.catalog, *("main", *parts)[-2:]), "duckdb")

    def bound(self, column: Column, operator: Operator, value: TypedValue) -> Condition:
        return Condition(f"{_ordered(column, value.type)} {operator} {dialects.literal(value, 'duckdb')}")

    def delayed(self, column: Column, kind: DataType, delay: float, zone: str | None) -> Condition:
        limit = self.now - dt.timedelta(seconds=delay)
        local = earliest_local(limit, zone or OWN_ZONE)
        at: dt.date = limit if kind == types.TIMESTAMP else local.date() if kind == types.DATE else local
        return self.bound(column, "<=", TypedValue(kind, at))

    def greatest(self, request: WatermarkRequest, column: Column) -> Condition:
        """As exact text."""
        assert request.cursor is not None
        rows = self.from_clause(request.relation, self.until(request, column))
        return Condition(f"(SELECT CAST(max({_ordered(column, request.cursor.type)}) AS VARCHAR) FROM {rows})")


def _ordered(found: Column, kind: DataType) -> str:
    """The column as sorted by ``kind``, the type of the cursor in flowctl; text is sorted by its bytes."""
    value = exact(found, kind)
    if kind != types.STRING:
        return value
    if not sorts_as_text(parsed(found.native)):
        raise unsorted_text(found)
    return f'({value} COLLATE "C")'
