"""The plan as JSON (`schemas/plan.schema.json`) and back: a saved plan is the very same steps.

Every step has the same keys there, whatever its kind: those that the kind does not have say nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, assert_never

from flowctl.diagnostics import Mark
from flowctl.errors import StalePlan
from flowctl.model import codec, position
from flowctl.model.interval import Interval
from flowctl.model.projection import Columns, ProjectedColumn, RuntimeColumns
from flowctl.model.schema_change import SchemaChange
from flowctl.model.step import (
    Check,
    Load,
    Plan,
    PlannedTable,
    Progress,
    RecordOnly,
    Recover,
    Removed,
    SeenTarget,
    Step,
    Stopped,
    UpToDate,
    progress_after,
)
from flowctl.model.table_info import Column, RowEstimate

FORMAT = 1
#: What the document calls a step's kind.
Action = Literal["create", "change", "recover", "none", "stop", "removed"]


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
        "summary": count_actions(plan),
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


def action_of(step: Step) -> Action:
    match step:
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


def count_actions(plan: Plan) -> dict[Action, int]:
    """How many steps of each action."""
    counts: dict[Action, int] = {"create": 0, "change": 0, "none": 0, "stop": 0, "recover": 0, "removed": 0}
    for step in plan.steps:
        counts[action_of(step)] += 1
    return counts


def _step_to_json(step: Step) -> dict[str, Any]:
    table, after = step.table, progress_after(step)
    return {
        "id": table.id,
        "action": action_of(step),
        "reason": step.reason,
        "hint": "",
        "stopped_by": None,
        "from": table.source,
        "to": table.target,
        "mode": table.mode,
        "key": list(table.key),
        "seq": after.seq if after else 0,
        "interval": None,
        "rows": {"value": None, "method": "unknown"},
        "bytes": None,
        "schema": [],
        "statements": [],
        "checks": [],
        "notes": [],
        "needs": list(table.needs),
        "via": table.via,
        "how": [],
        "write_full": False,
        "refresh": False,
        "follows": None,
        "check_deletes": False,
        "record_only": False,
        "target_exists": table.seen.exists,
        "target_id": table.seen.id,
        "target_version": table.seen.version,
        "target_shape": table.seen.shape,
        "target_commit": table.seen.commit,
        "source_columns": [],
        "target_columns": [],
        "projection": [],
        "definition": dict(table.definition),
        "state_before": codec.to_json(table.progress),
        "state_after": codec.to_json(after),
        "source": codec.to_json(table.mark),
        **_kind_to_json(step),
    }


def _kind_to_json(step: Step) -> dict[str, Any]:
    """What steps of its kind have beside their table."""
    match step:
        case Load() | Recover():
            return {
                "interval": _interval_to_json(step.interval),
                "rows": {"value": step.rows.value, "method": step.rows.method},
                "bytes": step.rows.bytes,
                **_columns_to_json(step.columns),
                "checks": codec.to_json(step.checks),
                "notes": list(step.notes),
                "how": list(step.how),
                "write_full": step.write_full,
                "refresh": step.refresh,
                "follows": step.follows if isinstance(step, Load) else None,
                "check_deletes": step.check_deletes,
            }
        case RecordOnly():
            interval, columns = _interval_to_json(step.interval), _columns_to_json(step.columns)
            return {"interval": interval, **columns, "refresh": step.refresh, "record_only": True}
        case UpToDate():
            rows = {"value": None, "method": "none"}
            return {"rows": rows, **_columns_to_json(step.columns), "notes": list(step.notes)}
        case Stopped():
            return {
                "hint": step.hint,
                "stopped_by": step.by,
                "schema": codec.to_json(step.changes),
                "checks": codec.to_json(step.checks),
                "follows": step.follows,
            }
        case Removed():
            return {"hint": step.hint}
        case _:
            assert_never(step)


def _step_from_json(document: Mapping[str, Any]) -> Step:
    table, reason, hint = _table_from_json(document), document["reason"], document["hint"]
    columns, changes = _columns_from_json(document), _changes_from_json(document)
    checks = codec.from_json(tuple[Check, ...], document["checks"])
    follows = document.get("follows")
    match document["action"]:
        case "stop":
            by = document["stopped_by"]
            return Stopped(
                table=table, reason=reason, hint=hint, by=by, changes=changes, checks=checks, follows=follows
            )
        case "removed":
            return Removed(table=table, reason=reason, hint=hint)
        case "none":
            return UpToDate(table=table, reason=reason, columns=columns, notes=tuple(document["notes"]))
    interval = codec.from_json(Interval, document["interval"]["read"])
    if document["record_only"]:
        return RecordOnly(
            table=table,
            reason=reason,
            seq=document["seq"],
            interval=interval,
            columns=Columns(columns.source, columns.target),
            refresh=document.get("refresh", False),
        )
    transfer: dict[str, Any] = {
        "table": table,
        "reason": reason,
        "seq": document["seq"],
        "interval": interval,
        "columns": columns,
        "rows": RowEstimate(document["rows"]["value"], document["rows"]["method"], document["bytes"]),
        "checks": checks,
        "write_full": document["write_full"],
        "refresh": document.get("refresh", False),  # plans of format 1 did not always have it
        "check_deletes": document["check_deletes"],
        "notes": tuple(document["notes"]),
        "how": tuple(document.get("how", ())),
    }
    return Recover(**transfer) if document["action"] == "recover" else Load(**transfer, follows=follows)


def _table_from_json(document: Mapping[str, Any]) -> PlannedTable:
    before = document["state_before"]
    return PlannedTable(
        id=document["id"],
        mark=codec.from_json(Mark, document["source"]),
        source=document["from"],
        target=document["to"],
        mode=document["mode"],
        key=tuple(document["key"]),
        needs=tuple(document["needs"]),
        via=document["via"],
        definition=document["definition"],
        progress=codec.from_json(Progress, before) if before else None,
        seen=SeenTarget(
            document["target_exists"],
            document["target_id"],
            document["target_version"],
            document.get("target_shape"),
            document.get("target_commit"),
        ),
    )


def _columns_to_json(columns: Columns | RuntimeColumns) -> dict[str, Any]:
    """``schema`` is null where the columns are known when run."""
    known = {"source_columns": codec.to_json(columns.source), "target_columns": codec.to_json(columns.target)}
    match columns:
        case Columns():
            return {
                **known,
                "schema": codec.to_json(columns.changes),
                "statements": list(columns.statements),
                "projection": codec.to_json(columns.projection),
            }
        case RuntimeColumns():
            return {**known, "schema": None}
        case _:
            assert_never(columns)


def _columns_from_json(document: Mapping[str, Any]) -> Columns | RuntimeColumns:
    source = codec.from_json(tuple[Column, ...], document["source_columns"])
    target = codec.from_json(tuple[Column, ...], document["target_columns"])
    if document["schema"] is None:
        return RuntimeColumns(source, target)
    projection = codec.from_json(tuple[ProjectedColumn, ...], document["projection"])
    return Columns(source, target, projection, _changes_from_json(document), tuple(document["statements"]))


def _changes_from_json(document: Mapping[str, Any]) -> tuple[SchemaChange, ...]:
    return codec.from_json(tuple[SchemaChange, ...], document["schema"] or ())


def _interval_to_json(interval: Interval) -> dict[str, Any]:
    """``from`` and ``to`` for people and scripts, ``read`` exactly as it is executed."""
    return {
        "kind": position.to_json(interval.upper)["kind"],
        "from": position.describe(interval.lower) if interval.lower else None,
        "to": position.describe(interval.upper),
        "lag": interval.lag_seconds,
        "read": codec.to_json(interval),
    }
