"""A begun number that one run after another has tried: nobody who reads one run only would know."""

from __future__ import annotations

from flowctl.model.commit import Intent
from flowctl.plan.commands import state_command


def repetition(begun: Intent, spec_path: str, table_id: str) -> str:
    """How often, since when, and the two next steps; empty for a number that one run only has tried."""
    if begun.runs < 2:
        return ""
    giving_up = state_command("set", spec_path, table_id, "--accept-definition")
    return (
        f"sequence number {begun.seq} has been tried by {begun.runs} runs since {begun.at[:19]}Z: fix the cause, or "
        f"give it up with {giving_up}, which reads its rows again under the next sequence number"
    )
