"""A table that had another id for a while: what was appended to its target under that one is not recorded under its
own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowctl.model.position import Position, describe
from flowctl.model.table_info import same_identity
from flowctl.spec.spec import TableSpec
from flowctl.state.document import StateDocument, TableState

if TYPE_CHECKING:
    from flowctl.plan.case import Case


@dataclass(frozen=True)
class OtherId:
    """``last_run`` is its last one, which came to ``position``: None if that was forgotten."""

    id: str
    last_run: str
    position: Position | None

    def told(self, target: object) -> str:
        reached = f", up to {describe(self.position)}" if self.position is not None else ""
        return f"{self.id} has appended to {target} since{reached}"


def left_behind(tables: Iterable[TableSpec], document: StateDocument) -> dict[str, TableState]:
    """The recorded tables that write to their target no more: the spec has none of their id, or with another `to`."""
    now = {table.id: str(table.target) for table in tables}
    return {
        id: state
        for id, state in document.tables.items()
        if state.target_id and state.last_run and (id not in now or state.definition.get("to", now[id]) != now[id])
    }


def appended_since(case: Case) -> OtherId | None:
    """The id under which the same source was appended to this target after this table's last run."""
    target, own = case.observed.target, case.state.last_run or ""
    if target is None or case.table.mode != "append":
        return None
    found = [
        OtherId(id, state.last_run, state.position)
        for id, state in case.left.items()
        if id != case.table.id
        and state.last_run is not None
        and state.last_run > own
        and same_identity(state.target_id, target.identity)
        and _have_one_source(state.definition, case.definition)
    ]
    return max(found, key=lambda one: one.last_run, default=None)


def _have_one_source(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Or may have: a reset table has no definition."""
    identities = one.get("source_identity", ""), other.get("source_identity", "")
    return not one or one["from"] == other["from"] or ("" not in identities and same_identity(*identities))
