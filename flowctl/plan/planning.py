"""From a spec to a plan: look, then decide. Shared by `plan` and `apply`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from flowctl.diagnostics import Diagnostic
from flowctl.model.step import Plan, Step
from flowctl.observe.observation import Request as PlanOptions
from flowctl.observe.observation import observe
from flowctl.observe.world import World
from flowctl.plan.build import build
from flowctl.redaction import REDACTOR
from flowctl.spec.spec import Spec, TableSpec

__all__ = ["PlanOptions", "Planned", "make_plan"]


@dataclass(frozen=True)
class Planned:
    """The plan, the world it was made from, and every table of the flow by id, patterns expanded."""

    plan: Plan
    world: World
    tables: Mapping[str, TableSpec]
    warnings: tuple[Diagnostic, ...] = ()


def make_plan(spec: Spec, options: PlanOptions) -> Planned:
    """Reads the world once and plans. Writes nothing, starts no Spark. :class:`SpecError` and :class:`UsageError` when
    the tables do not fit together or a term matches nothing; what is wrong with one table is in its step."""
    world, resolved = observe(spec, options)
    plan = build(spec, resolved, world, options)
    plan = replace(plan, steps=tuple(map(_without_secrets, plan.steps)))
    return Planned(plan, world, {table.id: table for table in resolved.tables}, resolved.warnings)


def _without_secrets(step: Step) -> Step:
    """What the step says to people, which may repeat what a driver has said. The values that a run needs are as they
    are: connectors put no part of a connection's options into them."""
    hide = REDACTOR.redact
    said = (step.reason, step.hint, *step.notes, *step.how, *(check.detail for check in step.checks))
    if all(hide(text) == text for text in said):
        return step
    return replace(
        step,
        reason=hide(step.reason),
        hint=hide(step.hint),
        notes=tuple(map(hide, step.notes)),
        how=tuple(map(hide, step.how)),
        checks=tuple(replace(check, detail=hide(check.detail)) for check in step.checks),
    )
