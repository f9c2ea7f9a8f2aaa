"""Tables whose folder is not theirs alone, or not theirs at all: metadata name files by their full paths."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import Table

from flowctl.connectors.iceberg.maintain import carry_out, find_due
from flowctl.connectors.iceberg.own_folder import is_same_place
from flowctl.connectors.iceberg.table import TablePlace, open_existing, open_table
from flowctl.connectors.iceberg.versions import newest_version
from flowctl.connectors.maintenance import Maintenance, Task
from flowctl.errors import StoppedByPolicy
from flowctl.model.table_info import ObjectName
from tests.connectors.iceberg.foreign_tables import NAMESPACE
from tests.connectors.iceberg.iceberg_tables import catalog_of
from tests.connectors.iceberg.source_reading import SCHEMA, rows

NAME = ("default", "orders")


def create(warehouse: Path) -> None:
    with catalog_of(warehouse) as catalog:
        schema = Catalog._convert_schema_if_needed(SCHEMA)
        spec = UNPARTITIONED_PARTITION_SPEC
        creation = catalog.create_table_transaction(NAME, schema, partition_spec=spec, properties={})
        catalog.commit_table(creation._table, creation._requirements, creation._updates)


def test_a_table_that_was_copied_or_moved_is_neither_written_nor_read(tmp_path: Path) -> None:
    create(tmp_path / "old")
    (tmp_path / "old").rename(tmp_path / "new")
    with catalog_of(tmp_path / "new") as catalog:
        for ask in (open_table, newest_version):
            with pytest.raises(StoppedByPolicy, match="orders was copied or moved") as e:
                ask(TablePlace(catalog, NAME, {}))
            assert f"it is in {tmp_path}/new/default/orders" in e.value.message
            assert f"Move it back to {tmp_path}/old/default/orders" in str(e.value.hint)


def test_a_table_that_is_reached_by_a_link_is_where_it_was(tmp_path: Path) -> None:
    create(tmp_path / "old")
    (tmp_path / "link").symlink_to(tmp_path / "old")
    with catalog_of(tmp_path / "link") as catalog:
        assert open_table(TablePlace(catalog, NAME, {})) is not None


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("file:/x/y/", "/x/y", True),
        ("file:///x//y", "/x/y", True),
        ("s3a://bucket/y/", "s3://bucket/y", True),
        ("abfss://box@account.dfs.core.windows.net/y", "az://box/y", True),
        ("s3://bucket/y", "s3://other/y", False),
        ("s3://bucket/y", "gs://bucket/y", False),
        ("hdfs://host/x/y", "/x/y", False),
        ("/x/y", "/x/z", False),
    ],
)
def test_places_are_compared_however_they_are_written(one: str, other: str, is_same: bool) -> None:
    assert is_same_place(one, other) is is_same


def test_no_file_is_deleted_where_two_tables_share_a_folder(catalog: SqlCatalog, orders: Table) -> None:
    other = catalog.create_table(f"{NAMESPACE}.other", schema=SCHEMA, location=orders.location())
    other.append(rows((1, "a")))
    orders.append(rows((2, "b")))
    place = TablePlace(catalog, (NAMESPACE, "orders"), {})
    folder = Path(orders.location().removeprefix("file://"))
    long_ago = time.time() - 20 * 86400
    for path in folder.rglob("*.*"):
        os.utime(path, (long_ago, long_ago))
    before = set(folder.rglob("*"))
    due = find_due(open_existing(place), ObjectName(("orders",)))
    assert not due.tasks and "is of another table" in due.left_out
    list(carry_out(place, Maintenance(due.object, (Task("vacuum", "", {}),)), lambda: None))
    assert set(folder.rglob("*")) == before
    assert other.refresh().scan().to_arrow().num_rows == 1
