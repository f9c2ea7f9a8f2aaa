"""Hand-made worlds of one change stream, `cdc`: its state, its batches, what its source says, and its tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from flowctl.changes.shape import Shape
from flowctl.connectors.stream import StreamInfo, StreamProblem
from flowctl.model.position import LandedPosition, LsnPosition
from flowctl.model.step import StreamPlan, StreamStep
from flowctl.model.table_info import Column, ObjectName, RowEstimate, TableInfo
from flowctl.observe.metadata import with_metadata
from flowctl.observe.world import Observed, SeenStream
from flowctl.plan.case import Case
from flowctl.plan.streams import StreamCase, plan_stream
from flowctl.spec.spec import ReportedDeletes, StreamSpec, StreamTable, TableSpec, TargetRef
from flowctl.state.document import StateDocument, StreamState, TableState
from flowctl.storage.landing import LandedBatch, LandedTable
from tests.plan.worlds import LAKE, LINEAGE, MARK, NOW, ORDERS, committed, high, recorded, target

STREAM = StreamSpec(name="cdc", flow="shop", connection="pg", mark=MARK)
SYSTEM = "postgres:7/5"
#: Where batches end: batch n at LSN 0/n000.
HEAD = LsnPosition(0x9000)


def stream_table(id: str, **keys: Any) -> TableSpec:
    """A merge of ``cdc:public.<id>`` into ``lake:<id>`` by its primary key."""
    given: dict[str, Any] = {
        "source": StreamTable("pg", ("public", id), stream="cdc"),
        "target": TargetRef("lake", (id,)),
        "mode": "merge",
        "key": ("id",),
        "deletes": ReportedDeletes(),
        "mark": MARK,
        **keys,
    }
    return TableSpec(id=id, **given)


def info(id: str, columns: Sequence[Column] = ORDERS, **extra: Any) -> TableInfo:
    more = {"identity_columns": ["id"], "replica_identity": "d", "published": "7", "row_filter": None, **extra}
    name = ObjectName(("public", id))
    rows = RowEstimate(1204, "stats", 212_000)
    return TableInfo(
        name, tuple(columns), f"{SYSTEM}/{id}", clock=NOW, system=SYSTEM, rows=rows, primary_key=("id",), extra=more
    )


def seen(spec: TableSpec, source: TableInfo | None = None, **keys: Any) -> Observed:
    source = with_metadata(spec, source or info(spec.id))
    return Observed(source=source, watermark=replace(high(), rows=source.rows), **keys)


def joined(spec: TableSpec, batch: int, **keys: Any) -> tuple[Observed, TableState]:
    """A table whose last commit was that of ``batch``, and its target."""
    position = LandedPosition(batch, str(end(batch)), str(end(1)))
    state = recorded(spec, position, **keys)
    state = replace(state, definition=definition_of(spec))
    there = replace(target(), object=spec.target.object)
    return seen(spec, target=there, commit=committed(table=spec.id, position=position)), state


def definition_of(spec: TableSpec) -> dict[str, Any]:
    from flowctl.plan.definition import definition

    return definition(spec, with_metadata(spec, info(spec.id)))


def end(batch: int) -> LsnPosition:
    return LsnPosition(batch * 0x1000)


def batch(number: int, changes: Mapping[str, int], shape: str = "s1") -> LandedBatch:
    tables = [LandedTable(ObjectName(("public", id)), {"1": shape}, count) for id, count in changes.items()]
    moment = (NOW + dt.timedelta(seconds=number)).isoformat().replace("+00:00", "Z")
    return LandedBatch(number, end(number - 1), end(number), moment, (), tuple(tables))


def shape(id: str, columns: Sequence[Column] = ORDERS) -> Shape:
    return Shape(ObjectName(("public", id)), f"{SYSTEM}/{id}", tuple(columns), ("id",))


def asked(problems: Sequence[StreamProblem] = (), **keys: Any) -> StreamInfo:
    given: dict[str, Any] = {
        "system": SYSTEM,
        "label": "slot flowctl_shop_cdc",
        "removal": "SELECT pg_drop_replication_slot('flowctl_shop_cdc')",
        "head": HEAD,
        "oldest": end(4),
        "clock": NOW + dt.timedelta(seconds=48),
        "lag": 20480,
        "retained": 91_000_000,
        "published": "11/700",
        "health": {"wal_status": "reserved"},
        "problems": tuple(problems),
        **keys,
    }
    return StreamInfo(**given)


def new_stream(**keys: Any) -> SeenStream:
    return SeenStream(StateDocument(LINEAGE), info=asked(oldest=None, lag=None, retained=None, health={}, **keys))


def running(
    tables: Mapping[str, TableState],
    waiting: Sequence[LandedBatch] = (),
    stream: StreamState | None = None,
    info: StreamInfo | None = None,
    shapes: Mapping[str, Shape] | None = None,
) -> SeenStream:
    """All tables have come to batch 4, or to where ``stream`` says."""
    state = stream or StreamState(source=SYSTEM, published="11/700", applied=4)
    document = StateDocument(LINEAGE, 1044, tables=dict(tables), stream=state)
    newest = waiting[-1] if waiting else batch(4, {})
    return SeenStream(document, info or asked(), newest, tuple(waiting), shapes or {})


def stream_plan(
    stream: SeenStream, tables: Sequence[tuple[TableSpec, Observed]], spec: StreamSpec = STREAM, **keys: Any
) -> StreamPlan:
    cases = [
        Case(
            table=table,
            observed=observed,
            state=stream.state.table(table.id),
            ddl=LAKE,
            spec_path="spec.yaml",
            **keys,
        )
        for table, observed in tables
    ]
    return plan_stream(StreamCase(spec, stream, "spec.yaml"), cases)


def step_of(plan: StreamPlan, id: str) -> StreamStep:
    return next(step for step in plan.steps if step.id == id)
