"""What a batch changes among rows in memory: the difference of :mod:`flowctl.sql.difference`, in Arrow.

For a small batch the engine's query takes most of a merge's time. Values are compared as Spark compares them: nulls are
equal, and so are NaNs and the two zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flowctl.connectors.arrow import arrow_schema, moment
from flowctl.connectors.lake.row_search import comparable
from flowctl.connectors.lake.rows import rows_in_order
from flowctl.model.table_info import Column
from flowctl.model.types import Array, Struct
from flowctl.sql.difference import ACTION, SOFT_DELETED, SOURCE_ORDER, Upsert

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROW, _TABLE_ROW = "_flowctl_batch_row", "_flowctl_table_row"


def can_compare(columns: Sequence[Column], compared: Sequence[str]) -> bool:
    """Whether Arrow can compare the values of the ``compared`` columns."""
    return not any(isinstance(column.type, Array | Struct) for column in columns if column.name in compared)


def difference(batch: pa.Table, there: pa.Table, change: Upsert, columns: Sequence[Column]) -> pa.Table:
    """As :func:`flowctl.sql.difference.difference`. Returns ``columns``, those of the table in its order, then
    ``change.carried`` and :data:`ACTION`. ``there`` has at least the table's rows with one of the batch's keys."""
    import pyarrow as pa
    import pyarrow.compute as pc

    schema = arrow_schema(columns)
    rows = rows_in_order(batch, columns)
    pairs = _matched(rows, there, change.key)
    rows = rows.take(pairs[_BATCH_ROW])
    before = there.take(pairs[_TABLE_ROW])
    is_delete = _constant(False, pairs)
    if change.operation in batch.column_names:
        is_delete = pc.equal(batch[change.operation].take(pairs[_BATCH_ROW]), "D")
    is_absent = pairs[_TABLE_ROW].is_null()
    marked = before[SOFT_DELETED].is_valid() if change.marks_deletes else _constant(False, pairs)
    differs = _constant(False, pairs)
    for name in change.compared:
        differs = pc.or_(differs, _differs(rows[name], before[name]))
    unmarked = pc.invert(marked) if change.deleted_at is not None else _constant(True, pairs)
    if change.is_ordered:
        new, old = rows[SOURCE_ORDER], before[SOURCE_ORDER]
        is_newer = pc.fill_null(pc.greater(new, old), True)  # the row has no order, or there is none
        is_same = pc.and_(pc.fill_null(pc.equal(new, old), False), unmarked)
        chosen = pc.or_(is_newer, pc.and_(is_same, pc.or_(is_delete, differs)))
    else:
        changed = pc.or_(marked, differs)
        chosen = pc.if_else(is_delete, pc.and_(pc.invert(is_absent), unmarked), pc.or_(is_absent, changed))
    action = pc.if_else(is_absent, "insert", pc.if_else(is_delete, "delete", "update"))
    values = []
    for field in schema:
        deleted, new = before[field.name], before[field.name]
        if field.name == SOFT_DELETED and change.marks_deletes:
            new = pa.nulls(len(pairs), field.type)
            if change.deleted_at is not None:
                deleted = moment(change.deleted_at)
        if field.name in change.batch_columns:
            new = rows[field.name]
            if change.is_ordered:
                is_of_batch = field.name == SOURCE_ORDER or field.name in change.key
                deleted = new if is_of_batch else pc.if_else(is_absent, new, deleted)
        values.append(pc.if_else(is_delete, deleted, new))
    names = [*schema.names, *change.carried, ACTION]
    return pa.table([*values, *(before[name] for name in change.carried), action], names=names).filter(chosen)


def _matched(batch: pa.Table, there: pa.Table, key: Sequence[str]) -> pa.Table:
    """Pairs of row numbers: each row of the batch, and the table's row with its key, null if there is none."""
    import pyarrow as pa

    def numbered(table: pa.Table, name: str) -> pa.Table:
        return comparable(table.select(list(key))).append_column(name, pa.arange(0, table.num_rows))

    left, right = numbered(batch, _BATCH_ROW), numbered(there, _TABLE_ROW)
    return left.join(right, keys=list(key), join_type="left outer", use_threads=False).sort_by(_BATCH_ROW)


def _differs(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    """``IS DISTINCT FROM``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    one, other = (comparable(pa.table([values], names=["v"]))["v"] for values in (one, other))
    if pa.types.is_floating(one.type):
        is_nan = pc.and_(pc.is_nan(one), pc.is_nan(other))
        equal = pc.or_(pc.equal(one, other), is_nan)
    else:
        equal = pc.equal(one, other)
    both_null = pc.and_(one.is_null(), other.is_null())
    return pc.invert(pc.or_(both_null, pc.fill_null(equal, False)))


def _constant(value: bool, like: pa.Table) -> pa.Array:
    import pyarrow as pa

    return pa.repeat(pa.scalar(value), like.num_rows)
