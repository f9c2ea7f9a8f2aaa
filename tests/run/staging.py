"""What tests of staging share: a source and a target that are frames."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flowctl.connectors.buffered import frame_of
from flowctl.connectors.source import PLACE_COLUMN, ReadRequest, Snapshot
from flowctl.connectors.target import WriteJob
from flowctl.diagnostics import Mark
from flowctl.engine.batch import InMemory, OnEngine
from flowctl.engine.spark_types import columns_of
from flowctl.model import sidecars, types
from flowctl.model.commit import Commit, Intent
from flowctl.model.interval import Interval
from flowctl.model.position import NoPosition, VersionPosition
from flowctl.model.projection import Columns
from flowctl.model.step import Load, PlannedTable, SeenTarget
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.plan.projection import projection
from flowctl.resolve.names import own_columns
from flowctl.run.appending import IntervalRead
from flowctl.run.stage import StagedBatch, Staging, stage
from flowctl.spec.spec import (
    Cursor,
    ObjectSource,
    TableSpec,
    TargetRef,
)
from flowctl.storage.buffer import Buffer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MARK = Mark("flow.yaml", 1, 1)
SOURCE = (
    Column("id", types.INT32),
    Column("note", types.STRING),
    Column("gone", types.BOOL),
    Column("at", types.TIMESTAMP),
)
TABLE = TableSpec(
    id="orders",
    source=ObjectSource("src", ("orders",)),
    target=TargetRef("dst", ("orders",)),
    mode="merge",
    mark=MARK,
    key=("id",),
    cursor=Cursor("at"),
    valid_from="at",
)
#: Columns of targets with soft deletes and of histories.
SOFT_OR_CURRENT = "id int, _deleted_at timestamp, is_current boolean"


def day(number: int) -> dt.datetime:
    return dt.datetime(2026, 1, number, tzinfo=dt.UTC)


@dataclass(frozen=True)
class FrameSnapshot(Snapshot):
    """All rows, and those of ``interval`` from its lower bound on; rows without a cursor where it includes them. Of an
    interval of versions, ``at`` is the time of each row's version."""

    rows: DataFrame
    has_places: bool = False

    def frame(self, request: ReadRequest) -> DataFrame:
        frame = self.rows
        interval = request.interval
        if interval is not None and interval.cursor_column is not None:
            start = interval.read_from
            bound = f"at >= timestamp '{start.text()}'" if start is not None else "at IS NOT NULL"
            frame = frame.where(f"({bound}) OR at IS NULL" if interval.include_null else bound)
        places = [f"at AS {PLACE_COLUMN}"] if self.has_places else []
        return frame.selectExpr(*[column.name for column in request.columns], *places)

    def is_empty(self, request: ReadRequest) -> bool:
        return self.frame(request).isEmpty()


@dataclass(frozen=True)
class FrameTarget:
    """Only what staging asks of a target."""

    rows: DataFrame | None
    quarantined: DataFrame | None = None
    is_log: bool = False

    def describe(self, objects: Sequence[ObjectName]) -> dict[ObjectName, TableInfo | None]:
        found = {one: self._of(one) for one in objects}
        return {one: rows and TableInfo(one, tuple(columns_of(rows.schema)), "t") for one, rows in found.items()}

    def scan(self, spark: SparkSession, object: ObjectName, columns: Sequence[Column]) -> DataFrame:
        rows = self._of(object)
        assert rows is not None
        return rows.select(*[column.name for column in columns])

    def _of(self, object: ObjectName) -> DataFrame | None:
        return self.quarantined if object.parts[-1].endswith(sidecars.QUARANTINE) else self.rows


@dataclass(frozen=True)
class Bench:
    spark: SparkSession
    buffer: Buffer
    in_memory: bool

    def stage(
        self, table: TableSpec, rows: list[tuple[Any, ...]], target: DataFrame | None = None, **step: Any
    ) -> StagedBatch:
        made = projection(table, SOURCE)
        own = own_columns(table)
        planned = PlannedTable(
            id=table.id,
            mark=MARK,
            source=str(table.source),
            target=str(table.target),
            mode=table.mode,
            key=table.key,
            via="staged",
            seen=SeenTarget(target is not None),
        )
        columns = Columns(SOURCE, (*(part.column for part in made), *own.values()), made)
        frame = self.spark.createDataFrame(rows, "id int, note string, gone boolean, at timestamp")
        interval = step.pop("interval", Interval(None, NoPosition()))
        full, quarantined = step.pop("write_full", table.mode == "truncate"), step.pop("quarantined", None)
        load = Load(table=planned, reason="", seq=1, interval=interval, columns=columns, write_full=full, **step)
        intent = Intent("intent", 1, interval, {}, "", "run", 1, "2026-02-01T00:00:00.000000Z")
        commit = Commit("lineage", table.id, 1, "intent", "t" if target else "", None)
        snapshot = FrameSnapshot(frame, has_places=isinstance(interval.upper, VersionPosition))
        read = snapshot.frame(ReadRequest(SOURCE, interval))
        work = Staging(
            self.spark,
            snapshot,
            IntervalRead(InMemory(read.toArrow()) if self.in_memory else OnEngine(read), interval.upper),
            load,
            columns,
            table,
            intent,
            FrameTarget(target, quarantined),  # type: ignore[arg-type]
            self.buffer,
            WriteJob(commit, table.target.object, table.mode, (), replace=full),
        )
        staged = stage(work)
        return replace(staged, batch=OnEngine(frame_of(staged.batch, self.spark, lambda: self.buffer.folder("staged"))))

    def target(self, *keys: int) -> DataFrame:
        return self.spark.createDataFrame([(key,) for key in keys], "id int")


def rows_of(staged: StagedBatch, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in staged.batch.frame.select(*columns).collect())
