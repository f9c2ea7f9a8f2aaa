"""Applies what has landed, round after round: to all tables of a stream at once, and alone to those that lag behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from flowctl import crashpoints
from flowctl.model.step import Advance
from flowctl.model.table_info import ObjectName
from flowctl.observe.relations import relation
from flowctl.run import events
from flowctl.run.attempt import TableResult
from flowctl.run.opening import open_target
from flowctl.run.streaming import cuts
from flowctl.run.streaming.rounds import Round, plan_round
from flowctl.spec.spec import StreamSpec, TableSpec
from flowctl.state.document import StreamState
from flowctl.state.streams import applied, with_apart, without_positions
from flowctl.storage.landing import LandedBatch

if TYPE_CHECKING:
    from flowctl.run.streaming.stream_run import StreamRun


@dataclass
class Rounds:
    """``failed`` are the tables that take no changes in the rest of this pass. ``has_dropped``: some wait to be read in
    full again. ``is_outdated``: some wait for another plan, which knows their columns."""

    on: StreamRun
    failed: set[str] = field(default_factory=set)
    has_dropped: bool = False
    is_outdated: bool = False
    _cuts: dict[str, cuts.Cuts] = field(default_factory=dict)

    def can_go_on(self) -> bool:
        """Whether the other tables go on. Those that a failed one has never been consistent with do."""
        if self.on.stream.on_table_error == "detach":
            return True
        return not any(self._number(id) is not None for id in self.failed)

    def catch_up(self) -> bool:
        """Brings tables that lag behind to where the stream is; those that lag equally, together. Returns whether the
        stream can go on."""
        while self.can_go_on():
            numbers = {table.id: self._number(table.id) for table in self._taking_part(apart=True)}
            behind = {id: number for id, number in numbers.items() if number is not None}
            if not behind:
                return True
            lowest, stream = min(behind.values()), self._stream
            tables = [table for table in self.on.tables if behind.get(table.id) == lowest]
            taken = self._fitting(self.on.log.between(lowest, stream.applied), tables)
            done = self._take(tables, taken)
            self.on.change(with_apart(stream, {**stream.apart, **dict.fromkeys(done, taken[-1].batch)}))
        return False

    def apply(self, newest: LandedBatch) -> bool:
        """One round: as much of what has landed as one commit takes. Returns whether the stream can go on."""
        if not self.can_go_on():
            return False
        stream = self._stream
        tables = self._taking_part(apart=False)
        taken = self._fitting(self.on.log.between(stream.applied, newest.batch), tables)
        done = self._take(tables, taken)
        if not self.can_go_on():
            return False
        crashpoints.reached("round_committed")
        self._write_cuts(done, taken[-1])
        behind = {table.id: stream.applied for table in self.on.everyone if self._falls_behind(table, done, taken)}
        self.on.change(with_apart(replace(stream, applied=taken[-1].batch), {**behind, **stream.apart}))
        return True

    def _fitting(self, batches: Sequence[LandedBatch], tables: Sequence[TableSpec]) -> list[LandedBatch]:
        """As many of the first batches as one commit takes. A round has the columns of all its batches: one in which a
        column is gone begins another, whose changes do not have it."""
        taken = fitting(batches, self.on.stream)
        objects, before = {relation(table).object for table in tables}, dict[ObjectName, set[str]]()
        for at, batch in enumerate(taken):
            landed = [table for table in batch.tables if table.object in objects]
            shapes = [self.on.log.shape(digest) for table in landed for digest in table.shapes.values()]
            there = [
                (one.object, {column.name for column in one.columns})
                for one in shapes
                if not (one.ended or one.converted)
            ]
            if any(before.get(object, set()) - names for object, names in there):
                return taken[:at]
            for object, names in there:
                before.setdefault(object, set()).update(names)
        return taken

    def _take(self, tables: Sequence[TableSpec], taken: Sequence[LandedBatch]) -> list[str]:
        """The tables that now have these batches."""
        made = plan_round(self.on, tables, taken)
        self._tell(made)
        self._has_ended(made.stopped)
        self.on.results.add(made.stopped)
        if not self.can_go_on():
            return []
        if made.again:
            self.has_dropped = True
            self.on.writer.change(lambda document: without_positions(document, made.again)).result()
        done = self.on.carry_out(made.steps, taken[-1].event_at, is_round=True) if made.steps else []
        self._has_ended(done)
        if committed := [result for result in done if result.ok]:
            seconds = max(result.seconds for result in committed)
            last, name = taken[-1], self.on.stream.name
            self.on.run.listener(events.RoundCommitted(name, last.batch, str(last.upper), len(committed), seconds))
        return [table.id for table in tables if table.id not in self.failed and table.id not in made.again]

    def _tell(self, made: Round) -> None:
        """What the plan that was shown does not say: of a stream that is followed, none was."""
        listener, is_followed = self.on.run.listener, self.on.follow is not None
        shown = {} if is_followed else {step.id: step.notes for step in self.on.plan.steps if isinstance(step, Advance)}
        for step in made.steps:
            for note in step.notes:
                if note not in shown.get(step.id, ()):
                    listener(events.TableNoted(step.id, note))
        for result in made.stopped:
            if is_followed and result.error is not None:
                listener(events.TableFailed(result.step.id, result.error, result.seconds))

    def _has_ended(self, results: Sequence[TableResult]) -> None:
        self.failed |= {result.step.id for result in results if not result.ok}

    def _taking_part(self, *, apart: bool) -> list[TableSpec]:
        return [
            table
            for table in self.on.tables
            if table.id not in self.failed
            and self._number(table.id) is not None
            and (table.id in self._stream.apart) == apart
        ]

    def _falls_behind(self, table: TableSpec, done: Sequence[str], taken: Sequence[LandedBatch]) -> bool:
        """Whether the table does not have changes of these batches that the others have."""
        number, object = self._number(table.id), relation(table).object
        if number is None or object is None or table.id in done or table.id in self._stream.apart:
            return False
        return any(batch.batch > number and batch.table(object) is not None for batch in taken)

    def _write_cuts(self, done: Sequence[str], last: LandedBatch) -> None:
        """Names the versions that show one moment, where tables are committed one by one."""
        versions, document, run = self._versions(done), self.on.document, self.on.run
        tables = [table for table in self.on.tables if table.id in versions]
        with ExitStack() as stack:
            for name, its in by_connection(tables).items():
                folder = open_target(stack, run, its[0]).cuts_folder()
                if folder is None:
                    continue
                there = {one.id: (one.target.parts, versions[one.id], document.table(one.id).seq) for one in its}
                found = {id: cuts.CutTable(*one) for id, one in there.items()}
                kept = self._cuts.setdefault(name, cuts.Cuts(run.spec, folder, document.lineage, self.on.stream.name))
                kept.write(cuts.new_cut(self.on.stream.name, document.lineage, last, found))
                crashpoints.reached("after_cut")

    def prune(self) -> None:
        """Removes old cuts."""
        for one in self._cuts.values():
            one.prune()

    def _versions(self, ids: Sequence[str]) -> Mapping[str, int]:
        """The newest version of each table that has one. One that nothing was committed to in this pass may have been
        compacted since: then the plan has seen a newer one with the same rows."""
        found = {}
        for id in ids:
            recorded, planned = self.on.document.table(id).target_version, self.on.run.steps.get(id)
            seen = planned.table.seen.version if planned else None
            known = [version for version in (recorded, seen) if version is not None]
            if known:
                found[id] = max(known)
        return found

    def _number(self, id: str) -> int | None:
        return applied(self.on.document, id)

    @property
    def _stream(self) -> StreamState:
        return self.on.document.stream or StreamState()


def by_connection(tables: Sequence[TableSpec]) -> dict[str, list[TableSpec]]:
    found: dict[str, list[TableSpec]] = {}
    for table in tables:
        found.setdefault(table.target.connection, []).append(table)
    return found


def fitting(batches: Sequence[LandedBatch], stream: StreamSpec) -> list[LandedBatch]:
    """As many of the first batches as one commit takes; at least one."""
    taken: list[LandedBatch] = []
    changes = size = 0
    for batch in batches:
        changes, size = changes + batch.changes, size + batch.bytes
        if taken and (changes > stream.batch_rows or size > stream.batch_bytes):
            break
        taken.append(batch)
    return taken
