"""What was recorded of a table with an earlier commit, as far as the state log still has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from flowctl.errors import AbortRun
from flowctl.model.commit import Commit, commit_name
from flowctl.state.document import StateDocument, TableState
from flowctl.state.store import StateStore


@dataclass(frozen=True)
class Former:
    """``states`` have the definitions that the table may have had when it was committed, most likely ones first.
    ``is_known``: it is the first one. Otherwise the log has no document of that commit, and they are those of the
    nearest later and the nearest earlier one."""

    states: tuple[TableState, ...]
    is_known: bool


def former_state(store: StateStore, lineage: str, origins: Sequence[Commit]) -> Former:
    """``origins`` are commits with the same content, newest first: the first that the log has counts. Reads documents
    back to the first one that is older than all of them."""
    committed: dict[str, TableState] = {}
    begun: dict[str, TableState] = {}
    later: TableState | None = None
    earlier: TableState | None = None
    for document in _newest_first(store, lineage):
        state = document.table(origins[0].table)
        if (intent := state.intent) is not None:
            begun[commit_name(intent.seq, intent.id)] = replace(state, definition=intent.definition)
        if state.definition:
            committed[commit_name(state.seq, state.intent_id)] = state
            later = state if state.seq > origins[0].seq else later
            earlier = state if state.seq < origins[-1].seq else None
        if earlier is not None:
            break
    for one in origins:
        if (known := committed.get(one.name) or begun.get(one.name)) is not None:
            return Former((known,), is_known=True)
    return Former(tuple(one for one in (later, earlier) if one is not None), is_known=False)


def former_of_target(store: StateStore, lineage: str, table_id: str, is_it: Callable[[str], bool]) -> TableState | None:
    """The newest state of the table in which its target was the one whose id ``is_it`` knows."""
    states = (document.table(table_id) for document in _newest_first(store, lineage))
    return next((one for one in states if one.definition and is_it(one.target_id)), None)


def _newest_first(store: StateStore, lineage: str) -> Iterator[StateDocument]:
    """The documents of ``lineage``, back to one that cannot be read."""
    for version in store.history():
        try:
            document = store.read_serial(version.serial)
        except AbortRun:
            return
        if document.lineage == lineage:
            yield document
