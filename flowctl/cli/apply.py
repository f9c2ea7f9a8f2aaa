"""`flowctl apply`: prints the plan, then executes exactly it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flowctl.cli import output
from flowctl.cli.arguments import lock_timeout_option, plan_options, spec_argument
from flowctl.cli.plan import show

if TYPE_CHECKING:
    from flowctl.plan.planning import Planned
    from flowctl.run.apply import RunResult
    from flowctl.spec.spec import Spec


@click.command("apply")
@spec_argument
@click.option(
    "--plan", "plan_file", type=click.Path(dir_okay=False), help="Execute this saved plan; refused if it is stale."
)
@click.option("--confirm", is_flag=True, help="Ask for confirmation before anything is changed.")
@click.option(
    "--parallel", type=click.IntRange(1, 64), metavar="N", help="Tables in parallel.  [default: by the machine]"
)
@click.option("--follow", is_flag=True, help="Go on until SIGTERM: change streams, and tables with `every`.")
@lock_timeout_option
@plan_options
def command(
    spec: Spec,
    plan_file: str | None,
    follow: bool,
    confirm: bool,
    parallel: int | None,
    lock_timeout: float,
    **given: Any,
) -> int:
    """Print the plan and execute it: exactly that plan, exactly once."""
    from flowctl.cli.progress import listening, say
    from flowctl.resolve.resolve import PlanOptions
    from flowctl.run import follow as following
    from flowctl.run.apply import ApplyOptions, Audience, apply
    from flowctl.run.engine import engine_line

    settings = output.settings()
    as_json = settings.format == "json"
    plan_options = PlanOptions(**given)
    _refuse_terms_beside_plan(plan_file, plan_options)
    if follow and (plan_file or plan_options.full_refresh or plan_options.backfill):
        what = "--follow plans by itself, again and again: run --plan, --full-refresh, --from and --to without it"
        raise click.UsageError(what)
    options = ApplyOptions(
        plan=plan_options,
        plan_file=Path(plan_file) if plan_file else None,
        parallel=parallel,
        lock_timeout=lock_timeout,
        verbose=settings.verbose,
    )

    def approve(planned: Planned) -> bool:
        if not as_json:
            show(planned.plan, engine=engine_line(spec.spark, planned.plan, planned.world))
        if not confirm or not planned.plan.runs:
            return True
        return output.confirm("Apply this?", otherwise="Leave out --confirm to go without the question")

    settings.run_id = options.run_id

    carry_out = following.follow if follow else apply
    with listening(settings) as listener:
        result = carry_out(spec, options, Audience(approve, listener, partial(say, settings)))
    if result.error is not None:
        output.write_error(result.error, settings)
    _conclude(result, as_json=as_json)
    return result.exit_code


def _conclude(result: RunResult, *, as_json: bool) -> None:
    """Reports how the run ended: a table, or the run's record as JSON. The plan, and the error that ended the run, have
    already been shown."""
    from flowctl.cli.result import show as show_result
    from flowctl.model.step import Stopped

    if as_json:
        output.write_json(result.record.to_json() if result.record else {"run": None})
    elif result.record is None:
        output.write_result("Nothing was changed.")
    else:
        stopped = [step.id for step in result.plan.all_steps if isinstance(step, Stopped)]
        show_result(replace(result.record, error=None), explained=stopped)


def _refuse_terms_beside_plan(plan_file: str | None, options: Any) -> None:
    if plan_file and (options.select or options.exclude or options.full_refresh):
        raise click.UsageError(
            "--plan executes what was saved: --select, --exclude, --full-refresh, --from and --to belong to `plan`"
        )
