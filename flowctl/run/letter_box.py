"""The dead letters of a flow's tables, for `flowctl dlq`: read by an engine, which starts only if there are any."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowctl.connectors import registry
from flowctl.connectors.base import OpenContext
from flowctl.connectors.target import Target
from flowctl.errors import UsageError
from flowctl.observe.asking import Connections
from flowctl.plan.planning import resolve_listed
from flowctl.resolve.places import letters_of
from flowctl.resolve.resolve import PlanOptions
from flowctl.run import letters
from flowctl.run.engine import engine_for
from flowctl.run.failure import translate
from flowctl.run.quarantine import Place
from flowctl.spec.spec import Spec, TableSpec
from flowctl.state.document import StateDocument, TableState
from flowctl.state.location import flow_url, open_flow
from flowctl.state.runs import new_run_id
from flowctl.state.store import StateStore
from flowctl.storage.buffer import Buffer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class LetterBox:
    """The dead letters of one table that no run has read again; ``frame`` None: it has never had any, or sends them to
    a topic (``is_topic``), which is not read back."""

    table: TableSpec
    state: TableState
    frame: DataFrame | None
    is_topic: bool = False

    @property
    def name(self) -> str:
        return str(letters_of(self.table))

    def counts(self) -> list[tuple[str, str, int]]:
        """Kind of error, reason and number, the most frequent first."""
        return self._asked(letters.count_by_reason) or []

    def newest(self, limit: int) -> list[dict[str, Any]]:
        """Whole letters, by the names of their columns."""
        return self._asked(lambda frame: letters.newest(frame, limit)) or []

    def _asked(self, question: Callable[[DataFrame], list[Any]]) -> list[Any]:
        if self.frame is None:
            return []
        try:
            return question(self.frame)
        except Exception as cause:
            raise translate(cause, self.table.mark, self.name) from cause


@contextmanager
def open_boxes(
    spec: Spec, select: tuple[str, ...], verbose: bool, say: Callable[[str], None]
) -> Iterator[list[LetterBox]]:
    """Those of the selected tables, readable while the context is open. Raises ``UsageError`` if none of the tables
    keeps dead letters."""
    document = StateStore(open_flow(spec)).read()
    with ExitStack() as stack:
        with Connections(spec) as connections:
            resolved, _ = resolve_listed(spec, PlanOptions(select=select), connections)
        tables = [one for one in resolved.tables if one.id in resolved.selected and one.dead_letters is not None]
        if not tables:
            what = f"{select[0]} keeps no dead letters" if select else "no table of this flow keeps dead letters"
            raise UsageError(what, hint="Add `dead_letters: {}` to a table that reads a topic")
        engine = stack.enter_context(engine_for(spec, tables, {}, verbose, say))
        buffer = stack.enter_context(Buffer(flow_url(spec), new_run_id(), spec.storage))
        context = OpenContext(spec.storage, spec.base_dir, buffer)
        names = dict.fromkeys(letters_of(table).connection for table in tables)
        targets = {name: stack.enter_context(registry.open(spec.connections[name], context)).target for name in names}
        yield [
            _box(table, document, targets[letters_of(table).connection], lambda: engine.session("dlq"))
            for table in tables
        ]


def _box(
    table: TableSpec, document: StateDocument, target: Target | None, session: Callable[[], SparkSession]
) -> LetterBox:
    state = document.table(table.id)
    assert target is not None, "validate has refused targets that cannot be written"
    if target.is_log:
        return LetterBox(table, state, None, is_topic=True)
    place = Place(target, letters_of(table).object, letters.SIDECAR)
    return LetterBox(table, state, letters.stored_letters(session, place, table, document.lineage, state.passed))
