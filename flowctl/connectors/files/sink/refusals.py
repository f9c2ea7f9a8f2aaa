"""What a format of files cannot hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Struct
from flowctl.spec.files_layout import FilesLayout

if TYPE_CHECKING:
    import pyarrow as pa

#: 1582-10-15, the first day of the Gregorian calendar, in days and in microseconds since 1970.
_GREGORIAN_DAY = -141_427
_GREGORIAN_MICROSECOND = _GREGORIAN_DAY * 86_400_000_000


def refuse_columns(columns: Sequence[Column], layout: FilesLayout) -> None:
    """Raises :class:`StoppedByPolicy` for the first column whose type the format does not have, and for text as the
    only column of CSV without a text for null: readers skip an empty line, and an empty text is a value."""
    for column in columns:
        is_nested = isinstance(column.type, Array | Struct)
        if layout.format == "csv" and is_nested:
            raise StoppedByPolicy(
                f"column {column.name} is {types.short(column.type)}, for which CSV has no form",
                hint="Write jsonl, parquet or orc, leave it out with columns.exclude, or make text of it: from a "
                "database with columns.types, with Apache Spark with columns.add",
            )
        if layout.format == "orc" and types.is_or_holds(column.type, types.TIMESTAMP):
            rule = f"columns: {{types: {{{column.name}: timestamp_ntz}}}}"
            raise StoppedByPolicy(
                f"column {column.name} is {types.short(column.type)}, and Spark reads no zoned timestamps of ORC",
                hint="Write parquet" if is_nested else f"Write parquet, or leave out the zone with `{rule}`",
            )
    is_alone = layout.format == "csv" and not layout.null_value and len(columns) == 1
    if is_alone and columns[0].type in (types.STRING, types.BINARY):
        raise StoppedByPolicy(
            f"column {columns[0].name} is the only one, so a null would be an empty line, which readers of CSV skip",
            hint="Set `null_value` in `to.format`, such as NULL or \\N",
        )


def require_gregorian(values: pa.Array, kind: DataType, name: str) -> None:
    """Raises ``TableError`` for a day before 1582-10-15 anywhere in ``values``, which are of this type. Files of ORC
    do not say which calendar such days are in unless Java has written them, so readers shift them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    match kind:
        case Array(item):
            require_gregorian(values.flatten(), item, name)
        case Struct(fields):
            for (_, of), inner in zip(fields, values.flatten(), strict=True):
                require_gregorian(inner, of, name)
        case types.DATE | types.TIMESTAMP_NTZ:
            is_day = kind == types.DATE
            least = pc.min(values.cast(pa.int32() if is_day else pa.int64())).as_py()
            if least is not None and least < (_GREGORIAN_DAY if is_day else _GREGORIAN_MICROSECOND):
                raise TableError(
                    f"column {name} holds a day before 1582-10-15, which readers of ORC shift",
                    hint="Write parquet, or leave such rows out with `where`",
                )
        case _:
            return
