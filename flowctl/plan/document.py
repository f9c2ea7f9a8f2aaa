"""The plan as JSON (`schemas/plan.schema.json`) and back: loading a saved plan returns identical steps.

Every step has the same keys in JSON; keys that do not apply to its kind have empty values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, assert_never

from flowctl.errors import StalePlan
from flowctl.model import codec, position
from flowctl.model.interval import Interval
from flowctl.model.projection import RuntimeColumns
from flowctl.model.step import (
    Advance,
    Load,
    Plan,
    RecordOnly,
    Recover,
    Removed,
    Runnable,
    Step,
    Stopped,
    StreamPlan,
    StreamStep,
    UpToDate,
    progress_after,
)

FORMAT = 1
#: The name of a step's kind in the document.
Action = Literal["create", "change", "advance", "recover", "none", "stop", "removed"]


def to_json(plan: Plan) -> dict[str, Any]:
    """JSON-safe; contains no secrets, and no row values except cursor bounds and requested samples of effects."""
    document = {"format": FORMAT, **codec.to_json(replace(plan, steps=(), streams=())), "summary": count_actions(plan)}
    del document["steps"], document["streams"]  # added back last, after the summary
    steps = [_step_to_json(step) for step in plan.steps]
    streams = [_stream_to_json(one) for one in plan.streams]
    return {**document, "steps": steps, **({"streams": streams} if streams else {})}


def from_json(document: Mapping[str, Any]) -> Plan:
    """Reads what :func:`to_json` wrote. Raises :class:`StalePlan` for the format of another flowctl version."""
    if document.get("format") != FORMAT:
        raise StalePlan(f"the plan has format {document.get('format')}, this flowctl reads {FORMAT}", hint="Plan again")
    return codec.from_json(Plan, document)


def action_of(step: StreamStep) -> Action:
    match step:
        case Advance():
            return "advance"
        case Load():
            return "create" if step.creates else "change"
        case Recover() | RecordOnly():
            return "recover"
        case UpToDate():
            return "none"
        case Stopped():
            return "stop"
        case Removed():
            return "removed"
        case _:
            assert_never(step)


_COUNTED: tuple[Action, ...] = ("create", "change", "none", "stop", "recover", "removed")


def count_actions(plan: Plan) -> dict[Action, int]:
    counts: dict[Action, int] = dict.fromkeys(_COUNTED, 0)
    for step in plan.all_steps:
        action = action_of(step)
        counts[action] = counts.get(action, 0) + 1
    return counts


#: The values of keys that do not apply to a step, in the order of the published form.
_NOTHING: Mapping[str, Any] = {
    "id": "", "action": "", "reason": "", "hint": "", "stopped_by": None, "from": "", "to": "", "mode": "", "key": [],
    "seq": 0, "interval": None, "rows": {"value": None, "method": "unknown"}, "bytes": None, "schema": [],
    "statements": [], "checks": [], "notes": [], "needs": [], "via": "", "how": [], "write_full": False,
    "refresh": False, "follows": None, "check_deletes": False, "record_only": False, "target_exists": False,
    "target_id": "", "target_version": None, "target_shape": "", "target_commit": "", "source_columns": [],
    "target_columns": [], "projection": [], "definition": {}, "state_before": None, "state_after": None, "source": {},
}  # fmt: skip


def _stream_to_json(stream: StreamPlan) -> dict[str, Any]:
    document = codec.to_json(replace(stream, steps=()))
    return {**document, "steps": [_step_to_json(step) for step in stream.steps]}


def _step_to_json(step: StreamStep) -> dict[str, Any]:
    after = progress_after(step)
    document = {**_NOTHING, "seq": after.seq if after else 0, **codec.to_json(step)}
    document |= {"action": action_of(step), "state_after": codec.to_json(after)}
    if isinstance(step, Load) and step.batch_rows is not None:
        document["commits"] = step.commits
    match step:
        case Load() | Recover():
            document["bytes"] = document["rows"].pop("bytes")
        case RecordOnly():
            document["record_only"] = True
        case UpToDate():
            document["rows"] = {"value": None, "method": "none"}
    if isinstance(step, Runnable):
        document["interval"] = _interval_to_json(step.interval)
    if isinstance(step, Load | Recover | Advance | UpToDate) and isinstance(step.columns, RuntimeColumns):
        document["schema"] = None
    return document


def _step_from_json(document: Mapping[str, Any]) -> Step:
    interval, rows = document["interval"], {**document["rows"], "bytes": document["bytes"]}
    document = {"target_shape": None, "target_commit": None, **document, "rows": rows}  # older plans lack these two
    document["interval"] = interval and interval["read"]
    match document["action"]:
        case "create" | "change":
            return codec.from_json(Load, document)
        case "recover" if document["record_only"]:
            return codec.from_json(RecordOnly, document)
        case "recover":
            return codec.from_json(Recover, document)
        case "none":
            return codec.from_json(UpToDate, document)
        case "stop":
            return codec.from_json(Stopped, {**document, "schema": document["schema"] or []})
        case "removed":
            return codec.from_json(Removed, document)
        case unknown:
            raise ValueError(f"unknown action {unknown!r}")


def _stream_step_from_json(document: Mapping[str, Any]) -> StreamStep:
    return codec.from_json(Advance, document) if document["action"] == "advance" else _step_from_json(document)


codec.has_form(Step, None, _step_from_json)
codec.has_form(StreamStep, None, _stream_step_from_json)


def _interval_to_json(interval: Interval) -> dict[str, Any]:
    """``from`` and ``to`` are for display and scripts; ``read`` is the interval exactly as executed."""
    return {
        "kind": position.to_json(interval.upper or position.NoPosition())["kind"],
        "from": position.describe(interval.lower) if interval.lower else None,
        "to": position.describe(interval.upper),
        "lag": interval.lag_seconds,
        "read": codec.to_json(interval),
    }
