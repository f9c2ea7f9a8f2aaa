"""What the plan's estimates say of each table that runs, for the cost model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flowctl.engine import cost
from flowctl.model.step import Load, Recover
from flowctl.model.table_info import RowEstimate, TableInfo
from flowctl.observe.world import Observed


def rows_of_run(todo: Iterable[Load | Recover], tables: Mapping[str, Observed]) -> dict[str, int | None]:
    """The rows in play of each table that runs."""
    return _by_table((step.id, rows_in_play(step, tables[step.id])) for step in todo)


def load_of_run(todo: Iterable[Load | Recover], tables: Mapping[str, Observed]) -> dict[str, int | None]:
    """The load of each table that runs."""
    return _by_table((step.id, _load(step, tables[step.id])) for step in todo)


def rows_in_play(step: Load | Recover, observed: Observed) -> int | None:
    target = observed.target.rows.value if observed.target else None
    return cost.in_play(batch_rows(step, observed.source), target, step.table.mode)


def batch_rows(step: Load | Recover, source: TableInfo | None) -> int | None:
    """What the plan estimates, at most the source's rows."""
    of_source = source.rows.value if source is not None else None
    return of_source if step.rows.value is None else step.rows.value


def _load(step: Load | Recover, observed: Observed) -> int | None:
    columns = len(observed.source.columns) if observed.source else len(step.columns.target)

    def load(rows: RowEstimate | None) -> int | None:
        return cost.load_of(rows, columns) if rows is not None else None

    batch, target = load(step.rows), load(observed.target.rows if observed.target else None)
    if batch is None:
        batch = load(observed.source.rows if observed.source else None)
    return cost.in_play(batch, target, step.table.mode)


def _by_table(sizes: Iterable[tuple[str, int | None]]) -> dict[str, int | None]:
    """The larger of a table's steps, which run one after the other; None where one is not known."""
    found: dict[str, int | None] = {}
    for id, size in sizes:
        other = found.get(id, 0)
        found[id] = None if size is None or other is None else max(size, other)
    return found
