"""The rows that a run would change, as computed by the engine: counted by action and column, and sampled."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowctl.engine.spark_types import named
from flowctl.model.effects import Action, SampleRow
from flowctl.run.quarantine import as_text
from flowctl.sql.difference import ACTION
from flowctl.sql.versioning import CHANGE_COLUMN, VALID_FROM

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, Row

ACTIONS: tuple[Action, ...] = ("insert", "update", "delete")
MASKED = "(masked)"
#: Columns of a changed row: its action, and whether the target now has it (or its key's current version).
_ACTION, _IS_KNOWN = "_flowctl_action", "_flowctl_is_known"
_ROWS = "_flowctl_rows"


@dataclass(frozen=True)
class Sampling:
    """``rows`` of each action are shown, by their keys; ``with_values`` also shows the changed values."""

    rows: int = 0
    with_values: bool = False


@dataclass(frozen=True)
class ChangedRows:
    """``frame`` has one row for each changed row: :data:`_ACTION`, :data:`_IS_KNOWN`, and the values of ``columns``
    before and after the change, named by their indexes in it."""

    frame: DataFrame
    columns: tuple[str, ...]


def before(place: int) -> str:
    return f"_flowctl_before{place}"


def after(place: int) -> str:
    return f"_flowctl_after{place}"


def inserted_rows(rows: DataFrame, columns: tuple[str, ...]) -> ChangedRows:
    """All of ``rows``, as inserts."""
    from pyspark.sql import functions as f

    nothing = [f.lit(None).cast("string") for _ in columns]
    return _changed(rows, f.lit("insert"), f.lit(False), nothing, [named(name) for name in columns], columns)


def merged_rows(difference: DataFrame, columns: tuple[str, ...]) -> ChangedRows:
    """The rows of :func:`flowctl.sql.difference.difference`, in which :func:`before` names the target's values."""
    action, old = named(ACTION), [named(before(n)) for n in range(len(columns))]
    return _changed(difference, action, action != "insert", old, [named(name) for name in columns], columns)


def version_rows(versions: DataFrame, columns: tuple[str, ...]) -> ChangedRows:
    """The versions ``d`` that :func:`flowctl.sql.scd2.difference` changes, joined with ``t``, the same version as
    stored, and ``c``, the key's current version, with which a new one is compared."""
    from pyspark.sql import functions as f

    is_stored = named(VALID_FROM, "t").isNotNull()
    action = f.when(named(CHANGE_COLUMN, "d") == "delete", "delete").when(is_stored, "update").otherwise("insert")
    old = [f.when(is_stored, named(name, "t")).otherwise(named(name, "c")) for name in columns]
    is_known = is_stored | named(VALID_FROM, "c").isNotNull()
    return _changed(versions, action, is_known, old, [named(name, "d") for name in columns], columns)


def _changed(
    rows: DataFrame,
    action: SparkColumn,
    is_known: SparkColumn,
    old: Sequence[SparkColumn],
    new: Sequence[SparkColumn],
    columns: tuple[str, ...],
) -> ChangedRows:
    values = [
        *(value.alias(before(n)) for n, value in enumerate(old)),
        *(value.alias(after(n)) for n, value in enumerate(new)),
    ]
    return ChangedRows(rows.select(action.alias(_ACTION), is_known.alias(_IS_KNOWN), *values), columns)


@dataclass(frozen=True)
class ChangeCounts:
    """``columns`` has, for each column, how many existing rows differ in it."""

    rows: Mapping[Action, int]
    columns: Mapping[str, int]


def count_changes(changed: ChangedRows, left_out: Collection[str]) -> ChangeCounts:
    """Counts in one query. ``left_out`` are columns that are not counted."""
    from pyspark.sql import functions as f

    places = {name: n for n, name in enumerate(changed.columns) if name not in left_out}
    is_changed = named(_IS_KNOWN) & (named(_ACTION) != "delete")
    differs = [
        f.count_if(is_changed & ~named(before(n)).eqNullSafe(named(after(n)))).alias(after(n)) for n in places.values()
    ]
    found = changed.frame.groupBy(_ACTION).agg(f.count(f.lit(1)).alias(_ROWS), *differs).collect()
    columns = {name: sum(row[after(n)] for row in found) for name, n in places.items()}
    return ChangeCounts(
        {row[_ACTION]: row[_ROWS] for row in found}, {name: count for name, count in columns.items() if count}
    )


def sample_rows(
    changed: ChangedRows, key: Sequence[str], masked: Collection[str], sampling: Sampling
) -> Iterator[SampleRow]:
    """The first rows of each action, by key. Values of ``masked`` columns are never shown, even if the target's are
    not masked."""
    keys = [named(after(changed.columns.index(name))) for name in key]
    texts = [as_text(changed.frame, name) for name in changed.frame.columns if name not in (_ACTION, _IS_KNOWN)]
    for action in ACTIONS:
        chosen = changed.frame.where(named(_ACTION) == action)
        chosen = chosen.orderBy(*keys) if keys else chosen
        for row in chosen.select(_IS_KNOWN, *texts).limit(sampling.rows).collect():
            yield _sample(action, row, changed.columns, key, masked, with_values=sampling.with_values)


def _sample(
    action: Action, row: Row, columns: Sequence[str], key: Sequence[str], masked: Collection[str], *, with_values: bool
) -> SampleRow:
    old, new = ({name: row[at(n)] for n, name in enumerate(columns)} for at in (before, after))
    shown = [name for name in columns if name not in key and (action != "update" or old[name] != new[name])]

    def visible(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, str | None]:
        return {name: MASKED if name in masked else values[name] for name in names}

    if not with_values:
        return SampleRow(action, visible(new, key))
    return SampleRow(
        action,
        visible(new, key),
        before=visible(old, shown) if row[_IS_KNOWN] else {},
        after=visible(new, shown) if action != "delete" else {},
    )
