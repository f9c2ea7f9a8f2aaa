"""From a spec to a plan: resolve, observe, decide. Shared by `plan` and `apply`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar, assert_never

from flowctl.connectors.target import TargetRules
from flowctl.errors import UsageError
from flowctl.model.step import Advance, Check, Load, Plan, RecordOnly, Recover, Removed, Stopped, StreamStep, UpToDate
from flowctl.observe.asking import Connections
from flowctl.observe.discovery import Discovery, discover
from flowctl.observe.observation import observe
from flowctl.observe.world import Observed, World
from flowctl.plan.build import build
from flowctl.plan.confirmation import confirm_writes
from flowctl.plan.stream_keys import with_keys
from flowctl.redaction import REDACTOR
from flowctl.resolve.resolve import PlanOptions, Resolved, resolve
from flowctl.resolve.select import NoTableMatches
from flowctl.spec.names import is_pattern
from flowctl.spec.spec import Spec, TableSpec
from flowctl.spec.suggest import did_you_mean


@dataclass(frozen=True)
class Planned:
    """The plan, the world it was made from, and every table of the flow by id, patterns expanded."""

    plan: Plan
    world: World
    tables: Mapping[str, TableSpec]


def make_plan(spec: Spec, options: PlanOptions) -> Planned:
    """Observes once and plans. Writes nothing, starts no Spark. Raises :class:`SpecError` if the tables are
    inconsistent and :class:`UsageError` if a term matches nothing; an error of a single table is in its step."""
    with Connections(spec) as connections:
        resolved, world = _observe(spec, options, connections)
        tables = {table.id: table for table in resolved.tables}
        plan = confirm_writes(build(spec, resolved, world, options), tables, world, connections.target)
    streams = tuple(replace(one, steps=tuple(map(_without_secrets, one.steps))) for one in plan.streams)
    plan = replace(plan, steps=tuple(map(_without_secrets, plan.steps)), streams=streams)
    return Planned(plan, world, tables)


def resolve_and_observe(spec: Spec, options: PlanOptions) -> tuple[Resolved, World]:
    """Returns the tables of the flow and the world that a plan is made from. Raises as :func:`make_plan`."""
    with Connections(spec) as connections:
        return _observe(spec, options, connections)


def observe_table(spec: Spec, table_id: str) -> tuple[TableSpec, Observed, TargetRules | None]:
    """The table (also one of a pattern), the current state of its source and target, and the target's rules. Raises
    :class:`UsageError` if there is no such table."""
    try:
        resolved, world = resolve_and_observe(spec, PlanOptions(select=(table_id,), estimate="none"))
    except NoTableMatches as error:  # speaks of an option that commands for one table do not have
        hint = did_you_mean(table_id, error.ids, "Choose one of ")
        raise UsageError(f"there is no table {table_id!r}", hint=hint) from error
    observed = world.tables.get(table_id)
    if observed is None:
        raise UsageError(f"{table_id!r} is not the id of one table")
    if observed.error is not None:
        raise observed.error
    table = next(table for table in resolved.tables if table.id == table_id)
    return table, observed, world.ddl.get(table.target.connection)


def _observe(spec: Spec, options: PlanOptions, connections: Connections) -> tuple[Resolved, World]:
    resolved, discovery = resolve_listed(spec, options, connections)
    world = observe(spec, resolved, discovery, connections, options.estimate)
    return with_keys(resolved, world), world


def resolve_listed(spec: Spec, options: PlanOptions, connections: Connections) -> tuple[Resolved, Discovery]:
    """Returns the tables of the flow, with patterns expanded from what the sources list. Raises as
    :func:`make_plan`."""
    has_patterns = any(is_pattern(table.id) for table in spec.tables)  # a term may name one of their tables
    resolved = resolve(spec, {}, None if has_patterns else options)  # refuses what `validate` does, before any query
    discovery = discover(spec, connections)
    try:
        return resolve(spec, discovery.objects, options) if has_patterns else resolved, discovery
    except UsageError as error:  # the term may name a table that could not be listed
        raise next(iter(discovery.failures.values()), error) from error


T = TypeVar("T", bound=StreamStep)


def _without_secrets(step: T) -> T:
    """Redacts the step's display texts, which may quote a driver's message. The values that a run needs are unchanged:
    connectors put no connection options into them."""
    hide = REDACTOR.redact
    step = replace(step, reason=hide(step.reason))
    match step:
        case Load() | Recover():
            notes, how = tuple(map(hide, step.notes)), tuple(map(hide, step.how))
            return replace(step, notes=notes, how=how, checks=_checks_without_secrets(step.checks))
        case UpToDate() | Advance():
            return replace(step, notes=tuple(map(hide, step.notes)))
        case Stopped():
            return replace(step, hint=hide(step.hint), checks=_checks_without_secrets(step.checks))
        case Removed():
            return replace(step, hint=hide(step.hint))
        case RecordOnly():
            return step
        case _:
            assert_never(step)


def _checks_without_secrets(checks: Iterable[Check]) -> tuple[Check, ...]:
    return tuple(replace(check, detail=REDACTOR.redact(check.detail)) for check in checks)
