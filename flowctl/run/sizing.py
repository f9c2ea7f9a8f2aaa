"""How big a run is, and each table in it, by the plan's row estimates.

A table's *load* is its rows in play, as rows of usual width: 60,000 rows of 500 columns are as much work as two million
of sixteen. Where only bytes are known, as of files, they tell it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from flowctl.engine.conf import Size
from flowctl.model.step import Step
from flowctl.model.table_info import RowEstimate, TableInfo
from flowctl.observe.world import Observed

#: From so much load on, compiled queries pay for a run; from so much, an optimising compiler and throughput do.
MEDIUM_ROWS = 100_000
LARGE_ROWS = 2_000_000
#: Of a row of usual width.
_COLUMNS, _BYTES = 16, 100
#: Below so many a table's queries take longer to compile than to interpret, however warm the JVM is.
INTERPRETED_ROWS = 25_000
#: A row of the target costs less than one of the batch: most files are skipped, most columns not read. A merge has the
#: engine look at the target's rows in few tables only (:mod:`flowctl.connectors.delta.plain`).
_TARGET_SHARE = {"merge": 50, "scd2": 10}


def rows_of_run(todo: Iterable[Step], tables: Mapping[str, Observed]) -> dict[str, int | None]:
    """The rows in play of each table that runs."""
    return _by_table((step.id, rows_in_play(step, tables[step.id])) for step in todo)


def load_of_run(todo: Iterable[Step], tables: Mapping[str, Observed]) -> dict[str, int | None]:
    """The load of each table that runs: what the size of the run, and of each table in it, follows from."""
    return _by_table((step.id, _load(step, tables[step.id])) for step in todo)


def _by_table(sizes: Iterable[tuple[str, int | None]]) -> dict[str, int | None]:
    """The larger of a table's steps, which run one after the other; None where one is not known."""
    found: dict[str, int | None] = {}
    for id, size in sizes:
        other = found.get(id, 0)
        found[id] = None if size is None or other is None else max(size, other)
    return found


def _load(step: Step, observed: Observed) -> int | None:
    columns = len(observed.source.columns) if observed.source else len(step.target_columns)

    def counted(rows: RowEstimate) -> int | None:
        """By bytes where nobody has counted them yet, as in files and in new tables of PostgreSQL."""
        if rows.value is not None:
            return rows.value * max(columns, _COLUMNS) // _COLUMNS
        return rows.bytes // _BYTES if rows.bytes is not None else None

    return _in_play(step, observed, counted)


def rows_in_play(step: Step, observed: Observed) -> int | None:
    """The batch's rows, and for merge and scd2 a share of the target's; None when nobody knows."""
    return _in_play(step, observed, _rows)


def _in_play(step: Step, observed: Observed, counted: Callable[[RowEstimate], int | None]) -> int | None:
    batch = _batch(step, observed.source, counted)
    if batch is None or observed.target is None or step.mode not in _TARGET_SHARE:
        return batch
    there = counted(observed.target.rows)
    return batch + there // _TARGET_SHARE[step.mode] if there is not None else None


def batch_rows(step: Step, source: TableInfo | None) -> int | None:
    """What the plan says, at most the source's rows."""
    return _batch(step, source, _rows)


def _batch(step: Step, source: TableInfo | None, counted: Callable[[RowEstimate], int | None]) -> int | None:
    batch = counted(step.rows)
    return counted(source.rows) if batch is None and source is not None else batch


def _rows(rows: RowEstimate) -> int | None:
    return rows.value


def size_of_run(loads: Iterable[int | None]) -> Size:
    """``medium`` when some are not known and the known ones are few."""
    all_loads = list(loads)
    known = sum(load for load in all_loads if load is not None)
    if known >= LARGE_ROWS:
        return "large"
    return "small" if None not in all_loads and known < MEDIUM_ROWS else "medium"


def is_interpreted(load: int | None) -> bool:
    return load is not None and load < INTERPRETED_ROWS
