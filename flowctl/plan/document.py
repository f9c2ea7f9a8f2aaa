"""The plan as JSON (`schemas/plan.schema.json`) and back: a saved plan is the very same steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowctl.diagnostics import Mark
from flowctl.errors import StalePlan
from flowctl.model import interval as intervals
from flowctl.model import position, projection, schema_change, table_info
from flowctl.model.interval import Interval
from flowctl.model.step import Check, Plan, Step
from flowctl.model.table_info import RowEstimate

FORMAT = 1


def to_json(plan: Plan) -> dict[str, Any]:
    """JSON-safe; no secrets, no row values but key and cursor bounds."""
    return {
        "format": FORMAT,
        "flow": plan.flow,
        "lineage": plan.lineage,
        "serial": plan.serial,
        "spec_digest": plan.spec_digest,
        "created_at": plan.created_at,
        "flowctl": plan.flowctl,
        "select": list(plan.select),
        "summary": summary(plan),
        "steps": [_step_to_json(step) for step in plan.steps],
    }


def from_json(document: Mapping[str, Any]) -> Plan:
    """Reads what :func:`to_json` wrote. :class:`StalePlan` when another version of flowctl wrote another format."""
    if document.get("format") != FORMAT:
        raise StalePlan(f"the plan has format {document.get('format')}, this flowctl reads {FORMAT}", hint="Plan again")
    return Plan(
        flow=document["flow"],
        lineage=document["lineage"],
        serial=document["serial"],
        spec_digest=document["spec_digest"],
        created_at=document["created_at"],
        flowctl=document["flowctl"],
        select=tuple(document["select"]),
        steps=tuple(_step_from_json(step) for step in document["steps"]),
    )


def summary(plan: Plan) -> dict[str, int]:
    """How many steps of each action."""
    return {
        "create": plan.count("create"),
        "change": plan.count("change"),
        "none": plan.count("none"),
        "stop": plan.count("stop"),
        "recover": plan.count("recover"),
        "removed": plan.count("removed"),
    }


def _step_to_json(step: Step) -> dict[str, Any]:
    return {
        "id": step.id,
        "action": step.action,
        "reason": step.reason,
        "hint": step.hint,
        "stopped_by": step.stopped_by,
        "from": step.source,
        "to": step.target,
        "mode": step.mode,
        "key": list(step.key),
        "seq": step.seq,
        "interval": _interval_to_json(step.interval) if step.interval else None,
        "rows": {"value": step.rows.value, "method": step.rows.method},
        "bytes": step.rows.bytes,
        "schema": None if step.schema is None else [change.to_json() for change in step.schema],
        "statements": list(step.statements),
        "checks": [check.to_json() for check in step.checks],
        "notes": list(step.notes),
        "needs": list(step.needs),
        "via": step.via,
        "how": list(step.how),
        "write_full": step.write_full,
        "refresh": step.refresh,
        "follows": step.follows,
        "check_deletes": step.check_deletes,
        "record_only": step.record_only,
        "target_exists": step.target_exists,
        "target_id": step.target_id,
        "target_version": step.target_version,
        "target_shape": step.target_shape,
        "target_commit": step.target_commit,
        "source_columns": [column.to_json() for column in step.source_columns],
        "target_columns": [column.to_json() for column in step.target_columns],
        "projection": [made.to_json() for made in step.projection],
        "definition": dict(step.definition),
        "state_before": step.state_before,
        "state_after": step.state_after,
        "source": {"file": step.mark.file, "line": step.mark.line, "column": step.mark.column},
    }


def _step_from_json(document: Mapping[str, Any]) -> Step:
    place, changes = document["source"], document["schema"]
    return Step(
        id=document["id"],
        action=document["action"],
        reason=document["reason"],
        hint=document["hint"],
        stopped_by=document["stopped_by"],
        mark=Mark(place["file"], place["line"], place["column"]),
        source=document["from"],
        target=document["to"],
        mode=document["mode"],
        key=tuple(document["key"]),
        seq=document["seq"],
        interval=intervals.from_json(document["interval"]["read"]) if document["interval"] else None,
        rows=RowEstimate(document["rows"]["value"], document["rows"]["method"], document["bytes"]),
        schema=None if changes is None else tuple(schema_change.from_json(change) for change in changes),
        statements=tuple(document["statements"]),
        checks=tuple(Check(**check) for check in document["checks"]),
        notes=tuple(document["notes"]),
        needs=tuple(document["needs"]),
        via=document["via"],
        how=tuple(document.get("how", ())),  # plans of format 1 did not always have it
        write_full=document["write_full"],
        refresh=document.get("refresh", False),
        follows=document.get("follows"),
        check_deletes=document["check_deletes"],
        record_only=document["record_only"],
        target_exists=document["target_exists"],
        target_id=document["target_id"],
        target_version=document["target_version"],
        target_shape=document.get("target_shape"),
        target_commit=document.get("target_commit"),
        source_columns=tuple(table_info.column_from_json(column) for column in document["source_columns"]),
        target_columns=tuple(table_info.column_from_json(column) for column in document["target_columns"]),
        projection=tuple(projection.from_json(made) for made in document["projection"]),
        definition=document["definition"],
        state_before=document["state_before"],
        state_after=document["state_after"],
    )


def _interval_to_json(interval: Interval) -> dict[str, Any]:
    """``from`` and ``to`` for people and scripts, ``read`` exactly as it is executed."""
    return {
        "kind": position.to_json(interval.upper)["kind"],
        "from": position.describe(interval.lower) if interval.lower else None,
        "to": position.describe(interval.upper),
        "lag": interval.lag_seconds,
        "read": intervals.to_json(interval),
    }
