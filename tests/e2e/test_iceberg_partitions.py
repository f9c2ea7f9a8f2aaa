"""Iceberg tables that others made with hidden partitions: each row is in the partition that the table defines."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, MonthTransform, Transform, TruncateTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestampType

from flowctl.connectors.iceberg.file_io import plain
from tests.connectors.iceberg.iceberg_tables import catalog_of
from tests.e2e.flows import Flow, iceberg_query, sqlite_script

SPEC = """
version: 1
flow: shop
state: state
spark: {url: sail}
connections:
  src: {type: sqlite, path: source.db}
  lake: {type: iceberg, warehouse: lake}
tables:
  orders: {from: src:orders, to: lake, MODE}
"""
FIELDS = (
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "note", StringType(), required=False),
    NestedField(3, "at", TimestampType(), required=False),
)
TRANSFORMS: dict[str, tuple[int, Transform]] = {  # type: ignore[type-arg]
    "bucket": (1, BucketTransform(3)),
    "truncate": (2, TruncateTransform(2)),
    "month": (3, MonthTransform()),
    "day": (3, DayTransform()),
}


@pytest.mark.full
@pytest.mark.parametrize("mode", ["mode: merge, key: [id]", "mode: truncate"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_rows_are_in_their_partitions(tmp_path: Path, transform: str, mode: str) -> None:
    source, derive = TRANSFORMS[transform]
    spec = PartitionSpec(PartitionField(source, 1000, derive, "part"))
    with catalog_of(tmp_path / "lake") as catalog:
        made = catalog.create_table_transaction(
            ("default", "orders"), Schema(*FIELDS), partition_spec=spec, properties={}
        )
        catalog.commit_table(made._table, made._requirements, made._updates)
    flow = Flow(tmp_path)
    flow.write(SPEC.replace("MODE", mode))
    rows = ", ".join(
        f"({id}, '{chr(96 + id)}äx', '2026-{1 + id % 12:02}-0{1 + id % 9} 23:59:59')" for id in range(1, 20)
    )
    create = "CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT, at TIMESTAMP)"
    sqlite_script(tmp_path / "source.db", f"{create}; INSERT INTO orders VALUES {rows}, (50, NULL, NULL)")
    flow.run("state", "adopt", "flow.yaml", "orders", "--position", "beginning", "--yes", expect=0)
    flow.apply()
    sqlite_script(tmp_path / "source.db", "UPDATE orders SET note = 'zz', at = '2027-01-01' WHERE id IN (3, 50)")
    flow.apply()
    found = []
    with catalog_of(tmp_path / "lake") as catalog:
        table = catalog.load_table(("default", "orders"))
        assert table.spec() == spec
        of_value = derive.transform(FIELDS[source - 1].field_type)
        for task in table.scan().plan_files():
            for row in pq.ParquetFile(plain(task.file.file_path)).read().to_pylist():
                value = row[FIELDS[source - 1].name]
                assert task.file.partition[0] == of_value(_stored(value)), row
                found.append((row["id"], row["note"]))
    wanted = [(id, f"{chr(96 + id)}äx" if id != 3 else "zz") for id in range(1, 20)] + [(50, "zz")]
    assert sorted(found) == wanted
    read = iceberg_query(tmp_path / "lake" / "default" / "orders", "SELECT id, note FROM {table}")
    assert sorted(read) == wanted


def _stored(value: object) -> object:
    """A moment as Iceberg stores it: microseconds since 1970."""
    if not isinstance(value, dt.datetime):
        return value
    return (value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
