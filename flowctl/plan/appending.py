"""Append must not write rows twice: the table stops if state is behind the target, or if the two positions cannot be
compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from flowctl.model.position import (
    CursorPosition,
    FileLogPosition,
    FilesPosition,
    NoPosition,
    OffsetsPosition,
    Position,
    UpstreamPosition,
    VersionPosition,
    describe,
)
from flowctl.model.table_info import same_identity
from flowctl.model.types import keeps_order
from flowctl.model.value import TypedValue
from flowctl.observe.lower_bound import retyped
from flowctl.observe.world import PositionKind
from flowctl.plan.case import Case
from flowctl.plan.commands import BLANK
from flowctl.plan.finding import Stop
from flowctl.plan.former_ids import appended_since
from flowctl.text import counted

#: What a table's position consists of.
Kind = Literal["cursor", "files", "offsets", "version", "upstream", "none"]
_OF_KIND: Mapping[Kind, tuple[type[Position], ...]] = {
    "cursor": (CursorPosition,),
    "files": (FilesPosition, FileLogPosition),
    "offsets": (OffsetsPosition,),
    "version": (VersionPosition,),
    "upstream": (UpstreamPosition, NoPosition),
    "none": (NoPosition,),
}


def kind_of(definition: Mapping[str, Any], offered: PositionKind) -> Kind:
    """The position kind of a table with this definition, if its source's type offers ``offered``."""
    if "sql" in definition.get("from", {}):
        return "upstream"
    if definition.get("cursor") is not None:
        return "cursor"
    return "none" if offered == "cursor" else offered


def is_of_kind(position: Position | None, kind: Kind) -> bool:
    """Whether ``position`` is of ``kind``. None, the beginning, is of every kind."""
    return position is None or isinstance(position, _OF_KIND[kind])


def appending_twice(case: Case) -> Stop | None:
    """Stops an append whose position was moved back (reset, rolled back, set): it would write its rows twice."""
    state, commit = case.state, case.observed.commit
    if state.append_again or case.table.mode != "append" or case.full_refresh or case.pending:
        return None
    kind = kind_of(case.definition, case.observed.positions)
    if kind not in ("cursor", "files", "offsets", "version") or case.observed.target is None:
        return None  # the others append everything in every run, as the spec explicitly requests
    replaced = f"replace the content with --full-refresh {case.table.id}"
    other = appended_since(case)
    if other is not None and not _was_told(case, kind, other.position):
        adopt = case.state_command("adopt", "--position", BLANK)
        reason = f"{other.told(case.table.target)}: appending again would double its rows"
        return Stop(reason, f"Give the position that the target has come to with {adopt}, or {replaced}", "mode")
    written = commit.position if commit else None
    if not _behind(case, kind, state.position, written):
        return None
    if written is not None and is_of_kind(written, kind):
        way = f"Take the target's position with {case.state_command('adopt')}"
        rest = f"{replaced}, or append them all the same with --append-again of `flowctl state set`"
    else:
        position = case.state_command("set", "--position", BLANK, "--append-again")
        way, rest = f"Say how far the target has come with {position}", f"or {replaced}"
    reason = _beyond(case, kind, written)
    return Stop(f"{reason}: appending again would double them", f"{way}, {rest}", "mode")


def _was_told(case: Case, kind: Kind, reached: Position | None) -> bool:
    """Whether somebody has given the table, which has not run yet, a position that is not behind ``reached``. An older
    flowctl did not note when a target was adopted, or its position set."""
    state, target = case.state, case.observed.target
    if state.last_run is not None or state.position is None or reached is None or target is None:
        return False
    return same_identity(state.target_id, target.identity) and not _behind(case, kind, state.position, reached)


def _behind(case: Case, kind: Kind, recorded: Position | None, written: Position | None) -> bool:
    """Whether the target may have rows that would be read again. Incomparable positions count as behind."""
    if written is None:
        return not is_of_kind(recorded, kind)
    match recorded, written:
        case CursorPosition(at), CursorPosition(reached):
            return _is_below(at, reached)
        case FilesPosition() | FileLogPosition(), FilesPosition() | FileLogPosition():
            known, read = case.observed.file_log, case.observed.written_log
            return read is not None and not set(read.files.values()) <= set(known.files.values() if known else ())
        case VersionPosition(version), VersionPosition(reached):
            return version < reached
        case OffsetsPosition(), OffsetsPosition():
            return any((recorded.of(partition) or 0) < offset for partition, offset in written.offsets)
        case _:
            return True


def _is_below(at: TypedValue, reached: TypedValue) -> bool:
    """Compares two cursor values; the cursor's type may have been widened between them. Values with different orders
    cannot be compared and count as below."""
    try:
        if keeps_order(at.type, reached.type):
            return at < retyped(reached, at.type)
        return retyped(at, reached.type) < reached
    except (ValueError, ArithmeticError):
        return True


def _beyond(case: Case, kind: Kind, written: Position | None) -> str:
    """Describes what the target has beyond the recorded position."""
    recorded, log = case.state.position, case.observed.written_log
    if isinstance(written, OffsetsPosition):
        return f"state records {describe(recorded)}, the target has messages up to {describe(written)}"
    if isinstance(written, VersionPosition):
        return f"state records {describe(recorded)}, the target has rows up to {describe(written)}"
    if kind == "cursor" and isinstance(written, CursorPosition):
        return f"state records {describe(recorded)}, the target has rows up to {describe(written)}"
    known = set(case.observed.file_log.files.values()) if case.observed.file_log else set()
    unknown = sorted(stamp.path for stamp in set(log.files.values()) - known) if log else []
    if not unknown:
        return f"state records {describe(recorded)!r}, which does not show what {case.table.target} already has"
    first = unknown[0] if len(unknown) == 1 else f"{unknown[0]} and {len(unknown) - 1:,} more"
    return f"the target has rows of {counted(len(unknown), 'file')} that state does not count as read ({first})"
