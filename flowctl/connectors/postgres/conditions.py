"""Cursor bounds in PostgreSQL's SQL: literals with type and offset, as Spark's JDBC source takes no parameters."""

from __future__ import annotations

from flowctl.connectors.postgres.columns import quoted, text_literal
from flowctl.connectors.postgres.types import ddl, sorts_as_text
from flowctl.connectors.source import ReadRequest, WatermarkRequest
from flowctl.connectors.sql.conditions import Comparisons, Condition, Operator, unsorted_text
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column, TableInfo
from flowctl.model.types import DataType
from flowctl.model.value import TypedValue


class PostgresComparisons(Comparisons):
    def quoted(self, name: str) -> str:
        return quoted(name)

    def table(self, parts: tuple[str, ...]) -> str:
        return ".".join(map(quoted, parts))

    def bound(self, column: Column, operator: Operator, value: TypedValue) -> Condition:
        return Condition(f"{_ordered(column, value.type)} {operator} {_literal(value)}")

    def delayed(self, column: Column, kind: DataType, delay: float, zone: str | None) -> Condition:
        limit = f"now() - interval '{delay} seconds'"
        if kind != types.TIMESTAMP:
            limit = _local(limit, zone or "UTC")
        return Condition(f"{_ordered(column, kind)} <= ({limit})::{ddl(kind)}")

    def greatest(self, request: WatermarkRequest, column: Column) -> Condition:
        """As exact text."""
        assert request.cursor is not None
        rows = self.from_clause(request.relation, self.until(request, column))
        return Condition(f"(SELECT max({_ordered(column, request.cursor.type)})::text FROM {rows})")


COMPARISONS = PostgresComparisons()


def between(request: ReadRequest, info: TableInfo) -> Condition:
    name = request.interval.cursor_column if request.interval else None
    return COMPARISONS.between(request, cursor_column(info, name) if name is not None else None)


def cursor_column(info: TableInfo, name: str) -> Column:
    column = info.column(name)
    if column is None:
        raise TableError(f"{info.object} has no column {name}", hint="Check `cursor.column`")
    return column


def _ordered(found: Column, kind: DataType) -> str:
    """The column as sorted by ``kind``, the type of the cursor in flowctl; text is in C collation."""
    name = quoted(found.name)
    if kind == types.STRING:
        if not sorts_as_text(found):
            raise unsorted_text(found)
        return f'({name}::text COLLATE "C")'
    is_number = found.portable.startswith("numeric")
    return name if found.type != types.STRING or is_number else f"{name}::text::{ddl(kind)}"


def _literal(bound: TypedValue) -> str:
    """A literal with its type, timestamps with their offset, so that no session setting changes its meaning."""
    text = bound.text().replace("Z", "+00") if bound.type == types.TIMESTAMP else bound.text()
    return f"{text_literal(text)}::{ddl(bound.type)}"


def _local(moment: str, zone: str) -> str:
    """The least local time in ``zone`` from ``moment`` on: an earlier one than at ``moment`` if clocks are about to be
    set back."""
    return (
        f"SELECT min(t AT TIME ZONE {text_literal(zone)}) FROM (SELECT {moment} AS t UNION ALL "
        f"SELECT date_trunc('minute', {moment}) + n * interval '1 minute' FROM generate_series(1, 180) n) AS ahead"
    )
