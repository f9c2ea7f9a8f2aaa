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

_INFINITIES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def json_lines(batch: pa.RecordBatch, columns: Sequence[Column], _layout: FilesLayout) -> bytes:
    return _joined(objects(batch, columns))


def csv_header(columns: Sequence[Column], layout: FilesLayout) -> bytes:
    quote = layout.quote
    names = [f"{quote}{column.name.replace(quote, quote * 2)}{quote}" for column in columns]
    return (layout.delimiter.join(names) + "\n").encode()


def csv_lines(batch: pa.RecordBatch, columns: Sequence[Column], layout: FilesLayout) -> bytes:
    """Text, and bytes as base64, is in quotes, which are doubled within it; nulls are not, unless they would be an
    empty line, which readers skip. Only columns of other types than text are alone without a ``null_value``."""
    import pyarrow.compute as pc

    null = layout.null_value or (layout.quote * 2 if len(columns) == 1 else "")
    values = [_csv_values(batch.column(column.name), column, layout, null) for column in columns]
    return _joined(pc.binary_join_element_wise(*values, layout.delimiter))


def _csv_values(values: pa.Array, column: Column, layout: FilesLayout, null: str) -> pa.StringArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    found = _csv_texts(values, column)
    if layout.null_value and pc.any(pc.equal(found, layout.null_value)).as_py():
        raise TableError(
            f"column {column.name} holds the text {layout.null_value!r}, which stands for null in these files",
            hint="Set another `null_value` in `to.format`",
        )
    if column.type in (types.STRING, types.BINARY):
        quote = layout.quote
        found = pc.binary_join_element_wise(quote, pc.replace_substring(found, quote, quote * 2), quote, "")
    return pc.fill_null(found, pa.scalar(null))


def _csv_texts(values: pa.Array, column: Column) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.type not in (types.FLOAT, types.DOUBLE):
        return texts(values, column, as_base64=True)
    found: Any = values.cast(pa.string())
    for written, text in _INFINITIES.items():
        found = pc.if_else(pc.equal(found, written), text, found)
    return found


def _joined(lines: pa.StringArray) -> bytes:
    """The bytes of all lines, each with its line feed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(lines):
        return b""
    one = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    whole: bytes = pc.binary_join(one, "\n")[0].as_buffer().to_pybytes()
    return whole + b"\n"
