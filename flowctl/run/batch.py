"""From source rows to the batch that a target takes: projection, operations, one row per key.

The shapes (see ``connectors.base``): append and truncate have only the target's columns; merge adds ``_flowctl_op``;
scd2 adds ``_flowctl_op``, ``_flowctl_detected``, ``valid_from`` and ``row_hash``. Until it is committed, a staged batch
also has ``_flowctl_reason`` (quarantine).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from flowctl.connectors.letters import REASON_COLUMN
from flowctl.connectors.source import DELETED_COLUMN, PLACE_COLUMN, SOURCE_ORDER_COLUMN, TIME_COLUMN, Snapshot
from flowctl.connectors.target import DETECTED_COLUMN, OP_COLUMN
from flowctl.engine.spark_types import from_spark, named
from flowctl.model import types
from flowctl.model.projection import Columns, ProjectedColumn
from flowctl.model.table_info import Column
from flowctl.plan.projection import is_mask
from flowctl.run.conversion import converted, is_plain
from flowctl.run.masking import PREFIX
from flowctl.spec.spec import DetectFlag, TableSpec
from flowctl.sql.dialects import quoted
from flowctl.sql.difference import SOURCE_ORDER
from flowctl.sql.row_hash import row_hash_sql

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

_ORDER = "_flowctl_order"
#: Prefix of a column with the value of an added column's expression, before conversion to the column's type.
_OWN = "_flowctl_own_"
_TIE = "_flowctl_tie"
_RANK = "_flowctl_rank"
#: The greatest order in the source of a key's rows before this one.
_NEWEST = "_flowctl_newest"


def projected(
    rows: DataFrame,
    projection: Sequence[ProjectedColumn],
    read: Sequence[Column],
    extra: Sequence[SparkColumn] = (),
) -> DataFrame:
    """The target's business columns in the target's order, then ``extra`` (computed from source columns). ``read`` are
    the columns requested from the source; ``rows`` has their types. A value that its column's type cannot represent
    exactly fails the job."""
    from pyspark.sql import functions as f

    is_landed = set(rows.columns) if any(map(is_mask, projection)) else set()
    found = {quoted(column.name, "spark"): column for column in read}
    own = _own_columns(rows, projection, is_landed)
    inexact = {part.column.name for part in projection if _may_change(own, part)}
    made, helpers = [], []
    for part in projection:
        text, wanted = _expression(part, is_landed), part.column
        value = f.expr(text)
        if part.source is not None and text in found:
            value = converted(value, found[text], wanted.type)
        elif wanted.name in inexact:
            helper = f"{_OWN}{wanted.name}"  # computed once: an expression may not be deterministic
            helpers.append(helper)
            made.append(value.alias(helper))
            value = converted(named(helper), own[wanted.name], wanted.type)
        made.append(value.cast(types.spark_ddl(wanted.type)).alias(wanted.name))
    frame = rows.select(*made, *extra)
    return frame.drop(*helpers) if helpers else frame


def _may_change(own: Mapping[str, Column], part: ProjectedColumn) -> bool:
    """Whether a plain cast might change the value of an added column's expression."""
    name = part.column.name
    return name in own and not is_plain(own[name].type, part.column.type)


def _own_columns(
    rows: DataFrame, projection: Sequence[ProjectedColumn], landed: Collection[str]
) -> Mapping[str, Column]:
    """The columns of ``columns.add`` with the types of their expressions, by name."""
    from pyspark.sql import functions as f

    added = {part.column.name for part in projection if part.source is None and not part.is_absent}
    if not added:
        return {}
    made = []
    for part in projection:
        value = f.expr(_expression(part, landed))
        if part.column.name in added:
            made.append(value.alias(f"{_OWN}{part.column.name}"))
        made.append(value.cast(types.spark_ddl(part.column.type)).alias(part.column.name))
    own = {}
    for field in rows.select(*made).schema.fields:
        if field.name.startswith(_OWN):
            name = field.name.removeprefix(_OWN)
            with suppress(ValueError):  # a type that no target supports is just cast
                own[name] = Column(name, from_spark(field.dataType))
    return own


def _expression(part: ProjectedColumn, landed: Collection[str]) -> str:
    """The expression of a column, or the landed column if its mask was applied before landing."""
    masked = f"{PREFIX}{part.source}"
    return quoted(masked, "spark") if masked in landed else part.expression


def in_order(snapshot: Snapshot, table: TableSpec) -> Snapshot:
    """The snapshot with the order of its rows, if duplicates of a key may have to be resolved by that order."""
    may_choose = table.mode in ("merge", "scd2") and table.dedupe != "fail" and table.cursor is None
    return snapshot.in_order() if may_choose else snapshot


def keyed(
    rows: DataFrame, columns: Columns, table: TableSpec, snapshot: Snapshot, at: str, carried: Sequence[str] = ()
) -> DataFrame:
    """The batch of merge and scd2 before :func:`one_per_key`, with ordering columns and those that rows carry. ``at``
    is the intent's time."""
    from pyspark.sql import functions as f

    extra = [_operation(rows, columns.source, table).alias(OP_COLUMN), _order(table, snapshot).alias(_ORDER)]
    own = [TIME_COLUMN] if TIME_COLUMN in rows.columns and table.mode == "scd2" else []
    if table.has_source_order:
        extra.append(named(SOURCE_ORDER_COLUMN).alias(SOURCE_ORDER))
    extra += [named(name) for name in (*own, *carried)]
    frame = projected(rows, columns.projection, columns.source, extra)
    frame = frame.withColumn(_TIE, f.xxhash64(*[named(part.column.name) for part in columns.projection]))
    if table.mode != "scd2":
        return frame
    reports = DELETED_COLUMN in rows.columns and not own and not isinstance(table.deletes, DetectFlag)
    if own:
        event = named(TIME_COLUMN)
    else:
        event = f.lit(at) if table.valid_from in (None, "now") else named(str(table.valid_from))
        if reports:  # closed when it is detected: the row has no time of its own
            event = f.when(named(OP_COLUMN) == "D", f.lit(at).cast("timestamp")).otherwise(event.cast("timestamp"))
    compared = [part.column for part in columns.projection if part.compared]
    return (
        frame.withColumn("valid_from", event.cast("timestamp"))
        .withColumn("row_hash", f.expr(row_hash_sql(compared)))
        .withColumn(DETECTED_COLUMN, (named(OP_COLUMN) == "D") if reports else f.lit(False))
        .drop(*own)
    )


def one_per_key(frame: DataFrame, table: TableSpec) -> DataFrame:
    """The latest row of each key (for scd2: of each key and event time): the one with the highest cursor, or the last
    place in files; ties are broken by the row's hash, so that a rerun gives the same result. If changes have an order
    in their source, the last one by it. Quarantined rows are not compared and are all kept."""
    from pyspark.sql import functions as f

    order = [f.col(_ORDER).desc_nulls_last(), f.col(_TIE).desc()]
    if table.has_source_order:
        order = [named(SOURCE_ORDER).desc(), *order]
    return _first(frame, table, f.row_number(), order)


def newest_version_per_key(frame: DataFrame, table: TableSpec) -> DataFrame:
    """Of a source's versions, the rows of each key (for scd2: of each key and event time) in the last version that has
    it. There may be several: they are duplicates. Quarantined rows are all kept."""
    from pyspark.sql import functions as f

    return _first(frame, table, f.rank(), [f.col(_ORDER).desc_nulls_last()])


def in_source_order(frame: DataFrame, table: TableSpec) -> DataFrame:
    """A history's changes without those that are not newer than all of the same key before them: they are sent again.
    Quarantined rows are all kept."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    if not table.has_source_order or table.mode != "scd2":
        return frame
    is_rejected = named(REASON_COLUMN).isNotNull()
    window = Window.partitionBy(*[named(name) for name in table.key], is_rejected)
    before = window.orderBy(f.col(_ORDER), named(SOURCE_ORDER)).rowsBetween(Window.unboundedPreceding, -1)
    newest = f.max(named(SOURCE_ORDER)).over(before)
    is_newer = f.col(_NEWEST).isNull() | (named(SOURCE_ORDER) > f.col(_NEWEST))
    return frame.withColumn(_NEWEST, newest).where(is_rejected | is_newer).drop(_NEWEST)


def row_identity(table: TableSpec) -> list[str]:
    """The columns that identify a row of a keyed table: its key, for scd2 with the event time."""
    return [*table.key, *(["valid_from"] if table.mode == "scd2" else [])]


def _first(frame: DataFrame, table: TableSpec, rank: SparkColumn, order: Sequence[SparkColumn]) -> DataFrame:
    """The rows of rank 1 of each key (for scd2: of each key and event time), and all quarantined ones."""
    from pyspark.sql import Window

    is_rejected = named(REASON_COLUMN).isNotNull()
    window = Window.partitionBy(*map(named, row_identity(table)), is_rejected).orderBy(*order)
    return frame.withColumn(_RANK, rank.over(window)).where((named(_RANK) == 1) | is_rejected).drop(_RANK)


def without_order(frame: DataFrame) -> DataFrame:
    return frame.drop(_ORDER, _TIE)


def _operation(rows: DataFrame, columns: Sequence[Column], table: TableSpec) -> SparkColumn:
    """``D`` if the source reports that the row was deleted, or its flag says so; otherwise ``U``."""
    from pyspark.sql import functions as f

    if not isinstance(table.deletes, DetectFlag):
        if DELETED_COLUMN not in rows.columns:
            return f.lit("U")
        return f.when(named(DELETED_COLUMN), f.lit("D")).otherwise(f.lit("U"))
    flag = table.deletes
    kind = next(column.type for column in columns if column.name == flag.column)
    gone = named(flag.column).isin(*[f.lit(value).cast(types.spark_ddl(kind)) for value in flag.values])
    return f.when(f.coalesce(gone, f.lit(False)), f.lit("D")).otherwise(f.lit("U"))


def _order(table: TableSpec, snapshot: Snapshot) -> SparkColumn:
    from pyspark.sql import functions as f

    if table.cursor is None and snapshot.has_places:
        return named(PLACE_COLUMN)
    return named(table.cursor.column) if table.cursor else f.lit(None).cast("timestamp")
