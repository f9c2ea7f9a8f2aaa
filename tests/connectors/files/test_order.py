"""The order of rows in files: by path, then as they stand in the file, whoever reads them and in how many pieces."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from flowctl.connectors.source import PLACE_COLUMN, ReadRequest
from flowctl.engine import cost
from flowctl.engine.session import has_jvm
from flowctl.spec.spec import ReadHints
from tests.connectors.reading import describe, files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long_on_spark

ROWS = 3_000
PARTITION_BYTES = "spark.sql.files.maxPartitionBytes"
#: As paths are compared: Spark's encoding of them would have another order.
NAMES = ("a b", "a!b", "a%20c", "a+b", "b")
FORMATS: dict[str, dict[str, Any]] = {
    "csv": {},
    "csv with an escape": {"type": "csv", "escape": "\\"},
    "jsonl": {"schema": {"id": "bigint"}},
    "parquet": {},
    "orc": {},
}


def write(path: Path, kind: str, ids: Sequence[int]) -> None:
    match kind:
        case "jsonl":
            path.write_text("".join(json.dumps({"id": id}) + "\n" for id in ids))
        case "parquet":
            pq.write_table(pa.table({"id": ids}), path, row_group_size=700)
        case "orc":
            orc.write_table(pa.table({"id": ids}), str(path))
        case _:
            path.write_text("\n".join(["id", *map(str, ids)]) + "\n")


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.needs("CSV with an escape")] if "escape" in kind else [])
        for kind in FORMATS
    ],
)
def test_rows_of_files_have_an_order(
    spark: SparkSession, inbox: Path, source: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "_MOST_FILE_BYTES", 5_000)
    monkeypatch.setattr(cost, "FILE_OPENING_BYTES", 1_000)
    extension = kind.partition(" ")[0]
    expected = []
    for at, name in enumerate(sorted(NAMES)):
        ids = [(at * ROWS + number) * 7919 % 100_003 for number in range(ROWS)]
        write(inbox / f"{name}.{extension}", extension, ids)
        expected += ids
    relation = files(f"*.{extension}", **FORMATS[kind])
    info = describe(source, relation)
    with source.snapshot(spark, relation, info, ReadHints()) as snapshot:
        assert not snapshot.has_places
        ordered: Any = snapshot.in_order()
        assert ordered.has_places
        with small_partitions(spark):
            rows = ordered.frame(ReadRequest(info.columns)).collect()
    assert [int(row["id"]) for row in sorted(rows, key=lambda row: row[PLACE_COLUMN])] == expected


@contextmanager
def small_partitions(spark: SparkSession) -> Iterator[None]:
    if not has_jvm(spark):
        yield
        return
    before = spark.conf.get(PARTITION_BYTES)
    spark.conf.set(PARTITION_BYTES, "8000")
    try:
        yield
    finally:
        spark.conf.set(PARTITION_BYTES, str(before))
