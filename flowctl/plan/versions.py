"""The interval of a table that is read by the versions of its source: what changed since the recorded one."""

from __future__ import annotations

from flowctl.connectors.source import HighWatermark
from flowctl.model.interval import Interval
from flowctl.model.position import Position, VersionPosition
from flowctl.observe.relations import key_of, reports_deletes
from flowctl.plan.commands import state_command
from flowctl.plan.finding import Finding, Idle, Stop, Work
from flowctl.spec.spec import TableSpec


def versions_interval(table: TableSpec, watermark: HighWatermark, recorded: Position | None, spec_path: str) -> Finding:
    """The changes since the recorded version; the whole table if it has none, or with truncate. merge and scd2 read
    everything again where the changes are lost, append stops."""
    upper = watermark.position
    assert isinstance(upper, VersionPosition), "a source of versions always has one"
    if not isinstance(recorded, VersionPosition):
        return Work(Interval(None, upper), f"reads version {upper.version}")
    if recorded.table not in ("", upper.table):
        return _anew(table, upper)
    is_another = recorded.version == upper.version and recorded.is_another(upper.stamp)
    changes = watermark.changes
    is_same = recorded.version == upper.version and not is_another
    if is_same and not (changes is not None and changes.lost):
        return Idle(f"the source is unchanged, version {upper.version}", recorded)
    since = f"version {recorded.version}"
    if table.mode == "truncate":
        again = f"as its schema was changed: {changes.lost}" if is_same and changes else f"{since} was read before"
        return Work(Interval(None, upper), f"reads version {upper.version}, {again}")
    if is_another:
        return _again(table, upper, spec_path, f"{since} is another one now: the source was restored from a copy")
    if upper.version < recorded.version:
        return _again(table, upper, spec_path, f"the source went back from {since} to version {upper.version}")
    if changes is None or changes.since != recorded.version:
        return _again(
            table, upper, spec_path, f"the changes since {since} are lost: {watermark.begun_lost or 'not asked for'}"
        )
    if changes.lost:
        return _again(table, upper, spec_path, f"the changes since {since} are lost: {changes.lost}")
    if table.mode == "append" and changes.removes:
        return _again(
            table, upper, spec_path, f"{changes.removes} of the source removed or changed rows, which append cannot do"
        )
    if reports_deletes(table) and not key_of(table):
        return _again(
            table, upper, spec_path, "the key has a column of columns.add, so that changes do not show which are gone"
        )
    feed = ", from its change data feed" if changes.reads_feed else ""
    return Work(Interval(recorded, upper), f"changes since {since}{feed}")


def _anew(table: TableSpec, upper: VersionPosition) -> Finding:
    reason = "the source was dropped and created again"
    if table.mode == "truncate":
        return Work(Interval(None, upper), reason)
    return Stop(
        f"{reason}: its versions begin again", f"Read it from its beginning with --full-refresh {table.id}", "from"
    )


def _again(table: TableSpec, upper: VersionPosition, spec_path: str, reason: str) -> Finding:
    if table.mode == "append":
        way = state_command("set", spec_path, table.id, "--position", str(upper.version))
        replacing = f"Replace the target's content with --full-refresh {table.id}"
        return Stop(
            reason, f"{replacing}, or continue without these changes from version {upper.version}: {way}", "mode"
        )
    return Work(Interval(None, upper), f"reads everything again: {reason}")


def has_version(watermark: HighWatermark, then: VersionPosition) -> bool:
    """Whether an interval that was begun up to ``then`` can still be read."""
    now = watermark.position
    if not isinstance(now, VersionPosition) or now.table != then.table or watermark.begun_lost:
        return False
    return now.version > then.version or (now.version == then.version and not then.is_another(now.stamp))


def reads_changes(interval: Interval) -> bool:
    """Whether it is one of changes, which report the deletions among them."""
    return isinstance(interval.lower, VersionPosition)
