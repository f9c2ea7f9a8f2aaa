"""Counts a small staged batch without expectations in this process: in a JVM's first seconds, a query takes longer."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from flowctl.connectors.target import OP_COLUMN
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import DataType, Decimal
from flowctl.run.checks import BatchCounts

if TYPE_CHECKING:
    import pyarrow as pa

#: Types whose bounds are useful, in addition to decimals.
_BOUNDED = (types.INT8, types.INT16, types.INT32, types.INT64, types.STRING, types.DATE)
_EPOCH = dt.date(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = (dt.date.min - _EPOCH).days, (dt.date.max - _EPOCH).days


def count_rows(batches: Iterable[pa.RecordBatch], identity: Sequence[str], key: Sequence[Column]) -> BatchCounts:
    """The same counts as staging's own aggregate, with bounds of those columns of ``key`` for which writers use them.
    ``target_rows`` is not set."""
    import pyarrow.compute as pc

    rows = deletes = null_keys = 0
    bounded = [column for column in key if column.type in _BOUNDED or isinstance(column.type, Decimal)]
    ends: dict[str, tuple[Any, Any]] = {}
    for batch in batches:
        gone = pc.sum(pc.equal(batch[OP_COLUMN], "D")).as_py() or 0 if OP_COLUMN in batch.schema.names else 0
        rows, deletes = rows + batch.num_rows - gone, deletes + gone
        null_keys += _with_null(batch, identity)
        for column in bounded:
            low, high = pc.min_max(_comparable(batch[column.name])).as_py().values()
            if low is not None:
                before = ends.get(column.name, (low, high))
                ends[column.name] = (min(low, before[0]), max(high, before[1]))
    kinds = {column.name: column.type for column in bounded}
    bounds = {
        name: (_text(low, kinds[name]), _text(high, kinds[name]))
        for name, (low, high) in ends.items()
        if _is_bound(low, kinds[name]) and _is_bound(high, kinds[name])
    }
    return BatchCounts(rows, 0, deletes, null_keys=null_keys, key_bounds=bounds if key else None)


def _with_null(batch: pa.RecordBatch, names: Sequence[str]) -> int:
    """The number of rows with a null in one of ``names``."""
    import pyarrow.compute as pc

    holed = [batch[name].is_null() for name in names if batch[name].null_count]
    if not holed:
        return 0
    any_null = holed[0]
    for one in holed[1:]:
        any_null = pc.or_(any_null, one)
    return int(pc.sum(any_null).as_py())


def _comparable(values: pa.Array) -> pa.Array:
    """Dates as day numbers, because Python has no year 10000."""
    import pyarrow as pa

    return values.cast(pa.int32()) if pa.types.is_date32(values.type) else values


def _is_bound(end: Any, kind: DataType) -> bool:
    return kind != types.DATE or _FIRST_DAY <= end <= _LAST_DAY


def _text(end: Any, kind: DataType) -> str:
    """The value in Spark's text format."""
    if kind == types.DATE:
        return (_EPOCH + dt.timedelta(days=end)).isoformat()
    return format(end, "f") if isinstance(kind, Decimal) else str(end)
