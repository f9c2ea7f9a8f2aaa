"""What stops a table because of the engine that would run it: what only the source or the target tells."""

from __future__ import annotations

from flowctl.engine.session import SAIL, demanding_features, is_unnamed
from flowctl.model import types
from flowctl.model.projection import Columns, RuntimeColumns
from flowctl.plan.case import Case
from flowctl.plan.finding import Stop
from flowctl.plan.partitions import partition_columns
from flowctl.resolve import sail


def refusal(case: Case, columns: Columns | RuntimeColumns) -> Stop | None:
    """For Sail, one of :data:`flowctl.resolve.sail.GAPS`; None where the engine keeps every promise."""
    if case.spark_url != SAIL:
        return None
    if floats := sail.hashed_floats(case.table, columns.source):
        return _stop(f"{', '.join(floats)}", "float", "mode")
    changes = columns.changes if isinstance(columns, Columns) else ()
    target = case.observed.target
    has_files = target is not None and "features" in target.extra  # of a Delta table; a database changes its own rows
    if widened := sail.widened(changes) if has_files and not case.rebuilds else []:
        return _stop(f"widening {', '.join(widened)}", "widen", "on_schema_change")
    if decimals := [one.name for one in partition_columns(case, columns.target) if isinstance(one.type, types.Decimal)]:
        return _stop(f"partitions by {', '.join(decimals)}", "partition", "layout.partition_by")
    if target is not None and has_files:
        found = demanding_features(target.extra["features"], target.extra["properties"])
        if found:
            return _stop(f"a table with {', '.join(found)}", "features", "to")
        needed = [change.column for change in changes if change.action == "enable"]
        if needed and is_unnamed(target.extra.get("writer_version", 0)):
            return _stop(f"{', '.join(needed)} in a table of an old writer version", "protocol", "to")
    return None


def _stop(what: str, gap: str, path: str) -> Stop:
    return Stop(f"{what} cannot be on Sail: {sail.GAPS[gap]}", sail.HINT, path)
