"""What stops a table because of the engine that would run it: what only the source or the target tells."""

from __future__ import annotations

from flowctl.connectors.gaps import Gap
from flowctl.engine.session import SAIL
from flowctl.model.projection import Columns, RuntimeColumns
from flowctl.plan.case import Case
from flowctl.plan.finding import Stop
from flowctl.resolve import sail


def refusal(case: Case, columns: Columns | RuntimeColumns) -> Stop | None:
    """None where the engine keeps every promise."""
    if case.spark_url != SAIL:
        return None
    if floats := sail.hashed_floats(case.table, columns.source):
        return _stop(Gap("mode", sail.GAPS["float"], ", ".join(floats)))
    changes = columns.changes if isinstance(columns, Columns) else ()
    layout, target = case.table.layout, case.observed.target
    found = case.ddl.gap(SAIL, target, columns.target, changes, layout, rebuilds=case.rebuilds) if case.ddl else None
    return _stop(found) if found is not None else None


def _stop(gap: Gap) -> Stop:
    return Stop(f"{gap.what} cannot be on Sail: {gap.reason}", sail.HINT, gap.key)
