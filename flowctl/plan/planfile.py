"""A plan in a file: written by `plan --out`, executed by `apply --plan`, refused when the world has moved."""

from __future__ import annotations

import json
import os
from pathlib import Path

from flowctl.durable import open_private
from flowctl.errors import StalePlan, UsageError
from flowctl.model.step import RUNNABLE, Plan, Step
from flowctl.model.table_info import same_identity
from flowctl.observe.world import Observed, World
from flowctl.plan.document import from_json, to_json
from flowctl.spec.spec import Spec


def save(plan: Plan, path: Path) -> None:
    """Writes the plan, whole or not at all. :class:`UsageError` when the file cannot be written."""
    text = json.dumps(to_json(plan), indent=2, ensure_ascii=False) + "\n"
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open_private(draft) as file:
            file.write(text.encode())
        draft.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", hint="Choose another --out") from error


def load(path: Path) -> Plan:
    """The saved plan. :class:`UsageError` when there is none in the file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", hint="Make one with `flowctl plan --out`"
        ) from error
    except ValueError as error:
        raise UsageError(f"{path} is not a plan: {error}", hint="Make one with `flowctl plan --out`") from error
    if not isinstance(document, dict) or "steps" not in document:
        raise UsageError(f"{path} is not a plan", hint="Make one with `flowctl plan --out`")
    return from_json(document)


def check_fresh(plan: Plan, spec: Spec, world: World) -> None:
    """:class:`StalePlan` when the spec, the state or a target is not what ``plan`` was made from."""
    if plan.flow != spec.flow or plan.spec_digest != spec.digest:
        raise _stale("the spec (or a variable) has changed since the plan was made")
    if plan.serial != world.state.serial:
        raise _stale(f"state is at serial {world.state.serial}, the plan was made at {plan.serial}")
    if plan.serial and plan.lineage != world.state.lineage:
        raise _stale("the state is another one: it was lost and begun anew")
    for step in plan.steps:
        if step.action in RUNNABLE:
            _check_target(step, world.tables.get(step.id))


def _check_target(step: Step, seen: Observed | None) -> None:
    if seen is None:
        raise _stale(f"{step.id}: the table is no longer there")
    if seen.error is not None:
        raise seen.error
    target = seen.target
    identity, version, shape = (target.identity, target.version, target.shape) if target else ("", None, "")
    commit = seen.commit.name if seen.commit else ""
    is_same = same_identity(identity, step.target_id)
    if is_same and version == step.target_version:
        if step.target_shape not in (None, shape):
            what = "has other columns now"
        elif step.target_commit not in (None, commit):
            what = f"carries {_commit(commit)} now, the plan was made at {_commit(step.target_commit or '')}"
        else:
            return
    elif target is None:
        what = "is gone"
    elif not step.target_exists:
        what = "exists now"
    elif not is_same:
        what = "is another table now"
    else:
        what = f"is at version {target.version}, the plan was made at {step.target_version}"
    raise _stale(f"{step.id}: the target {step.target} {what}")


def _commit(name: str) -> str:
    return f"number {name.partition('/')[0]}" if name else "no number"


def _stale(reason: str) -> StalePlan:
    return StalePlan(f"the saved plan is stale: {reason}", hint="Make a new one with `flowctl plan --out`")
