"""Accepting a changed definition (`state set --accept-definition`): whether a table can continue from its position
under the new definition, and which parts of its state no longer apply. If it cannot, a full refresh is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from flowctl.model.position import CursorPosition, Position
from flowctl.model.table_info import TableInfo, same_identity
from flowctl.plan.column_names import perhaps_renamed
from flowctl.plan.definition import (
    begins_otherwise,
    differences,
    has_same_key,
    misses_changes,
    of_stream,
    of_topic,
)
from flowctl.spec.spec import TableSpec
from flowctl.state import document as documents
from flowctl.state.document import StateDocument, TableState
from flowctl.text import quoted

Definition = Mapping[str, Any]


def current(state: TableState) -> Definition:
    """The definition that the spec's must equal: that of the pending intent, the one accepted since the last commit, or
    the recorded one. Empty if there is none."""
    if state.pending is not None:
        return state.pending.definition
    return state.accepted[-1] if state.accepted else state.definition


def written_under(state: TableState) -> tuple[Definition, ...]:
    """The definitions that rows of the target may have been written under."""
    return _with_begun(state, state.accepted[:-1] or (state.definition,))


def refusal(state: TableState, wanted: Definition, target: TableInfo | None) -> str | None:
    """Returns why the table cannot continue; None if it can. ``target`` is what exists where ``wanted`` leads."""
    refusals = (
        *(_refusal_of_rows(state, one, wanted, target) for one in written_under(state)),
        *(_refusal_of_position(state, one, wanted) for one in _followed(state)),
    )
    return next(filter(None, refusals), None)


def _followed(state: TableState) -> tuple[Definition, ...]:
    """The definitions that the position may belong to, the recorded one first."""
    return _with_begun(state, state.accepted[-1:] or (state.definition,))


def _with_begun(state: TableState, recorded: Sequence[Definition]) -> tuple[Definition, ...]:
    """Also the definition of what is pending, which may be committed: a full refresh has then replaced the rows. If
    nothing else is recorded, also that of an abandoned intent."""
    known = tuple(filter(None, recorded))
    begun = state.pending if known else state.intent
    return known if begun is None or begun.definition in known else (*known, begun.definition)


def _refusal_of_rows(
    state: TableState, recorded: Definition, wanted: Definition, target: TableInfo | None
) -> str | None:
    before, mode = recorded.get("mode"), wanted["mode"]
    if mode == "scd2" and before != "scd2":
        return "the target holds no history to continue"
    if mode == "scd2" and not has_same_key(recorded, wanted["key"]):
        return "the history has another key"
    if mode == "scd2" and begins_otherwise(recorded, wanted):
        return f"the versions of the history have other times (valid_from: {recorded['valid_from']})"
    if before == "scd2" and mode in ("append", "merge"):
        return "the target holds a history, with several rows of one key"
    if mode in ("merge", "scd2") and _is_continued(state, recorded, wanted, target):
        why = _not_one_row_per_key(state, recorded, wanted) if mode == "merge" else None
        if why := why or _other_keys(recorded, wanted):
            return why
    return None


def _refusal_of_position(state: TableState, recorded: Definition, wanted: Definition) -> str | None:
    if of_stream(wanted) and (misses_changes(recorded, wanted) or _is_another(recorded, wanted)):
        return "the stream does not have what happened in between"
    if wanted["mode"] == "append" and _position_is_lost(recorded, wanted, state.position):
        return "how far the target has come under the new definition is not known; give it with --position"
    return None


def continued(state: TableState, wanted: Definition) -> TableState:
    """Returns ``state`` without what belongs to a previous cursor, topic or target: rows are then read again from the
    beginning, and a new target is created."""
    recorded = next(iter(_followed(state)), wanted)
    moved = recorded.get("to", wanted["to"]) != wanted["to"]
    if moved:
        state = replace(state, target_id="", target_version=None, target_columns=())
    is_other = of_topic(wanted) and _is_another(recorded, wanted)
    if moved or is_other or recorded.get("cursor", wanted["cursor"]) != wanted["cursor"]:
        state = replace(state, position=None)
    return state


def accepted(document: StateDocument, table_id: str, wanted: Definition) -> StateDocument:
    """``document``, in which the table continues under ``wanted``: until a run has committed, the plan stops for any
    other definition."""
    state = document.table(table_id)
    document = documents.with_table(document, table_id, continued(state, wanted))
    return documents.with_definition_accepted(document, table_id, (*written_under(state), wanted))


def with_columns_accepted(
    state: TableState, wanted: Definition, table: TableSpec, source: TableInfo | None
) -> TableState:
    """Returns ``state`` with those file columns added to its schema for which the plan stops because one may be the new
    name of a protected column: accepting declares that none is. Only if nothing else is being accepted, so that nobody
    accepts columns that no plan has reported. Columns that appear later are not accepted."""
    if source is None or not state.schema or state.pending or ((last := current(state)) and differences(last, wanted)):
        return state
    *_, names = perhaps_renamed(table, source, state) or ("", "", ())
    return replace(state, schema=(*state.schema, *(column for column in source.columns if column.name in names)))


def _is_continued(state: TableState, recorded: Definition, wanted: Definition, target: TableInfo | None) -> bool:
    """Whether the target keeps its rows: it is the same, also under a new name."""
    if recorded.get("to", wanted["to"]) == wanted["to"]:
        return True
    return target is not None and same_identity(target.identity, state.target_id)


def _not_one_row_per_key(state: TableState, recorded: Definition, wanted: Definition) -> str | None:
    """Why a merge could leave several rows of one key. A wider key still distinguishes all rows, provided that they
    have its columns. What an older flowctl did not record has not changed."""
    key, mode = wanted["key"], recorded.get("mode", "merge")
    if mode != "merge":
        return f"the target was filled with mode {mode} and may hold several rows of one key"
    before, columns = recorded.get("key", key), {column.name for column in state.target_columns}
    if lost := [name for name in before if name not in key]:
        return f"the rows of the target are distinct by {quoted(before)}, and the new key lacks {quoted(lost)}"
    new = [name for name in key if name not in before]
    if columns and (missing := [name for name in new if name not in columns]):
        return f"the rows of the target have no {quoted(missing)}"
    return None


def _other_keys(recorded: Definition, wanted: Definition) -> str | None:
    """Why no later row could have the key of one that is there, which would then stay as it is."""
    made = [name for name in recorded.get("key", wanted["key"]) if _rules_of(recorded, name) != _rules_of(wanted, name)]
    return f"the rows of the target have other values of {quoted(made)}, which is part of the key" if made else None


def _rules_of(definition: Definition, name: str) -> tuple[Any, Any]:
    """What computes or masks the values of a target column. Its source column may have a new name."""
    rules = definition.get("columns", {})
    renamed = {new: old for old, new in rules.get("rename", {}).items()}
    return rules.get("add", {}).get(name), rules.get("mask", {}).get(renamed.get(name, name))


def _is_another(recorded: Definition, wanted: Definition) -> bool:
    """Whether the changes are those of another table than before, or the messages those of another topic. A connection
    under another name may lead to the same one, which an equal identity proves."""
    before, now = recorded.get("source_identity", ""), wanted["source_identity"]
    if recorded.get("from") == wanted["from"]:
        return bool(before and now and not same_identity(before, now))
    is_renamed = _without_connection(recorded.get("from")) == _without_connection(wanted["from"])
    return not (is_renamed and before and before == now)


def _without_connection(source: Any) -> Any:
    return {**source, "connection": ""} if isinstance(source, Mapping) else source


def _position_is_lost(recorded: Definition, wanted: Definition, position: Position | None) -> bool:
    """Whether append has no valid position. A new target needs none: it is filled from the beginning."""
    if recorded.get("to", wanted["to"]) != wanted["to"]:
        return False
    if of_topic(wanted):
        return _is_another(recorded, wanted)
    if recorded.get("cursor", wanted["cursor"]) != wanted["cursor"]:
        return True
    return wanted["cursor"] is not None and not isinstance(position, CursorPosition)
