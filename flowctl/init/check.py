"""Plans a draft, and says what the plan refuses."""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from flowctl.errors import SpecError
from flowctl.init.render import Draft
from flowctl.model.step import Plan, Stopped
from flowctl.plan.planning import make_plan
from flowctl.resolve import sail
from flowctl.resolve.resolve import PlanOptions
from flowctl.spec.load import load_spec


@dataclass(frozen=True)
class Refusal:
    """Why a table cannot be moved as it is written. ``columns`` are those of the source that alone are to blame.
    ``is_known``: the flow has written the table before, so it is the plan that says how to go on."""

    reason: str
    columns: tuple[str, ...] = ()
    by_sail: bool = False
    is_known: bool = False


def refusals(draft: Draft, path: Path, given: Mapping[str, str]) -> Mapping[str, Refusal]:
    """What `validate` and `plan` refuse, by table; empty if `apply` would take all of them. ``path`` is where the
    spec will be, ``given`` the connections with secrets. Raises as :func:`make_plan` for what is about no table."""
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=".flowctl-init-", suffix=".yaml", encoding="utf-8"
    ) as file:
        file.write(draft.text)
        file.flush()
        try:
            plan = make_plan(load_spec([file.name], {}, given), PlanOptions()).plan
        except SpecError as error:
            found = _by_line(error, draft)
            if not found:
                raise
        else:
            found = _of_plan(plan)
    return {id: replace(one, reason=one.reason.replace(file.name, str(path))) for id, one in found.items()}


def _by_line(error: SpecError, draft: Draft) -> dict[str, Refusal]:
    ids, first = list(draft.lines), list(draft.lines.values())
    found: dict[str, Refusal] = {}
    for one in error.diagnostics:
        at = bisect_right(first, one.mark.line) if one.mark else 0
        named = [id for id in ids if one.message.startswith(f"{id}: ")]  # also for what is in `defaults`
        if at == 0 and not named:
            return {}
        id = named[0] if named else ids[at - 1]
        reason = one.message.removeprefix(f"{id}: ")
        found.setdefault(id, Refusal(_sentence(reason, one.hint), by_sail=one.hint == sail.HINT))
    return found


def _of_plan(plan: Plan) -> dict[str, Refusal]:
    found = {}
    for step in plan.steps:
        if not isinstance(step, Stopped):
            continue
        columns = tuple(change.column for change in step.changes if change.action == "fail")
        is_known = step.table.progress is not None and step.table.progress.seq > 0
        found[step.id] = Refusal(_sentence(step.reason, step.hint), columns, step.hint == sail.HINT, is_known)
    return found


def _sentence(reason: str, hint: str) -> str:
    return f"{reason}. {hint}" if hint else reason
