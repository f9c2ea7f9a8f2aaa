"""Cursor bounds in MySQL's SQL: literals with their type, compared in the order of the cursor's type."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from flowctl.connectors.mysql.columns import quoted, selected
from flowctl.connectors.mysql.types import data_type, sorts_as_text
from flowctl.connectors.source import WatermarkRequest
from flowctl.connectors.sql.conditions import Comparisons, Condition, Operator, earliest_local, unsorted_text
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import DataType
from flowctl.model.value import TypedValue
from flowctl.sql import dialects


@dataclass(frozen=True)
class MysqlComparisons(Comparisons):
    """``now`` is the server's clock, aware UTC."""

    now: dt.datetime

    def quoted(self, name: str) -> str:
        return quoted(name)

    def table(self, parts: tuple[str, ...]) -> str:
        return dialects.table(parts, "mysql")

    def bound(self, column: Column, operator: Operator, value: TypedValue) -> Condition:
        return Condition(f"{_ordered(column, value.type)} {operator} {_literal(value)}")

    def delayed(self, column: Column, kind: DataType, delay: float, zone: str | None) -> Condition:
        limit = self.now - dt.timedelta(seconds=delay)
        local = earliest_local(limit, zone or "UTC")
        at: dt.date = limit if kind == types.TIMESTAMP else local.date() if kind == types.DATE else local
        return self.bound(column, "<=", TypedValue(kind, at))

    def greatest(self, request: WatermarkRequest, column: Column) -> Condition:
        """As exact text; bytes of a text."""
        assert request.cursor is not None
        rows = self.from_clause(request.relation, self.until(request, column))
        greatest = f"MAX({_ordered(column, request.cursor.type)})"
        kind = "BINARY" if request.cursor.type == types.STRING else "CHAR"
        return Condition(f"(SELECT CAST({greatest} AS {kind}) FROM {rows})")


def _ordered(found: Column, kind: DataType) -> str:
    """The column as sorted by ``kind``, the type of the cursor in flowctl; text is sorted by its bytes."""
    natural = data_type(found.native) if found.native else found.type
    if kind == types.STRING:
        if types.is_number(natural) or not sorts_as_text(found.native):
            raise unsorted_text(found)
        return f"CAST(CONVERT({quoted(found.name)} USING utf8mb4) AS BINARY)"
    if natural in (types.STRING, types.BINARY) and not found.native.lower().startswith("decimal"):
        raise TableError(
            f"cursor column {found.name} ({found.native}) is text, which the server does not sort as "
            f"{types.short(kind)}",
            hint="Remove its type from `columns.types`, or choose another column",
        )
    return selected(found)


def _literal(value: TypedValue) -> str:
    """Text as bytes in hexadecimal digits, which no mode of the server reads in another way."""
    plain = value.text()
    match value.type:
        case types.STRING:
            return f"x'{plain.encode().hex()}'"
        case types.DATE:
            return f"DATE'{plain}'"
        case types.TIMESTAMP | types.TIMESTAMP_NTZ:
            return f"TIMESTAMP'{plain.replace('T', ' ').removesuffix('Z')}'"
        case types.FLOAT | types.DOUBLE:
            return plain if "e" in plain else f"{plain}e0"
        case _:
            return plain
