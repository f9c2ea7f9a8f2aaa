"""Rows as lines of CSV and of JSON: a column at a time, as Arrow text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flowctl.connectors.json_text import objects, texts
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.spec.files_layout import FilesLayout

if TYPE_CHECKING:
    import pyarrow as pa


def json_lines(batch: pa.RecordBatch, columns: Sequence[Column], _layout: FilesLayout) -> bytes:
    return _joined(objects(batch, columns))


def csv_header(columns: Sequence[Column], layout: FilesLayout) -> bytes:
    quote = layout.quote
    names = [f"{quote}{column.name.replace(quote, quote * 2)}{quote}" for column in columns]
    return (layout.delimiter.join(names) + "\n").encode()


def csv_lines(batch: pa.RecordBatch, columns: Sequence[Column], layout: FilesLayout) -> bytes:
    """Values of text columns are in quotes, nulls never are."""
    import pyarrow.compute as pc

    values = [_csv_values(batch.column(column.name), column, layout) for column in columns]
    return _joined(pc.binary_join_element_wise(*values, layout.delimiter))


def _csv_values(values: pa.Array, column: Column, layout: FilesLayout) -> pa.StringArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    found: Any = texts(values, column, as_csv=True)
    if layout.null_value and pc.any(pc.equal(found, layout.null_value)).as_py():
        raise TableError(
            f"column {column.name} holds the text {layout.null_value!r}, which stands for null in these files",
            hint="Set another `null_value` in `to.format`",
        )
    if column.type in (types.STRING, types.BINARY) or isinstance(column.type, types.Array | types.Struct):
        quote = layout.quote
        found = pc.binary_join_element_wise(quote, pc.replace_substring(found, quote, quote * 2), quote, "")
    return pc.fill_null(found, pa.scalar(layout.null_value))


def _joined(lines: pa.StringArray) -> bytes:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(lines):
        return b""
    whole = pc.binary_join_element_wise(lines, "\n", "")
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.combine_chunks()
    data: memoryview = memoryview(whole.buffers()[2])
    first, last = whole.cast(pa.large_string()), len(whole)  # offsets in a form that is read the same for slices
    offsets = memoryview(first.buffers()[1]).cast("q")
    values = memoryview(first.buffers()[2]) if first.buffers()[2] is not None else data
    return bytes(values[offsets[first.offset] : offsets[first.offset + last]])
