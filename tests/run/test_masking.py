"""Masks are applied before rows lie in the buffer, and are the very ones that Spark makes of the same values."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from flowctl.connectors.buffered import frame_of
from flowctl.connectors.source import Capture, ReadRequest, Snapshot
from flowctl.diagnostics import Mark
from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import CursorPosition, NoPosition
from flowctl.model.table_info import Column
from flowctl.model.value import TypedValue
from flowctl.plan.projection import projection
from flowctl.run.batch import projected
from flowctl.run.masking import maskable
from flowctl.run.reading import LandedSnapshot, rows_of
from flowctl.spec.spec import ColumnRules, Cursor, DetectFlag, ObjectSource, TableSpec, TargetRef
from flowctl.storage.buffer import Buffer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = (
    Column("id", types.INT32),
    Column("mail", types.STRING),
    Column("ssn", types.INT64),
    Column("vip", types.BOOL),
    Column("born", types.DATE),
)
ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int32()),
        "mail": ["ann@planted.example", None, "zoë 'q' \U0001f600"],
        "ssn": pa.array([-7, 123456789012, None], pa.int64()),
        "vip": [True, None, False],
        "born": pa.array([None, 0, 1], pa.date32()),
    }
)
MASKED = ("mail", "ssn", "vip", "born")
TABLE = TableSpec(
    id="people",
    source=ObjectSource("src", ("people",)),
    target=TargetRef("dst", ("people",)),
    mode="truncate",
    mark=Mark("flow.yaml", 1),
    columns=ColumnRules(mask=dict.fromkeys(MASKED, "sha256"), rename={"mail": "address"}),
)
EVERYTHING = Interval(None, NoPosition())


class People(Snapshot, Capture):
    """What this process reads itself: as a landed source's capture, and as a small direct read."""

    def read(self, request: ReadRequest, sink, rejected=None) -> int:
        for batch in ROWS.to_batches():
            sink.write(batch)
        return ROWS.num_rows

    def rows_in_memory(self, request: ReadRequest) -> pa.Table:
        return ROWS

    def frame(self, request: ReadRequest):
        raise AssertionError("the rows are few")

    def is_empty(self, request: ReadRequest) -> bool:
        return False


def sha256(value: object) -> str | None:
    return None if value is None else hashlib.sha256(str(value).encode()).hexdigest()


@pytest.mark.parametrize("landed", [True, False], ids=["landed", "small"])
def test_only_hashes_lie_in_the_buffer(spark: SparkSession, tmp_path: Path, landed: bool) -> None:
    buffer = Buffer(str(tmp_path / "shop"), "run-1", {})
    snapshot = LandedSnapshot(spark, People(), buffer) if landed else People()
    request = ReadRequest(SOURCE, masked=maskable(TABLE, SOURCE, EVERYTHING))
    rows = rows_of(snapshot, request)
    frame = frame_of(rows, spark, lambda: buffer.folder("read"))
    made = projected(frame, projection(TABLE, SOURCE), SOURCE).toArrow().to_pydict()
    assert made["address"] == [*map(sha256, ROWS["mail"].to_pylist())]
    assert made["ssn"] == [*map(sha256, ROWS["ssn"].to_pylist())]
    assert made["vip"] == [sha256("true"), None, sha256("false")]
    assert made["born"] == [None, sha256("1970-01-01"), sha256("1970-01-02")]
    direct = spark.createDataFrame([(*row.values(),) for row in ROWS.to_pylist()],
                                   "id int, mail string, ssn long, vip boolean, born date")  # fmt: skip
    assert projected(direct, projection(TABLE, SOURCE), SOURCE).toArrow().to_pydict() == made
    segments = list((tmp_path / "shop" / "buffer").rglob("*.parquet"))
    assert segments
    for segment in segments:
        assert {"mail", "ssn", "vip"}.isdisjoint(pa.parquet.read_schema(segment).names)
        assert b"planted" not in segment.read_bytes()


def test_what_is_needed_unmasked_stays() -> None:
    assert maskable(TABLE, SOURCE, EVERYTHING) == {"mail", "ssn", "vip"}  # a date's text is Spark's to make
    assert maskable(replace(TABLE, cursor=Cursor("ssn")), SOURCE, EVERYTHING) == {"mail", "vip"}
    assert maskable(replace(TABLE, deletes=DetectFlag("vip", (True,), "hard")), SOURCE, EVERYTHING) == {"mail", "ssn"}
    adding = replace(TABLE.columns, add={"domain": "split(Mail, '@')[1]"})
    assert maskable(replace(TABLE, columns=adding), SOURCE, EVERYTHING) == {"ssn", "vip"}
    at = CursorPosition(TypedValue(types.INT64, 1))
    append = replace(TABLE, mode="append")
    assert (
        maskable(append, SOURCE, Interval(None, at, cursor_column="id")) == set()
    )  # rows at the position are told by what they are in the source
