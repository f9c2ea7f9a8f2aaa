"""The statistics of a data file, which let readers skip it: derived from its Parquet footer (Delta protocol, *Per-file
Statistics*).

They have at most what the footer has, rounded outwards where Delta keeps less. Without them a file is read more often,
never less.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from flowctl.connectors.delta.types import columns_of

if TYPE_CHECKING:
    import pyarrow.parquet as pq

#: Characters of a text that Delta keeps.
_PREFIX = 32
#: Appended to a prefix, sorts after every text that begins with it.
_LAST = "\U0010ffff"
_INDEXED_BY_DEFAULT = 32


def indexed_columns(metadata: Mapping[str, Any]) -> list[str]:
    """The columns for which the table's properties request statistics."""
    configuration = metadata["configuration"]
    if listed := configuration.get("delta.dataSkippingStatsColumns"):
        return [name.strip("`").replace("``", "`") for name in re.findall(r"`(?:[^`]|``)+`|[^,`]+", listed)]
    first = int(configuration.get("delta.dataSkippingNumIndexedCols", _INDEXED_BY_DEFAULT))
    names = [column.name for column in columns_of(metadata["schemaString"])]
    return names if first < 0 else names[:first]


def statistics(footer: pq.FileMetaData, indexed: list[str]) -> str:
    """The ``stats`` of an ``add`` action as JSON text: row count, and null count and bounds of each column if known."""
    smallest, largest, nulls = {}, {}, {}
    for at in range(footer.num_columns):
        chunks = [footer.row_group(group).column(at) for group in range(footer.num_row_groups)]
        name = chunks[0].path_in_schema
        of_chunks = [chunk.statistics for chunk in chunks]
        # A dot may be part of a name or lead into a struct: not worth distinguishing.
        if name not in indexed or "." in name or any(one is None or not one.has_null_count for one in of_chunks):
            continue
        nulls[name] = str(sum(one.null_count for one in of_chunks))
        low, high = _ends([one for one in of_chunks if one.num_values])
        if low is not None and high is not None:
            smallest[name], largest[name] = low, high
    parts = {"minValues": _object(smallest), "maxValues": _object(largest), "nullCount": _object(nulls)}
    return _object({"numRecords": str(footer.num_rows), **parts, "tightBounds": "true"})


def _object(values: Mapping[str, str]) -> str:
    """``values`` are JSON already, so a decimal keeps its digits instead of becoming a float."""
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in values.items()) + "}"


def _ends(filled: Sequence[pq.Statistics]) -> tuple[str | None, str | None]:
    """The bounds of row groups that have values."""
    if not filled or not all(one.has_min_max for one in filled):
        return None, None
    try:
        return _low(min(one.min for one in filled)), _high(max(one.max for one in filled))
    except (ValueError, OverflowError):  # a date that Python cannot represent
        return None, None


def _low(value: Any) -> str | None:
    match value:
        case str():
            return json.dumps(value[:_PREFIX])
        case dt.datetime():
            return _moment(value.replace(microsecond=value.microsecond // 1000 * 1000))
        case _:
            return _exact(value)


def _high(value: Any) -> str | None:
    match value:
        case str():
            if len(value) <= _PREFIX:
                return json.dumps(value)
            return json.dumps(value[:_PREFIX] + _LAST) if value[_PREFIX] != _LAST else None
        case dt.datetime():
            whole = value.replace(microsecond=value.microsecond // 1000 * 1000)
            return _moment(whole if whole == value else whole + dt.timedelta(milliseconds=1))
        case _:
            return _exact(value)


def _exact(value: Any) -> str | None:
    """None for types whose bounds Delta does not compare, or not as Parquet does: booleans, bytes, floats."""
    match value:
        case bool():
            return None
        case int():
            return str(value)
        case Decimal():
            return format(value, "f")
        case dt.date():
            return json.dumps(value.isoformat())
        case _:
            return None


def _moment(value: dt.datetime) -> str:
    """In milliseconds; with a zone if the column has one."""
    text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return json.dumps(f"{text}Z" if value.tzinfo is not None else text)
