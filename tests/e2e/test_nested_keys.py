"""Keys that are lists or structs: refused where the second run would not find the rows of the first, used elsewhere."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.e2e.flows import Flow, duckdb_rows

SCD2 = "scd2, scd2: {valid_from: now}"
NESTED = pa.struct([("a", pa.int64())])


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("merge", pa.list_(pa.int64())),
        pytest.param("merge", NESTED, marks=pytest.mark.full),
        pytest.param(SCD2, pa.list_(pa.int64()), marks=pytest.mark.full),
    ],
    ids=["list", "struct", "history"],
)
def test_the_plan_refuses_them(mode: str, kind: pa.DataType, tmp_path: Path) -> None:
    flow = written(tmp_path, kind, mode)
    done = flow.run("plan", "flow.yaml", expect=6)
    assert 'rows of lake:t cannot be found by the key column "k"' in done.words
    assert 'rows of ice:t cannot be found by the key column "k"' in done.words
    assert "Name a `key` of columns without parts" in done.words
    assert "duck:t cannot" not in done.words
    flow.write(flow.spec.read_text().replace("url: sail", 'url: "local[1]"'))  # Delta's MERGE finds them
    done = flow.run("plan", "flow.yaml", expect=6)
    assert "ice:t cannot" in done.words and "lake:t cannot" not in done.words


@pytest.mark.full
@pytest.mark.server
def test_a_database_finds_them(tmp_path: Path) -> None:
    flow = written(tmp_path, pa.list_(pa.int64()), "merge")
    flow.run("apply", "flow.yaml", "--select", "duck", expect=0)
    write(tmp_path, pa.list_(pa.int64()), "after")
    flow.run("apply", "flow.yaml", "--select", "duck", expect=0)
    assert duckdb_rows(tmp_path / "d.duckdb", "SELECT v FROM t") == [("after",)]


def written(folder: Path, kind: pa.DataType, mode: str) -> Flow:
    write(folder, kind, "before")
    tables = [
        f'  {name}: {{from: "in:t.parquet", to: "{name}:t", key: [k], mode: {mode}}}'
        for name in ("lake", "ice", "duck")
    ]
    flow = Flow(folder)
    flow.write(
        """
version: 1
flow: shop
state: state
spark: {url: sail}
connections:
  in: {type: files, path: .}
  lake: {type: delta, path: lake}
  ice: {type: iceberg, warehouse: ice}
  duck: {type: duckdb, path: d.duckdb}
tables:
"""
        + "\n".join(tables)
    )
    return flow


def write(folder: Path, kind: pa.DataType, value: str) -> None:
    keys = pa.array([[1, 2]] if pa.types.is_list(kind) else [{"a": 1}], kind)
    pq.write_table(pa.table({"k": keys, "v": [value]}), folder / "t.parquet")
