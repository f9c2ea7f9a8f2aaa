"""Which columns can be partition columns. Delta keeps their values as text (Delta protocol, *Partition Value
Serialization*): if an engine's text is not exactly the value, rows would change without an error, or the log could not
be read."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from flowctl.connectors.delta.types import Action, columns_of
from flowctl.connectors.lake.rows import Refusal
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column, TableInfo
from flowctl.model.types import DataType
from flowctl.spec.spec import Layout

#: Texts that are null as a partition value: in the protocol, and in Spark.
_NULLS = ("", "__HIVE_DEFAULT_PARTITION__")
_HINT = "Name another column under layout.partition_by; an existing table keeps its partitions: set another `to`"
_DAY = r"[+-]?\d{4,}-\d\d-\d\d"


def names(there: TableInfo | None, layout: Layout) -> tuple[str, ...]:
    """The columns by which the table is partitioned, or will be."""
    return tuple(there.extra["partition_by"]) if there is not None else layout.partition_by


def refuse(partitioned: Sequence[Column], columns: Sequence[Column]) -> tuple[str, str] | None:
    """Why a table of ``columns`` cannot be ``partitioned`` by these, and what to do: a column whose values would not
    all be kept, or no column left for the files themselves."""
    if partitioned and len(partitioned) == len(columns):
        reason = "layout.partition_by names every column of the table, and its files must hold one"
        return reason, "Leave a column out of partition_by"
    return next((found for column in partitioned if (found := refused(column))), None)


def refused(column: Column) -> tuple[str, str] | None:
    """Why a table cannot be partitioned by ``column``, and what to do; None if it can."""
    if column.type == types.BINARY:
        why = "bytes have no text of their own"
    elif column.type in (types.FLOAT, types.DOUBLE):
        why = "the text of a floating-point number may be another number, or longer than a file's name can be"
    else:
        return None
    return f"a Delta table cannot be partitioned by {column.name}, which is {types.short(column.type)}: {why}", _HINT


def texts_refused(partitioned: Collection[str], present: Collection[str], columns: Sequence[Column]) -> list[Refusal]:
    """Refusals of texts in ``present`` columns that would be null as partition values. ``TableError`` for a column that
    is :func:`refused`: the plan has not checked columns that only the run knows."""
    by = [column for column in columns if column.name in partitioned]
    for column in by:
        if stop := refused(column):
            raise TableError(stop[0], hint=stop[1])
    return [
        Refusal(column, _lost_in(column.name), _NULLS)
        for column in by
        if column.name in present and column.type == types.STRING
    ]


def _lost_in(name: str) -> str:
    what = f"column {name}, by which the table is partitioned, holds a text that Delta would keep as null"
    next_step = "Keep such rows out with `where`, or write to another `to`, which is not partitioned by it"
    return f"{what} (the empty one, or {_NULLS[1]}) | {next_step}"


def check_values(metadata: Mapping[str, Any], added: Iterable[Action], url: str) -> None:
    """:class:`TableError` if a file to be added has a partition value that no reader can parse: the table could no
    longer be read."""
    partitioned = set(metadata["partitionColumns"])
    if not partitioned:
        return
    shapes = {one.name: _shape(one.type) for one in columns_of(metadata["schemaString"]) if one.name in partitioned}
    for file in added:
        for name, value in file["partitionValues"].items():
            if value and not re.fullmatch(shapes[name], value, re.DOTALL):
                raise TableError(
                    f"{url}: the engine wrote a value of column {name}, by which the table is partitioned, as text "
                    "that no reader could read",
                    hint="Leave it out of layout.partition_by, or run with spark.url local[*]",
                )


def _shape(kind: DataType) -> str:
    match kind:
        case types.BOOL:
            return "true|false"
        case types.INT8 | types.INT16 | types.INT32 | types.INT64:
            return r"-?\d+"
        case types.Decimal():
            return r"-?\d+(\.\d+)?"
        case types.DATE:
            return _DAY
        case types.TIMESTAMP | types.TIMESTAMP_NTZ:
            return rf"{_DAY}[ T]\d\d:\d\d:\d\d(\.\d{{1,9}})?(Z|[+-]\d\d:?\d\d)?"
        case _:
            return ".*"
