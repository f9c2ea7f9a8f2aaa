"""Masking before rows land: if only the hash of a column is needed, only the hash is written to the buffer.

Rows that this process reads itself (SQLite, small PostgreSQL tables) are in the buffer before Spark projects them. A
masked column then has another name there, and exactly the text that Spark's expression would return.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flowctl.connectors.source import ReadRequest
from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import CursorPosition, LandedPosition
from flowctl.model.table_info import Column
from flowctl.spec.spec import DetectFlag, TableSpec

if TYPE_CHECKING:
    import pyarrow as pa

#: Prefix of the name of a landed column that contains only hashes.
PREFIX = "_flowctl_masked_"
#: Types whose text is the same in Python and in Spark.
_SAME_TEXT = (types.STRING, types.BOOL, types.INT8, types.INT16, types.INT32, types.INT64)


def maskable(table: TableSpec, columns: Sequence[Column], interval: Interval) -> frozenset[str]:
    """Those of the ``columns`` to read that are in ``columns.mask`` and needed only for their mask. None for append
    with a cursor, which identifies the rows at its position by a hash over their source values, and for changes, which
    have landed as the source sent them. Expressions of ``columns.add`` need
    every column that they name."""
    hashes_rows = table.mode == "append" and isinstance(interval.upper, CursorPosition)
    if not table.columns.mask or hashes_rows or isinstance(interval.lower, LandedPosition):
        return frozenset()
    needed = {table.cursor.column if table.cursor else None}
    if isinstance(table.deletes, DetectFlag):
        needed.add(table.deletes.column)
    expressions = " ".join(table.columns.add.values()).lower()
    return frozenset(
        column.name
        for column in columns
        if column.name in table.columns.mask
        and column.type in _SAME_TEXT
        and column.name not in needed
        and column.name.lower() not in expressions
    )


def landed_columns(request: ReadRequest) -> tuple[Column, ...]:
    """The columns that land for ``request``, in its order."""
    return tuple(
        replace(column, name=PREFIX + column.name, type=types.STRING) if column.name in request.masked else column
        for column in request.columns
    )


def landed_rows(rows: pa.RecordBatch, request: ReadRequest) -> pa.RecordBatch:
    """``rows`` with the masked columns hashed."""
    import pyarrow as pa

    from flowctl.connectors.arrow import arrow_schema

    if not request.masked:
        return rows
    made = [
        _hashes(values) if column.name in request.masked else values
        for column, values in zip(request.columns, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(made, schema=arrow_schema(landed_columns(request)))


def landed_table(rows: pa.Table, request: ReadRequest) -> pa.Table:
    import pyarrow as pa

    if not request.masked or not rows.num_rows:
        return rows
    return pa.Table.from_batches([landed_rows(part, request) for part in rows.to_batches()])


def _hashes(values: pa.Array) -> pa.Array:
    """``sha2(CAST(value AS STRING), 256)``."""
    import pyarrow as pa

    texts = values.cast(pa.string()).to_pylist()
    return pa.array(
        [None if text is None else hashlib.sha256(text.encode()).hexdigest() for text in texts], pa.string()
    )
