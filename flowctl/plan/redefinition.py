"""A table whose definition is another than the recorded one stops: its target holds rows of the other one."""

from __future__ import annotations

from dataclasses import replace

from flowctl.plan.acceptance import current, refusal, written_under
from flowctl.plan.case import Case
from flowctl.plan.definition import differences, of_stream, of_topic
from flowctl.plan.finding import Stop
from flowctl.state.streams import with_source_forgotten


def stop_if_redefined(case: Case) -> Stop | None:
    recorded = current(case.state)
    if case.full_refresh or not recorded or not (what := "; ".join(differences(recorded, case.definition))):
        return None
    accept = case.state_command("set", "--accept-definition")
    refused = refusal(case.state, case.definition, case.observed.target)
    is_keyed_stream = of_stream(case.definition) and case.table.mode != "append"
    if refused and is_keyed_stream and _is_solved_by_reading_again(case):
        again = case.state_command("resnapshot")
        return Stop(f"the definition changed: {what}", f"{again} reads the table again: {refused}", "from")
    if refused and of_topic(case.definition) and case.table.mode == "append":
        new = case.state_command("set", "--accept-definition", "--position", "beginning")
        replaced = "" if case.rules.is_log else f"; or replace these with --full-refresh {case.table.id}"
        way = f"Append the messages of the new topic to those of the old one: {new}{replaced}"
        return Stop(f"the definition changed: {what}", way, "from")
    if case.rules.is_log:
        return Stop(f"the definition changed: {what}", _continuing_a_log(case, accept, refused))
    way = f"it cannot continue from here: {refused}" if refused else f"continue from here with {accept}"
    again = "Replace the history by a new one" if _loses_history(case) else "Read all again under it"
    return Stop(f"the definition changed: {what}", f"{again} with --full-refresh {case.table.id}; {way}")


def _loses_history(case: Case) -> bool:
    return case.lacks_history and case.state.definition.get("mode") == "scd2"


def _continuing_a_log(case: Case, accept: str, refused: str | None) -> str:
    """What a log holds is not replaced."""
    if is_moved(case) and not refused:
        return f"Send everything to {case.table.target} with {accept}"
    if refused:
        return f"Write to a new topic: it cannot continue from here: {refused}"
    return f"Continue from here with {accept}; to send everything under it, write to a new topic"


def is_moved(case: Case) -> bool:
    """Whether the spec names another target than the recorded one: the definition has changed, no target is missing."""
    recorded = case.state.definition
    return bool(recorded.get("to", case.definition["to"]) != case.definition["to"])


def _is_solved_by_reading_again(case: Case) -> bool:
    """Whether only the source as it was observed prevents the table from continuing: a new snapshot forgets that."""
    definitions = (*written_under(case.state), current(case.state))
    state = with_source_forgotten(replace(case.state, definition={}, accepted=definitions, intent=None))
    return refusal(state, case.definition, case.observed.target) is None
