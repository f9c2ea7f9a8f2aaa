"""`state rollback`: back to the positions of an earlier version of the state, over rows that were written since."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

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
    """A position of ``then`` that means nothing under the definition of ``now`` is lost."""
    followed, before = (state.accepted[-1] if state.accepted else state.definition for state in (now, then))
    if not followed or (now.seq, now.intent_id) == (then.seq, then.intent_id):
        return then
    if dict(_followed(followed)) != dict(_followed(before)):
        return replace(now, position=None, deletes_checked_at=then.deletes_checked_at)
    return replace(then, definition=now.definition, accepted=now.accepted)


def _followed(definition: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What a position belongs to. A source that is read in full, or file by file, may be another one every night."""
    source, cursor = definition.get("from", {}), definition.get("cursor")
    yield from {"from": source, "to": definition.get("to"), "cursor": cursor}.items()
    if cursor is not None or not {"stream", "topic"}.isdisjoint(source):
        yield from ((name, definition.get(name, "")) for name in ("source_system", "source_identity"))
