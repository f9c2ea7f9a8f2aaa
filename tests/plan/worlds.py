"""Hand-made worlds: small specs, what was observed of them, and the plan that follows.

The target can do what Delta can; its statements are written out here, so that these tests hold the plan and not the
text of a connector.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flowctl.connectors.delta import CAPABILITIES
from flowctl.connectors.delta.target import DeltaTarget
from flowctl.connectors.source import HighWatermark
from flowctl.connectors.target import Fill, WriteShape
from flowctl.diagnostics import Mark
from flowctl.errors import FlowctlError
from flowctl.model import types
from flowctl.model.commit import Commit, Intent
from flowctl.model.interval import Interval
from flowctl.model.position import CursorPosition, NoPosition, Position
from flowctl.model.projection import Columns
from flowctl.model.schema_change import SchemaChange
from flowctl.model.step import Plan, Step, Stopped
from flowctl.model.table_info import Column, ObjectName, RowEstimate, TableInfo
from flowctl.model.types import DataType
from flowctl.model.value import TypedValue, from_text
from flowctl.observe.world import Observed, PositionKind, World
from flowctl.plan.build import build
from flowctl.plan.definition import definition
from flowctl.resolve import dag, select
from flowctl.resolve.resolve import PlanOptions, Resolved
from flowctl.spec.spec import (
    Connection,
    Cursor,
    Layout,
    ObjectSource,
    SparkSettings,
    Spec,
    SqlSource,
    StateLocation,
    TableSpec,
    TargetRef,
)
from flowctl.state.document import StateDocument, TableState

NOW = dt.datetime(2026, 11, 20, 6, 20, tzinfo=dt.UTC)
LINEAGE = "0123456789abcdef0123456789abcdef"
MARK = Mark("spec.yaml", 48, 3)

ID = Column("id", types.INT64, nullable=False)
AMOUNT = Column("amount", types.Decimal(12, 2))
UPDATED_AT = Column("updated_at", types.TIMESTAMP)
ORDERS = (ID, AMOUNT, UPDATED_AT)


class LakeDdl(DeltaTarget):
    """Delta's rules, with statements that are easy to read."""

    def __init__(self) -> None:
        super().__init__("/lake", {}, None, CAPABILITIES)

    def create_statements(self, object: ObjectName, columns: Sequence[Column], layout: Layout) -> list[str]:
        listed = ", ".join(f"{column.name} {types.spark_ddl(column.type)}" for column in columns)
        return [f"CREATE TABLE {object} ({listed})"]

    def explain_create(self, columns: Sequence[Column], layout: Layout) -> str:
        return f"statistics for {', '.join(layout.statistics)}" if columns and layout.statistics else ""

    def filled_columns(self, there: TableInfo) -> Mapping[str, Fill]:
        filled: Mapping[str, Fill] = there.extra.get("filled", {})
        return filled

    def limited_columns(self, there: TableInfo, written: Collection[str]) -> list[Column]:
        return [column for column in there.columns if column.name in written and column.native.endswith("(0)")]

    def explain_write(
        self, object: ObjectName, there: TableInfo | None, write: WriteShape, engine: str, conf: Mapping[str, str]
    ) -> str:
        return ""

    def alter_statements(self, info: TableInfo, changes: Sequence[SchemaChange]) -> list[SchemaChange]:
        return [replace(change, statement=_statement(str(info.object), change)) for change in changes]


def _statement(name: str, change: SchemaChange) -> str:
    kind = types.spark_ddl(change.new) if change.new else ""
    match change.action:
        case "add" | "text":
            return f"ALTER TABLE {name} ADD COLUMNS ({change.column} {kind})"
        case "widen":
            return f"ALTER TABLE {name} ALTER COLUMN {change.column} TYPE {kind}"
        case "relax":
            return f"ALTER TABLE {name} ALTER COLUMN {change.column} DROP NOT NULL"
        case _:
            return ""


LAKE = LakeDdl()


def at(text: str, kind: DataType = types.TIMESTAMP) -> TypedValue:
    return from_text(kind, text)


def cursor(text: str) -> CursorPosition:
    return CursorPosition(at(text))


EVERYTHING = PlanOptions()
REFRESH = PlanOptions(full_refresh=("orders",))
#: How far the last run came, and how far the source has come since.
OLD, NEW = cursor("2026-11-19T22:10:04Z"), cursor("2026-11-20T06:15:33Z")


def table(id: str = "orders", **keys: Any) -> TableSpec:
    """A merge of ``pg:public.<id>`` into ``lake:<id>`` by cursor, unless ``keys`` say otherwise."""
    merge = {"key": ("id",), "cursor": Cursor("updated_at")} if keys.get("mode", "merge") == "merge" else {}
    given: dict[str, Any] = {
        "source": ObjectSource("pg", ("public", id)),
        "target": TargetRef("lake", (id,)),
        "mode": "merge",
        "mark": MARK,
        **merge,
        **keys,
    }
    return TableSpec(id=id, **given)


def sql_table(id: str, *refs: str, **keys: Any) -> TableSpec:
    sql = "SELECT 1 AS one" + "".join(f" FROM {{{{ref:{ref}}}}}" for ref in refs)
    return table(id, **{"source": SqlSource(sql, tuple(sorted(refs))), "mode": "truncate", **keys})


def source(columns: Sequence[Column] = ORDERS, identity: str = "postgres:7/16384") -> TableInfo:
    system = identity.rpartition("/")[0]
    return TableInfo(ObjectName(("public", "orders")), tuple(columns), identity, clock=NOW, system=system)


def target(columns: Sequence[Column] = ORDERS, identity: str = "delta-1", version: int = 7) -> TableInfo:
    extra: dict[str, Any] = {"properties": {}, "features": [], "partition_by": []}
    columns = tuple(Column(column.name, column.type) for column in columns)
    rows = RowEstimate(1000, "count")
    return TableInfo(ObjectName(("orders",)), columns, identity, version=version, rows=rows, extra=extra)


SOURCE = source()


def high(position: Position | None = None, rows: int | None = 15204, **keys: Any) -> HighWatermark:
    estimate = RowEstimate(rows, "count", 1_900_000) if rows is not None else RowEstimate()
    return HighWatermark(position, estimate, NOW, **keys)


def committed(seq: int = 3, intent_id: str = "i3", position: Position | None = None, **keys: Any) -> Commit:
    table, target_id = keys.pop("table", "orders"), keys.pop("target_id", "delta-1")
    return Commit(LINEAGE, table, seq, intent_id, target_id, position, **keys)


def unchanged_target(position: Position = OLD) -> dict[str, Any]:
    """The target as the last run left it, for :func:`observed`."""
    return {"target": target(), "commit": committed(position=position)}


def recorded(spec: TableSpec, position: Position | None, **keys: Any) -> TableState:
    """What three runs leave that found the source and the target as :func:`source` and :func:`target` show them."""
    given: dict[str, Any] = {
        "seq": 3,
        "intent_id": "i3",
        "position": position,
        "definition": definition(spec, None if isinstance(spec.source, SqlSource) else source()),
        "schema": ORDERS,
        "target_columns": target().columns,
        "target_id": "delta-1",
        "target_version": 7,
        "highest": 3,
        **keys,
    }
    return TableState(**given)


def intent(spec: TableSpec, interval: Interval, **keys: Any) -> Intent:
    given: dict[str, Any] = {
        "id": "i4",
        "seq": 4,
        "definition": definition(spec, source()),
        "target_id": "delta-1",
        "run_id": "20261119T221004-1",
        "fence": 9,
        "at": "2026-11-19T22:10:04.000000Z",
        **keys,
    }
    return Intent(interval=interval, **given)


def observed(
    watermark: HighWatermark | None = None,
    source: TableInfo | None = SOURCE,
    target: TableInfo | None = None,
    commit: Commit | None = None,
    positions: PositionKind = "cursor",
    error: FlowctlError | None = None,
) -> Observed:
    return Observed(source, target, watermark or HighWatermark(NoPosition(), RowEstimate()), commit, positions, error)


def flow(*tables: TableSpec) -> Spec:
    connections = {
        "pg": Connection("pg", "postgres", {}, MARK),
        "lake": Connection("lake", "delta", {"path": "s3://lake"}, MARK),
        "bus": Connection("bus", "kafka", {"brokers": "b1:9092"}, MARK),
        "files": Connection("files", "files", {"path": "s3://inbox"}, MARK),
    }
    return Spec(
        flow="shop",
        state=StateLocation("s3://lake/_flowctl"),
        connections=connections,
        storage={},
        spark=SparkSettings(),
        tables=tables,
        digest="d" * 64,
        path="spec.yaml",
    )


def world(
    tables: Mapping[str, Observed], states: Mapping[str, TableState] | None = None, serial: int = 41, **keys: Any
) -> World:
    document = StateDocument(LINEAGE, serial if states else 0, tables=states or {})
    return World(NOW, document, tables, {"lake": LAKE}, **keys)


def plan(seen: World, *tables: TableSpec, request: PlanOptions = EVERYTHING) -> Plan:
    spec = flow(*tables)
    ordered = dag.in_order(tables)
    edges = dag.needs(ordered)
    chosen = select.selected(edges, request.select, request.exclude)
    resolved = Resolved(ordered, edges, chosen, frozenset(request.full_refresh), backfill=request.backfill)
    return build(spec, resolved, seen, request)


def steps(spec: TableSpec, seen: Observed, state: TableState) -> tuple[Step, ...]:
    """All of a plan over one table: a begun number has a step of its own."""
    return plan(world({spec.id: seen}, {spec.id: state}), spec).steps


def step(spec: TableSpec, seen: Observed, state: TableState | None = None, request: PlanOptions = EVERYTHING) -> Step:
    """The first step of a plan over one table."""
    states = {spec.id: state} if state else None
    return plan(world({spec.id: seen}, states), spec, request=request).steps[0]


def changes(step: Step) -> tuple[SchemaChange, ...] | None:
    """None where they are known when run."""
    if isinstance(step, Stopped):
        return step.changes
    return step.columns.changes if isinstance(step.columns, Columns) else None


def statements(step: Step) -> tuple[str, ...]:
    """A stopped table runs none."""
    return () if isinstance(step, Stopped) else step.columns.statements
