"""`flowctl plan`: shows exactly what apply would do. Writes nothing but ``--out``; starts an engine for ``--effects``
only."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flowctl.cli import output
from flowctl.cli.arguments import plan_options, spec_argument
from flowctl.errors import ExitCode
from flowctl.model.step import Plan

if TYPE_CHECKING:
    from flowctl.plan.planning import Planned
    from flowctl.resolve.resolve import PlanOptions
    from flowctl.spec.spec import Spec


@click.command("plan")
@spec_argument
@click.option("--out", type=click.Path(dir_okay=False), help="Save the plan, for `apply --plan`.")
@click.option("--detailed-exitcode", is_flag=True, help="Exit with 2 if there is something to do.")
@click.option("--ddl", is_flag=True, help="Also show the statements that create and alter tables.")
@click.option("--effects", is_flag=True, help="Read and compare as a run would, and count the rows that would change.")
@click.option(
    "--samples", type=click.IntRange(1, 1000), metavar="N", help="With --effects: keys of N changed rows per action."
)
@click.option("--values", is_flag=True, help="With --samples: also their values.")
@plan_options
def command(
    spec: Spec,
    out: str | None,
    detailed_exitcode: bool,
    ddl: bool,
    effects: bool,
    samples: int | None,
    values: bool,
    **given: Any,
) -> int:
    """Show exactly what apply would do: intervals, rows, schema changes, checks."""
    from flowctl.plan.document import to_json
    from flowctl.plan.planfile import save
    from flowctl.plan.planning import make_plan
    from flowctl.resolve.resolve import PlanOptions
    from flowctl.run.engine import engine_line

    _refuse_without(samples, "--samples", "--effects", is_given=effects)
    _refuse_without(values, "--values", "--samples", is_given=samples is not None)
    options = PlanOptions(**given)
    planned = make_plan(spec, options)
    if effects:
        planned = replace(planned, plan=_with_effects(spec, planned, samples or 0, with_values=values))
    if out is not None:
        save(planned.plan, Path(out))
    if output.settings().format == "json":
        output.write_json(to_json(planned.plan))
    else:
        engine = engine_line(spec.spark, planned.plan, planned.world)
        apply_it = apply_command(spec, options, out)
        show(planned.plan, ddl=ddl, command=apply_it, is_saved=out is not None, engine=engine)
    return exit_code(planned.plan, detailed=detailed_exitcode)


def _refuse_without(value: object, option: str, needed: str, *, is_given: bool) -> None:
    if value and not is_given:
        raise click.UsageError(f"{option} requires {needed}")


def _with_effects(spec: Spec, planned: Planned, samples: int, *, with_values: bool) -> Plan:
    from flowctl.cli.progress import listening, say
    from flowctl.run.changed_rows import Sampling
    from flowctl.run.dry_run import DryRun, with_effects

    settings = output.settings()
    with listening(settings) as listener:
        sampling = Sampling(samples, with_values)
        return with_effects(spec, planned, DryRun(sampling, listener, partial(say, settings), settings.verbose))


def apply_command(spec: Spec, options: PlanOptions, out: str | None) -> str:
    """The command that applies the plan made with ``options``: the saved plan, if there is one, or the same tables."""
    if out is not None:
        return f"flowctl apply {spec.argument} {shlex.join(['--plan', out])}"
    terms = {"--select": options.select, "--exclude": options.exclude, "--full-refresh": options.full_refresh}
    if options.backfill is not None:
        terms |= {"--from": _given(options.backfill.start), "--to": _given(options.backfill.stop)}
    words = [word for option, given in terms.items() for term in given for word in (option, term)]
    return " ".join(filter(None, (f"flowctl apply {spec.argument}", shlex.join(words))))


def _given(value: str | None) -> tuple[str, ...]:
    return (value,) if value is not None else ()


def show(plan: Plan, **terms: Any) -> None:
    """The plan on stdout. ``terms`` are fields of :class:`flowctl.plan.render.View`."""
    from flowctl.plan.render import View, render

    output.write_lines(render(plan, View(width=output.width(), verbose=output.settings().verbose, **terms)))


def exit_code(plan: Plan, *, detailed: bool) -> int:
    """The code that takes precedence for a plan: 4 for tables that could not be observed or would fail, 6 for tables
    that a policy stops, 2 for changes."""
    from flowctl.model.effects import PreventedEffects
    from flowctl.model.step import Load, Recover, Stopped

    stopped = [step for step in plan.all_steps if isinstance(step, Stopped)]
    codes = [ExitCode.TABLE if step.by == "error" else ExitCode.STOPPED for step in stopped]
    found = (step.effects for step in plan.steps if isinstance(step, Load | Recover))
    codes += [effects.exit_code for effects in found if isinstance(effects, PreventedEffects)]
    if detailed and plan.runs:
        codes.append(ExitCode.CHANGES)
    return ExitCode.first(codes)
