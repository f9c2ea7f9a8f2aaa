"""What a TRUNCATE in the source of a stream removes: as many rows as the target has, however few the batch has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from flowctl.connectors.target import OP_COLUMN, WriteJob
from flowctl.engine.batch import InMemory, OnEngine
from flowctl.model.commit import Commit, Intent
from flowctl.model.interval import Interval
from flowctl.model.position import LandedPosition
from flowctl.model.projection import Columns
from flowctl.model.step import Load, PlannedTable, SeenTarget
from flowctl.model.table_info import ObjectName
from flowctl.plan.projection import projection
from flowctl.run.appending import IntervalRead
from flowctl.run.stage import Staging, stage
from flowctl.run.streaming.snapshots import KEPT, ORIGIN, ChangesSnapshot
from flowctl.spec.spec import ReportedDeletes, StreamTable
from flowctl.storage.buffer import Buffer
from tests.run.staging import MARK, SOURCE, TABLE, FrameTarget

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOFT = replace(
    TABLE,
    source=StreamTable("src", ("orders",), stream="cdc"),
    cursor=None,
    valid_from=None,
    deletes=ReportedDeletes("soft"),
)
COLUMNS = SOURCE[:1]


@pytest.mark.engine
@pytest.mark.parametrize("truncated_at", [None, 0])
def test_deletions_of_a_truncate_are_not_held_in_memory(
    spark: SparkSession, tmp_path: Path, truncated_at: int | None
) -> None:
    buffer = Buffer(str(tmp_path), "run", {})
    interval = Interval(LandedPosition(1), LandedPosition(2))
    folded: Any = {"id": [1], OP_COLUMN: ["U"], KEPT: [None], ORIGIN + "id": [1]}
    kinds = {"id": pa.int32(), OP_COLUMN: pa.string(), KEPT: pa.string(), ORIGIN + "id": pa.int32()}
    rows = InMemory(pa.table(folded, pa.schema(kinds)))
    unread: Any = None
    snapshot = ChangesSnapshot(
        spark, unread, unread, (), ObjectName(("orders",)), SOFT, ("id",), "", lambda: buffer.folder("changes")
    )
    snapshot._read[COLUMNS], snapshot._truncated[COLUMNS] = rows, truncated_at
    made = projection(SOFT, COLUMNS)
    planned = PlannedTable(
        id="orders",
        mark=MARK,
        source="src",
        target="dst",
        mode="merge",
        key=("id",),
        via="staged",
        seen=SeenTarget(True),
    )
    columns = Columns(COLUMNS, tuple(part.column for part in made), made)
    work = Staging(
        spark,
        snapshot,
        IntervalRead(rows, interval.upper),
        Load(table=planned, reason="", seq=2, interval=interval, columns=columns),
        columns,
        SOFT,
        Intent("intent", 2, interval, {}, "", "run", 1, "2026-02-01T00:00:00.000000Z"),
        FrameTarget(spark.createDataFrame([(key,) for key in range(1, 4)], "id int")),  # type: ignore[arg-type]
        buffer,
        WriteJob(Commit("", "orders", 2, "intent", "t", None), SOFT.target.object, SOFT.mode, ()),
    )
    batch = stage(work).batch
    if truncated_at is None:
        assert isinstance(batch, InMemory) and batch.rows.select(["id", OP_COLUMN]).to_pylist() == [
            {"id": 1, OP_COLUMN: "U"}
        ]
    else:
        assert isinstance(batch, OnEngine)
        found = batch.frame.orderBy("id").select("id", OP_COLUMN).collect()
        assert [tuple(row) for row in found] == [(1, "U"), (2, "D"), (3, "D")]
