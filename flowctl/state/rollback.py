"""`state rollback`: back to the positions of an earlier version of the state, over rows that were written since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flowctl.model.table_info import same_identity, same_system
from flowctl.state.document import StateDocument, TableState


def roll_back(current: StateDocument, old: StateDocument) -> StateDocument:
    """Takes positions and schemas from ``old``; sequence numbers and their owners from whichever document has the
    higher ones. Pending intents are kept as abandoned. Tables unknown to ``old`` keep only their sequence number. The
    definition under which rows were committed since then stays: the plan compares it with that of the spec."""
    tables = {}
    for table_id in sorted({*current.tables, *old.tables}):
        now, then = current.table(table_id), old.table(table_id)
        newest = max(now, then, key=lambda state: state.seq)
        tables[table_id] = replace(
            _rolled_back(now, then) if table_id in old.tables else then,
            seq=newest.seq,
            intent_id=newest.intent_id,
            target_id=newest.target_id,
            target_version=newest.target_version,
            intent=now.intent,
            given_up=now.intent is not None,
            append_again=False,
            highest=max(now.next_seq, then.next_seq) - 1,
            replay=now.replay,
            passed=tuple(dict.fromkeys((*now.passed, *then.passed))),
        )
    return replace(current, tables=tables)


def _rolled_back(now: TableState, then: TableState) -> TableState:
    """A position of ``then`` that means nothing under the definition of ``now`` is lost. It stays if the one of
    ``then`` is not known, as after `state adopt`."""
    followed, before = (state.accepted[-1] if state.accepted else state.definition for state in (now, then))
    if not followed or (now.seq, now.intent_id) == (then.seq, then.intent_id):
        return then
    if before and not _is_followed(before, followed):
        return replace(now, position=None, deletes_checked_at=then.deletes_checked_at)
    return replace(then, definition=now.definition, accepted=now.accepted)


def _is_followed(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether a position under ``before`` is one under ``now``. A source that is read in full, or file by file, may be
    another one every night."""
    if any(before.get(name) != now.get(name) for name in ("from", "to", "cursor")):
        return False
    if now.get("cursor") is None and {"stream", "topic"}.isdisjoint(now.get("from", {})):
        return True
    old, new = ((str(one.get("source_system") or ""), str(one.get("source_identity") or "")) for one in (before, now))
    return same_identity(old[1], new[1]) and same_system(old, new)
