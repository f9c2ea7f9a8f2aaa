"""A restoration (`flowctl restore`) that was interrupted: the target has it; the state, or a sidecar, does not."""

from __future__ import annotations

from flowctl.plan.case import Case
from flowctl.plan.commands import restore_command
from flowctl.plan.finding import Stop


def unfinished_restoration(case: Case) -> Stop | None:
    """Only the command itself finishes it. What the target records would do for the state's position, but not for its
    definition or for a history's observations."""
    commit = case.observed.commit
    if commit is None or commit.restored is None or commit.seq <= case.state.seq:
        return None
    command = restore_command(case.spec_path, case.table.id, commit.restored)
    return Stop(
        f"{case.table.target} was restored to sequence number {commit.restored}, and the restoration was interrupted",
        f"Finish it with {command}, or restore another number",
        "to",
    )
