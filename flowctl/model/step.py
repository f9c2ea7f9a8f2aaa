"""The plan: a frozen list of steps in DAG order. `plan` renders it, `apply` executes the same list.

A step is one of the kinds in :data:`Step`, and each kind holds exactly what it needs. Code that interprets steps uses
`match`, so that the type checker finds every place that misses a new kind. Executing a step looks nothing up again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, assert_never

from flowctl.diagnostics import Mark
from flowctl.model.codec import in_json
from flowctl.model.effects import Effects
from flowctl.model.interval import Interval
from flowctl.model.mode import Mode
from flowctl.model.position import Position
from flowctl.model.projection import Columns, RuntimeColumns
from flowctl.model.schema_change import SchemaChange
from flowctl.model.slices import count_slices
from flowctl.model.table_info import RowEstimate

Via = Literal["direct", "staged", "undecoded"]
CheckTime = Literal["plan", "commit"]
CheckResult = Literal["passed", "failed", "pending"]
#: Why a step stops: a guard or policy (exit 6), something that could not be observed (exit 4), a stopped dependency.
StoppedBy = Literal["policy", "error", "dependency"]


@dataclass(frozen=True)
class Check:
    """One guard or expectation. ``pending`` ones are evaluated before the commit, on the staged rows."""

    name: str
    at: CheckTime
    result: CheckResult
    detail: str = ""


@dataclass(frozen=True)
class Progress:
    """A table's last sequence number (0: none) and its position."""

    seq: int = 0
    position: Position | None = None


@dataclass(frozen=True)
class SeenTarget:
    """The target as observed by the plan: a saved plan is refused if it has changed since. ``id`` is the table's
    identity, ``version`` its own version, ``shape`` the digest of its columns, ``commit`` the name of the commit it
    carries (empty: none). In a plan saved by an older flowctl the latter two may be None: unknown."""

    exists: bool = field(default=False, metadata=in_json(name="target_exists"))
    id: str = field(default="", metadata=in_json(name="target_id"))
    version: int | None = field(default=None, metadata=in_json(name="target_version"))
    shape: str | None = field(default="", metadata=in_json(name="target_shape"))
    commit: str | None = field(default="", metadata=in_json(name="target_commit"))


@dataclass(frozen=True, kw_only=True)
class PlannedTable:
    """The table of a step. ``mark`` is the place in the spec that the step refers to. ``source`` and ``target`` are
    ``connection:object`` as written in the spec, ``needs`` the tables of this plan that must run first. ``definition``
    is recorded in state to detect changes of the spec. ``via``: how the rows
    reach the target: straight from the source, from the buffer, or as the source sends them
    (:mod:`flowctl.connectors.undecoded`). ``progress`` is what state currently records; None for a pattern
    whose tables could not be listed."""

    id: str
    mark: Mark = field(metadata=in_json(name="source"))
    source: str = field(metadata=in_json(name="from"))
    target: str = field(metadata=in_json(name="to"))
    mode: Mode
    key: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    via: Via = "direct"
    definition: Mapping[str, Any] = field(default_factory=dict)
    progress: Progress | None = field(default=None, metadata=in_json(name="state_before"))
    seen: SeenTarget = field(default=SeenTarget(), metadata=in_json("inline"))


@dataclass(frozen=True, kw_only=True)
class _TableStep:
    """``reason`` explains, for display, why this is the table's step."""

    table: PlannedTable = field(metadata=in_json("inline"))
    reason: str

    @property
    def id(self) -> str:
        return self.table.id


@dataclass(frozen=True, kw_only=True)
class _Numbered(_TableStep):
    """``interval`` belongs to sequence number ``seq``."""

    seq: int
    interval: Interval

    @property
    def key(self) -> tuple[str, int]:
        """Unique within a plan."""
        return self.table.id, self.seq


@dataclass(frozen=True, kw_only=True)
class _Transfer(_Numbered):
    """Commits the interval to the target. ``write_full``: the whole content is replaced (truncate, full refresh of
    append and merge). ``refresh``: a full refresh was requested. ``check_deletes``: detects keys that the source no
    longer has. For display only: ``destructive`` describes what a full refresh replaces (empty: nothing exists yet),
    ``how`` what was chosen and why, ``notes`` are warnings. ``effects`` is the result of a dry run, if one was
    requested. ``continues``: the same run commits more of the table after this."""

    columns: Columns | RuntimeColumns = field(metadata=in_json("inline"))
    rows: RowEstimate = RowEstimate()
    checks: tuple[Check, ...] = ()
    write_full: bool = False
    refresh: bool = field(default=False, metadata=in_json("since"))
    check_deletes: bool = False
    destructive: str = field(default="", metadata=in_json("not_default"))
    notes: tuple[str, ...] = ()
    how: tuple[str, ...] = field(default=(), metadata=in_json("since"))
    effects: Effects | None = field(default=None, metadata=in_json("not_default"))
    continues: bool = field(default=False, metadata=in_json("not_default"))


@dataclass(frozen=True, kw_only=True)
class Load(_Transfer):
    """A new sequence number. A pending intent with a lower one is abandoned: its void is committed first. ``follows``
    is the pending sequence number of the same table that the previous step finishes; this step starts once that number
    is recorded. ``batch_rows``: a run takes the interval in several commits (:mod:`flowctl.model.slices`), of which the
    first has the number ``seq``; each takes at most so many messages. None: in one."""

    follows: int | None = field(default=None, metadata=in_json("since"))
    batch_rows: int | None = field(default=None, metadata=in_json("not_default"))

    @property
    def commits(self) -> int:
        return count_slices(self.interval, self.batch_rows)

    @property
    def creates(self) -> bool:
        """Whether the target is created rather than changed."""
        return not self.table.seen.exists


@dataclass(frozen=True, kw_only=True)
class Recover(_Transfer):
    """Retries a sequence number that an earlier run began, with its original interval."""


@dataclass(frozen=True, kw_only=True)
class RecordOnly(_Numbered):
    """A sequence number that an earlier run began and that the target already carries: only state lacks it."""

    columns: Columns = field(metadata=in_json("inline"))
    refresh: bool = field(default=False, metadata=in_json("since"))


@dataclass(frozen=True, kw_only=True)
class UpToDate(_TableStep):
    """Nothing to do. ``columns`` are the current ones; their changes are shown, and applied with the next rows."""

    columns: Columns | RuntimeColumns = field(default=Columns(), metadata=in_json("inline"))
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Stopped(_TableStep):
    """The table must not run. ``hint`` is the next step; ``changes`` and ``checks`` are those that were evaluated,
    including the refused ones. ``follows`` as in :class:`Load`."""

    hint: str
    by: StoppedBy = field(metadata=in_json(name="stopped_by"))
    changes: tuple[SchemaChange, ...] = field(default=(), metadata=in_json(name="schema"))
    checks: tuple[Check, ...] = ()
    follows: int | None = field(default=None, metadata=in_json("since"))


@dataclass(frozen=True, kw_only=True)
class Advance(_TableStep):
    """Takes the changes of its stream, in as many commits as there are batches with changes of it. ``waiting`` counts
    the changes that have landed. ``columns`` are those of the next batch; ``notes`` are warnings."""

    columns: Columns | RuntimeColumns = field(metadata=in_json("inline"))
    waiting: int = 0
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Removed(_TableStep):
    """In state but no longer in the spec: left unchanged."""

    hint: str


#: What a run carries out.
Runnable = Load | Recover | RecordOnly
Step = Runnable | UpToDate | Stopped | Removed
#: A step of a table that reads a change stream may also be an advance.
StreamStep = Step | Advance


def progress_after(step: StreamStep) -> Progress | None:
    """Returns what state records for the table once ``step`` is done."""
    match step:
        case Load():
            return Progress(step.seq + step.commits - 1, step.interval.upper)
        case Recover() | RecordOnly():
            return Progress(step.seq, step.interval.upper)
        case Advance() | UpToDate() | Stopped() | Removed():
            return step.table.progress
        case _:
            assert_never(step)


#: What a run does with a stream: make its reader in the source, take what is new, only capture it, nothing, or stop;
#: ``removed``: no table of the spec reads it any more, but its reader may still be there.
StreamAction = Literal["create", "advance", "capture", "none", "stop", "removed"]


@dataclass(frozen=True, kw_only=True)
class StreamPlan:
    """One change stream, a small flow of its own with its own ``lineage`` and ``serial``.

    ``mark`` is its place in the spec, ``label`` names its reader in the source, ``landed`` the folder of another
    flow's stream that is read instead (empty: none). ``lower`` is the end of the newest captured batch (None: nothing
    was captured yet), ``upper`` the end of the source's log when the plan was made: a run captures up to there.
    ``lower_time`` is that of the last commit before ``lower``, ``upper_time`` the source's clock at ``upper`` (RFC
    3339; empty if unknown). ``batch`` is the number of the newest batch, ``applied`` the one up to which the tables
    have come; ``waiting`` counts the changes in between. ``lag`` and ``retained`` are in bytes, None if unknown.
    ``source_changes`` are statements that the run executes in the source. ``snapshots`` are the ids of tables that
    are read in full first. ``steps`` are those of its tables. ``hint`` is the next step of a stopped stream."""

    name: str
    mark: Mark = field(metadata=in_json(name="source"))
    connection: str
    action: StreamAction
    reason: str
    hint: str = ""
    lineage: str = ""
    serial: int = 0
    label: str = ""
    landed: str = field(default="", metadata=in_json("not_default"))
    lower: Position | None = field(default=None, metadata=in_json(name="from"))
    upper: Position | None = field(default=None, metadata=in_json(name="to"))
    lower_time: str = field(default="", metadata=in_json(name="from_time"))
    upper_time: str = field(default="", metadata=in_json(name="to_time"))
    batch: int = 0
    applied: int = 0
    waiting: int = 0
    lag: int | None = None
    retained: int | None = None
    health: Mapping[str, int | str] = field(default_factory=dict)
    source_changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    steps: tuple[StreamStep, ...] = ()

    @property
    def snapshots(self) -> tuple[Load, ...]:
        """The tables that are read in full, at a moment of the log from which their changes follow."""
        return tuple(step for step in self.steps if isinstance(step, Load))

    @property
    def runs(self) -> bool:
        """Whether a run has something to do for the stream itself."""
        return self.action in ("create", "advance", "capture")


@dataclass(frozen=True)
class Plan:
    flow: str
    lineage: str
    serial: int
    spec_digest: str
    created_at: str
    flowctl: str
    select: tuple[str, ...]
    steps: tuple[Step, ...]
    streams: tuple[StreamPlan, ...] = field(default=(), metadata=in_json("since"))

    @property
    def recorded(self) -> Plan:
        """The form kept in run records: without row values, and without files, which the file log lists."""
        streams = tuple(replace(one, steps=tuple(map(_recorded, one.steps))) for one in self.streams)
        return replace(self, steps=tuple(map(_recorded, self.steps)), streams=streams)

    @property
    def all_steps(self) -> tuple[StreamStep, ...]:
        """Those of the streams' tables included."""
        return (*self.steps, *(step for stream in self.streams for step in stream.steps))

    @property
    def runs(self) -> bool:
        """Whether a run has anything to do."""
        return bool(self.runnable) or any(stream.runs for stream in self.streams)

    @property
    def runnable(self) -> tuple[Runnable, ...]:
        """Of the flow's own tables, in order."""
        return tuple(step for step in self.steps if isinstance(step, Runnable))

    @property
    def taking_part(self) -> tuple[Runnable | Advance, ...]:
        """The steps of tables that a run works on, in its streams too."""
        return (
            *self.runnable,
            *(step for one in self.streams if one.runs for step in one.steps if isinstance(step, Runnable | Advance)),
        )


T = TypeVar("T", bound=StreamStep)


def _recorded(step: T) -> T:
    if isinstance(step, Load | Recover):
        step = replace(step, effects=None)
    return replace(step, interval=step.interval.recorded) if isinstance(step, Runnable) else step
