"""Taking a target over as it is (`flowctl state adopt`): its number, and the position and definition of its rows.

A database keeps the commits of a table by its id in the flow, wherever its `to` leads. What such a record, or state,
says of another target does not hold for this one: its position is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flowctl.model.commit import Commit
from flowctl.model.table_info import TableInfo, same_identity
from flowctl.plan import definition as definitions
from flowctl.plan.acceptance import current, written_under
from flowctl.plan.case import Case
from flowctl.plan.fills import columns_to_record
from flowctl.plan.former_ids import OtherId, appended_since
from flowctl.state import document as documents
from flowctl.state.document import StateDocument, TableState
from flowctl.state.former import Former, former_of_target, former_state
from flowctl.state.store import StateStore
from flowctl.state.streams import with_adopted


@dataclass(frozen=True)
class Adoption:
    """``is_another``: what was recorded is of another target, so the position is unknown. So it is if ``other`` has
    appended to this one since."""

    document: StateDocument
    is_another: bool
    other: OtherId | None = None


def adopt(before: StateDocument, case: Case, store: StateStore) -> Adoption:
    """``store`` is that of the state that has the table. The definition is the one that the rows were written under;
    if state does not know it any more, one for which the plan stops is assumed."""
    target, commit, state = case.observed.target, case.observed.commit, case.state
    assert target is not None, "there is something to adopt"
    other = appended_since(case)
    former = _former(store, before.lineage, commit)
    is_another = _is_of_another(case, target, former)
    document = documents.adopt(
        before, case.table.id, target, commit, columns_to_record(case), keeps_position=not is_another and other is None
    )
    document = with_adopted(before, document, case.table.id)
    states: tuple[TableState, ...] = ()
    if is_another:
        known = former_of_target(store, before.lineage, case.table.id, lambda id: _is_same(target, id))
        states = (known,) if known is not None else ()
    elif former.is_known and not (commit is not None and commit.void):  # a void has the rows of an earlier number
        states = former.states
    else:
        states = (*(replace(state, definition=one) for one in written_under(state)), *former.states)
    if states:
        document, _ = with_former_definition(document, case, states)
    if other is not None:  # from here on, this table is the one that has appended last
        taken = replace(document.table(case.table.id), last_run=other.last_run)
        document = documents.with_table(document, case.table.id, taken)
    return Adoption(document, is_another, other)


def with_former_definition(
    document: StateDocument, case: Case, states: Sequence[TableState]
) -> tuple[StateDocument, tuple[str, ...]]:
    """``document`` with a definition of ``states``, and its differences from that of the spec: the first for which the
    next plan stops. A position means nothing under another definition, and rows would be lost."""
    table_id, target = case.table.id, str(case.table.target)
    maybe = [documents.with_definition_of(document, table_id, one, target) for one in states]
    changes = [(one, definitions.differences(one.table(table_id).definition, case.definition)) for one in maybe]
    return next((one for one in changes if one[1]), changes[0])


def _former(store: StateStore, lineage: str, commit: Commit | None) -> Former:
    if commit is None:
        return Former((), is_known=False)
    content = commit if commit.restored is None else replace(commit, seq=commit.restored)  # rolled back by others
    return former_state(store, lineage, [commit, content])


def _is_of_another(case: Case, target: TableInfo, former: Former) -> bool:
    """A target that was restored has another identity, too, but the `to` of its commit."""
    commit, state, to = case.observed.commit, case.state, str(case.table.target)
    if _is_same(target, commit.target_id if commit is not None else state.target_id):
        return False
    if former.is_known and (known := former.states[0].definition.get("to")):
        return bool(known != to)
    recorded = {one["to"] for one in (*written_under(state), current(state)) if "to" in one}
    if recorded:
        return recorded != {to}
    return commit is not None and commit.target_id != ""


def _is_same(target: TableInfo, identity: str) -> bool:
    """By its identity, or by the mark of the intent that created it, which stays if it is renamed."""
    creator = target.created_by
    return same_identity(target.identity, identity) or (creator != "" and identity.rpartition("/")[2] == creator)
