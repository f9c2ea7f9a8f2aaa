"""The interval of a table that is read by the versions of its source: what changed since the recorded one."""

from __future__ import annotations

from flowctl.connectors.source import HighWatermark
from flowctl.model.interval import Interval
from flowctl.model.position import Position, VersionPosition
from flowctl.plan.finding import Finding, Idle, Stop, Work
from flowctl.spec.spec import TableSpec


def versions_interval(table: TableSpec, watermark: HighWatermark, recorded: Position | None) -> Finding:
    """The whole table, whenever its version has changed."""
    upper = watermark.position
    if not isinstance(upper, VersionPosition):
        return Stop("the source has no version", "Plan again", "from")
    if not isinstance(recorded, VersionPosition):
        return Work(Interval(None, upper), f"reads version {upper.version}")
    if recorded.table not in ("", upper.table):
        return Work(Interval(None, upper), "the source was dropped and created again")
    if recorded.version == upper.version:
        return Idle(f"the source is unchanged, version {upper.version}", recorded)
    if upper.version < recorded.version:
        return Work(Interval(None, upper), f"the source went back from version {recorded.version} to {upper.version}")
    return Work(Interval(None, upper), f"reads version {upper.version}, version {recorded.version} was read before")
