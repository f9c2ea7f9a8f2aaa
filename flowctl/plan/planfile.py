"""A plan in a file: written by `plan --out`, executed by `apply --plan`, refused if anything it depends on changed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from flowctl.errors import StalePlan, UsageError
from flowctl.model import types
from flowctl.model.position import VersionPosition
from flowctl.model.step import Load, Plan, PlannedTable, Recover, StreamPlan
from flowctl.model.table_info import Column, same_identity
from flowctl.observe.world import Observed, SeenStream, World
from flowctl.plan.definition import definition, differences
from flowctl.plan.document import from_json, to_json
from flowctl.plan.projection import read_columns
from flowctl.spec.spec import Spec, SqlSource, StreamTable, TableSpec
from flowctl.storage.durable import open_private


def save(plan: Plan, path: Path) -> None:
    """Writes the plan atomically. Raises :class:`UsageError` if the file cannot be written."""
    text = json.dumps(to_json(plan), indent=2, ensure_ascii=False) + "\n"
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open_private(draft) as file:
            file.write(text.encode())
        draft.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", hint="Choose another --out") from error


def load(path: Path) -> Plan:
    """Reads a saved plan. Raises :class:`UsageError` if the file cannot be read or is not a plan."""
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


def check_fresh(plan: Plan, spec: Spec, world: World, tables: Mapping[str, TableSpec]) -> None:
    """Raises :class:`StalePlan` if the spec, the state, a source or a target has changed since ``plan`` was made.
    ``tables`` are the current tables of the spec, by id."""
    if plan.flow != spec.flow or plan.spec_digest != spec.digest:
        raise _stale("the spec (or a variable, or a connection) has changed since the plan was made")
    if plan.serial != world.state.serial:
        raise _stale(f"state is at serial {world.state.serial}, the plan was made at {plan.serial}")
    if plan.serial and plan.lineage != world.state.lineage:
        raise _stale("the state is another one: it was lost and created again")
    for stream in plan.streams:
        if stream.action != "removed":
            _check_stream(stream, world.streams.get(stream.name))
    for step in plan.taking_part:
        seen, table = world.tables.get(step.id), tables.get(step.id)
        if seen is None or table is None:
            raise _stale(f"{step.id}: the table no longer exists")
        if seen.error is not None:
            raise seen.error
        _check_target(step.table, seen)
        is_landed = isinstance(table.source, StreamTable) and not isinstance(step, Load)
        if isinstance(step, Load | Recover) and not is_landed and not isinstance(table.source, SqlSource):
            _check_source(step, seen, table)


def _check_stream(planned: StreamPlan, seen: SeenStream | None) -> None:
    if seen is None:
        raise _stale(f"the stream {planned.name} no longer exists")
    if seen.error is not None:
        raise seen.error
    if planned.serial != seen.state.serial or (planned.serial and planned.lineage != seen.state.lineage):
        raise _stale(
            f"the state of the stream {planned.name} is at serial {seen.state.serial}, the plan was made at "
            f"{planned.serial}"
        )
    if seen.newest is not None and seen.newest.batch != planned.batch:
        raise _stale(f"batch {seen.newest.batch} of the stream {planned.name} was captured since the plan was made")
    if seen.info is not None and planned.source_changes != seen.info.source_changes:
        raise _stale(f"what the stream {planned.name} has to change in its source is no longer the same")


def _check_source(step: Load | Recover, seen: Observed, table: TableSpec) -> None:
    """Detects another object under the same name (e.g. a secret that now points elsewhere) and changed columns. Columns
    of files are not checked here: newer files may have others, and each planned file is verified when it is read."""
    source = seen.source
    if source is None:
        raise _stale(f"{step.id}: the source {step.table.source} is gone")
    upper = step.interval.upper
    if isinstance(upper, VersionPosition) and upper.table not in ("", source.identity):
        raise _stale(f"{step.id}: the source {step.table.source} was dropped and created again")
    if step.table.definition and (what := differences(step.table.definition, definition(table, source))):
        raise _stale(f"{step.id}: {'; '.join(what)}")
    if seen.positions == "files":
        return
    if what_changed := _change(step.columns.source, read_columns(table, source.columns)):
        raise _stale(f"{step.id}: the source {step.table.source} {what_changed}")


def _change(planned: Sequence[Column], described: Sequence[Column]) -> str:
    """Describes the first difference between the columns to be read; empty if there is none."""
    before, now = ({column.name: column for column in columns} for columns in (planned, described))
    for name, old in before.items():
        new = now.get(name)
        if new is None:
            return f"has no column {name} any more"
        if (old.type, old.native, old.nullable) != (new.type, new.native, new.nullable):
            return f"has a different column {name} now: it is {_type(new)}, it was {_type(old)}"
    added = [name for name in now if name not in before]
    return f"has a new column {added[0]}" if added else ""


def _type(column: Column) -> str:
    return (column.native or types.short(column.type)) + ("" if column.nullable else " not null")


def _check_target(table: PlannedTable, seen: Observed) -> None:
    planned, target = table.seen, seen.target
    identity, version, shape = (target.identity, target.version, target.shape) if target else ("", None, "")
    commit = seen.commit.name if seen.commit else ""
    is_same = same_identity(identity, planned.id)
    if is_same and version == planned.version:
        if planned.shape not in (None, shape):
            what = "has other columns now"
        elif planned.commit not in (None, commit):
            what = f"carries {_commit(commit)} now, the plan was made at {_commit(planned.commit or '')}"
        else:
            return
    elif target is None:
        what = "is gone"
    elif not planned.exists:
        what = "exists now"
    elif not is_same:
        what = "is another table now"
    else:
        what = f"is at version {target.version}, the plan was made at {planned.version}"
    raise _stale(f"{table.id}: the target {table.target} {what}")


def _commit(name: str) -> str:
    return f"sequence number {name.partition('/')[0]}" if name else "no sequence number"


def _stale(reason: str) -> StalePlan:
    return StalePlan(f"the saved plan is stale: {reason}", hint="Make a new one with `flowctl plan --out`")
