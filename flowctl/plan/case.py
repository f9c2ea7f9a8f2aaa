"""One table of the plan with everything known about it when its step is decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from flowctl.connectors.target import TargetRules
from flowctl.model import reserved
from flowctl.model.backfill import Backfill
from flowctl.model.commit import Intent
from flowctl.model.sidecars import OBSERVED
from flowctl.model.step import StreamStep
from flowctl.model.table_info import Column, TableInfo
from flowctl.observe.world import Observed
from flowctl.plan.commands import state_command
from flowctl.plan.definition import begins_otherwise, definition, has_same_key
from flowctl.plan.projection import read_columns
from flowctl.plan.upstream import has_changed
from flowctl.spec.spec import ObjectSource, ReportedDeletes, SqlSource, TableSpec
from flowctl.state.document import TableState


@dataclass(frozen=True)
class Case:
    """For each table that this one reads: ``upstream`` holds its step in this plan, ``upstream_columns`` the columns to
    be found there (:func:`flowctl.plan.upstream.columns_found`), ``sequences`` its sequence number after this plan is
    applied (0: never loaded). ``ddl`` is None only if the target was not observed. ``shared`` describes a conflict over
    the target's place (empty: none), ``owner`` is the other table whose target this one is, by what is recorded
    (empty: none), ``left`` the recorded tables that write to their targets no more, ``refused_name`` why the table's
    name is refused and what to do. ``spec_path`` is the spec as named in commands in hints. ``undecoded``: the form in
    which source and target, being of one kind, can exchange rows without decoding them; empty if there is none.
    ``resnapshots``: the table of a stream is read in full, though its target exists. ``backfill``: the range that is
    read, instead of what is new."""

    table: TableSpec
    observed: Observed
    state: TableState
    ddl: TargetRules | None
    full_refresh: bool = False
    backfill: Backfill | None = None
    upstream: Mapping[str, StreamStep] = field(default_factory=dict)
    upstream_columns: Mapping[str, Sequence[Column]] = field(default_factory=dict)
    sequences: Mapping[str, int] = field(default_factory=dict)
    spec_path: str = ""
    spark_url: str = "local[*]"
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    undecoded: str = ""
    resnapshots: bool = False
    shared: str = ""
    owner: str = ""
    left: Mapping[str, TableState] = field(default_factory=dict)
    refused_name: tuple[str, str] | None = None

    @property
    def rules(self) -> TargetRules:
        assert self.ddl is not None, "stops has dealt with targets that were not observed"
        return self.ddl

    @property
    def is_sql(self) -> bool:
        return isinstance(self.table.source, SqlSource)

    @property
    def is_glob(self) -> bool:
        """Whether the source is a glob of files, which may match many objects or none."""
        return isinstance(self.table.source, ObjectSource) and self.table.source.is_glob

    @property
    def may_match_nothing(self) -> bool:
        return self.is_glob and self.table.allow_none

    @cached_property
    def definition(self) -> dict[str, object]:
        return definition(self.table, self.observed.source)

    @cached_property
    def makes_other_types(self) -> bool:
        """Whether the columns of a SQL table or of ``columns.add`` may have other types than the recorded ones."""
        if self.full_refresh or self.begun_refresh is not None:
            return True
        source, observed = self.table.source, self.observed.source
        if isinstance(source, SqlSource):
            return has_changed(source, self.state.upstream_shape, self.upstream_columns)
        if observed is None:
            return False
        now = {column.name: column.type for column in read_columns(self.table, observed.columns)}
        return any(now.get(before.name, before.type) != before.type for before in self.state.schema)

    @property
    def pending(self) -> bool:
        """Whether a pending sequence number must be finished before a new one starts."""
        return self.state.intent is not None and not self.state.given_up and not self.full_refresh

    @property
    def begun(self) -> Intent | None:
        """The intent of the pending sequence number that is finished first."""
        return self.state.intent if self.pending else None

    @property
    def begun_refresh(self) -> Intent | None:
        """:attr:`begun`, if it is a full refresh. An older flowctl recorded only that the content is replaced."""
        begun = self.begun
        if begun is None or not (begun.refresh or (begun.replaces and self.table.mode != "truncate")):
            return None
        return begun

    @property
    def is_committed(self) -> bool:
        """Whether the target carries the pending sequence number and only state lacks it."""
        commit, intent = self.observed.commit, self.state.intent
        return intent is not None and commit is not None and (commit.seq, commit.intent_id) == (intent.seq, intent.id)

    @property
    def rebuilds(self) -> bool:
        """Whether a full refresh replaces all content, so that no old value prevents a new type."""
        return self.replaces and (self.full_refresh or self.begun_refresh is not None)

    @property
    def replaces(self) -> bool:
        """Whether the target's whole content is replaced. scd2 keeps its history even in a full refresh, provided that
        it has the same key and its versions begin at the same times."""
        if self.begun is not None:
            return self.begun.replaces or self.table.mode == "truncate"
        if self.table.mode == "scd2":
            return self.full_refresh and self.lacks_history
        if self.resnapshots and not self.full_refresh:
            is_hard = isinstance(self.table.deletes, ReportedDeletes) and self.table.deletes.action == "hard"
            return self.table.mode == "merge" and is_hard
        return self.table.mode == "truncate" or self.full_refresh

    @property
    def lacks_history(self) -> bool:
        """Whether the target of an scd2 table does not hold its history: it has rows of another mode, or a history with
        another key or whose versions begin at other times."""
        target, recorded = self.observed.target, self.state.definition
        if self.table.mode != "scd2" or target is None:
            return False
        if recorded and (recorded.get("mode") != "scd2" or not has_same_key(recorded, self.table.key)):
            return True
        if any(begins_otherwise(one, self.definition) for one in self._written_under):
            return True
        sidecar = self.observed.sidecars.get(OBSERVED)
        if sidecar is not None and _has_another_key(sidecar, target, self.table.key):
            return True  # also if state has no definition: it was reset, or the target was adopted
        return not {column.name for column in target.columns} >= reserved.HISTORY

    @property
    def _written_under(self) -> tuple[Mapping[str, object], ...]:
        """The definitions that rows of the target may have been written under."""
        pending = (self.state.pending.definition,) if self.state.pending is not None else ()
        return (self.state.definition, *self.state.accepted[:-1], *pending)

    def state_command(self, verb: str, *options: str) -> str:
        """``flowctl state <verb>`` for this spec and table, for use in a hint."""
        return state_command(verb, self.spec_path, self.table.id, *options)


def _has_another_key(sidecar: TableInfo, target: TableInfo, key: Sequence[str]) -> bool:
    """Whether the observations have another key, whose columns come first. Delta keeps the columns of an earlier key
    and adds new ones at the end; in that case either may be the key."""
    names = [column.name.lower() for column in sidecar.columns]
    if "_event_at" not in names:
        return False
    at, wanted, there = (
        names.index("_event_at"),
        {name.lower() for name in key},
        {c.name.lower() for c in target.columns},
    )
    first, added = (
        {name for name in part if name in there and not reserved.is_taken_for_key(name)}
        for part in (names[:at], names[at:])
    )
    return not wanted <= first | added if added else wanted != first
