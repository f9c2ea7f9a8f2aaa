"""The plan: a frozen list of steps in DAG order. `plan` renders it, `apply` executes the same list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from flowctl.diagnostics import Mark
from flowctl.model.interval import Interval
from flowctl.model.projection import ProjectedColumn
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column, RowEstimate

StepAction = Literal["create", "change", "none", "stop", "recover", "removed"]
#: Actions that a run carries out.
RUNNABLE: tuple[StepAction, ...] = ("create", "change", "recover")
Mode = Literal["append", "truncate", "merge", "scd2"]
Via = Literal["direct", "staged"]
CheckTime = Literal["plan", "commit"]
CheckResult = Literal["passed", "failed", "pending"]
#: Why a step stops: a guard or policy (exit 6), something that could not be observed (exit 4), a table it needs.
StoppedBy = Literal["policy", "error", "dependency"]


@dataclass(frozen=True)
class Check:
    """One guard or expectation. ``pending`` ones are decided before the commit, on the staged rows."""

    name: str
    at: CheckTime
    result: CheckResult
    detail: str = ""

    def to_json(self) -> dict[str, str]:
        return dict(vars(self))


@dataclass(frozen=True)
class Step:
    """One table of the run, complete: nothing is looked up again when it is executed.

    ``source`` and ``target`` are ``connection:object`` as people write it. ``source_columns`` are the columns as
    they will be read, ``target_columns`` what the target will have once ``schema`` is applied, in the target's order
    (flowctl's own columns such as ``valid_from`` included). ``definition`` is what state records to notice that the
    spec says something else. ``state_before`` and ``state_after`` are ``{"seq", "position"}`` for people.
    ``target_version`` is the version the plan was made against, ``target_shape`` the digest of its columns, and
    ``target_commit`` names the commit that it carried (empty: none): a saved plan is refused when one of them moved.
    A plan that an older flowctl saved does not say the latter two.
    ``write_full`` says the whole content is replaced (truncate, full refresh of append and merge). ``refresh``: a full
    refresh, asked for now or by the run whose number is finished. ``follows`` is the begun number of the same table
    that the step before this one finishes: this one begins once that is recorded.
    ``projection`` is the frame to write, in target order and without flowctl's own columns. ``statements`` is the
    DDL to run before the write, in order: it makes the table, or makes the changes in ``schema``.
    ``record_only``: the target already carries the pending intent's commit, only state is fixed. A pending intent
    in state with a lower number than ``seq`` is given up: its void is committed first. ``how`` says for people what
    was chosen and why; nothing is decided by it.
    """

    id: str
    action: StepAction
    reason: str
    mark: Mark
    source: str
    target: str
    mode: Mode
    key: tuple[str, ...] = ()
    seq: int = 0
    interval: Interval | None = None
    rows: RowEstimate = RowEstimate()
    schema: tuple[SchemaChange, ...] | None = ()
    source_columns: tuple[Column, ...] = ()
    target_columns: tuple[Column, ...] = ()
    projection: tuple[ProjectedColumn, ...] = ()
    statements: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    needs: tuple[str, ...] = ()
    via: Via = "direct"
    target_exists: bool = False
    target_id: str = ""
    target_version: int | None = None
    target_shape: str | None = ""
    target_commit: str | None = ""
    definition: Mapping[str, Any] = field(default_factory=dict)
    state_before: Mapping[str, Any] | None = None
    state_after: Mapping[str, Any] | None = None
    write_full: bool = False
    refresh: bool = False
    follows: int | None = None
    check_deletes: bool = False
    notes: tuple[str, ...] = ()
    hint: str = ""
    record_only: bool = False
    stopped_by: StoppedBy | None = None
    how: tuple[str, ...] = ()

    @property
    def recorded_columns(self) -> tuple[Column, ...]:
        """What state records of ``target_columns``: all but those of others, which a target that is replaced with its
        columns gets as nulls."""
        others = {change.column for change in self.schema or () if change.change == "drift" and change.old is None}
        nulls = {part.column.name for part in self.projection if part.is_absent} & others
        return tuple(column for column in self.target_columns if column.name not in nulls)


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

    @property
    def recorded(self) -> Plan:
        """As run records keep it: the files that were read are in their log."""
        steps = (replace(step, interval=step.interval and step.interval.recorded) for step in self.steps)
        return replace(self, steps=tuple(steps))

    def count(self, *actions: StepAction) -> int:
        return sum(step.action in actions for step in self.steps)
