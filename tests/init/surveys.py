"""Tables as sources describe them, without a source."""

from __future__ import annotations

import datetime as dt
from typing import Any

from flowctl.connectors.source import HighWatermark
from flowctl.connectors.survey import Details, Index, Surveyed
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.position import CursorPosition
from flowctl.model.table_info import Column, ObjectName, RowEstimate, TableInfo
from flowctl.model.value import TypedValue

NOW = dt.datetime(2026, 11, 26, 12, tzinfo=dt.UTC)
ID = Column("id", types.INT64, nullable=False)
UPDATED = Column("updated_at", types.TIMESTAMP, nullable=False)
CREATED = Column("created_at", types.TIMESTAMP, nullable=False)
BY_UPDATED = Index(("updated_at",))


def table(
    *columns: Column,
    name: str = "orders",
    key: tuple[str, ...] = (),
    rows: int | None = 100,
    size: int | None = None,
    **details: Any,
) -> Surveyed:
    estimate = RowEstimate(rows, "stats" if rows is not None else "unknown", size)
    object = ObjectName(("public", name))
    return Surveyed(object, TableInfo(object, columns, "x", key, rows=estimate), Details(**details))


def newest(value: Any, kind: types.DataType = types.TIMESTAMP, *, has_null: bool = False) -> HighWatermark:
    position = None if value is None else CursorPosition(TypedValue(kind, value))
    return HighWatermark(position, RowEstimate(), NOW, has_null)


def failing(message: str) -> HighWatermark:
    return HighWatermark(None, RowEstimate(), NOW, failure=TableError(message))
