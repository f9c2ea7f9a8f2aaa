"""Vacuum of a table in whose folder other tables are."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from flowctl.connectors.delta import vacuum as delta_vacuum
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.table import open_existing as open_delta
from flowctl.connectors.iceberg import data_files
from flowctl.connectors.iceberg import vacuum as iceberg_vacuum
from flowctl.connectors.iceberg.table import TablePlace, new_table
from flowctl.connectors.iceberg.table import open_existing as open_iceberg
from flowctl.connectors.iceberg.writer import Draft
from flowctl.connectors.lake import stored_files
from flowctl.connectors.lake.stored_files import StoredFile
from flowctl.model import types
from flowctl.model.table_info import Column
from tests.connectors.iceberg.iceberg_tables import catalog_of

ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})
DAYS = 8 * 86400


def make_delta(folder: Path) -> None:
    write_deltalake(str(folder), ROWS)


def make_iceberg(folder: Path) -> None:
    with catalog_of(folder.parent) as catalog:
        table = new_table(TablePlace(catalog, (folder.name,), {}), [Column("id", types.INT64)])
        draft = Draft(table, table.transaction())
        draft.replace_files(data_files.write(table.metadata, {}, ROWS.to_batches()), [], same_rows=True)
        assert draft.hand_over()


def make_files(folder: Path) -> None:
    commit = folder / "_flowctl" / "commits" / "00000000000000000001.json"
    commit.parent.mkdir(parents=True)
    commit.write_text("{}")
    pq.write_table(ROWS, folder / "0000000001-0123abcd-0123456789abcdef-00000.parquet")


def removable_of_delta(folder: Path) -> list[StoredFile]:
    table = open_delta(TableLocation(str(folder), {}))
    return delta_vacuum.removable(table, stored_files.LEAST_RETENTION)


def removable_of_iceberg(folder: Path) -> list[StoredFile]:
    with catalog_of(folder.parent) as catalog:
        return iceberg_vacuum.due(open_iceberg(TablePlace(catalog, (folder.name,), {})))[0]


@pytest.fixture(autouse=True)
def all_files_are_old(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (delta_vacuum, iceberg_vacuum):
        monkeypatch.setattr(module, "time", lambda: time.time() + DAYS)


@pytest.mark.parametrize("make", [make_delta, make_iceberg, make_files])
@pytest.mark.parametrize("below", ["data/x", "data/x/y", "metadata/x"])
@pytest.mark.parametrize("outer", ["delta", "iceberg"])
def test_files_of_a_table_below_are_kept_and_own_orphans_found(
    outer: str, below: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    folder = tmp_path / "orders"
    {"delta": make_delta, "iceberg": make_iceberg}[outer](folder)
    make(folder / below)
    orphans = {"data/orphan.parquet", "data/p=1/orphan.parquet", "data/x1/orphan.parquet"}
    for orphan in orphans:
        (folder / orphan).parent.mkdir(parents=True, exist_ok=True)
        (folder / orphan).write_bytes(b"x")
    found = removable_of_delta(folder) if outer == "delta" else removable_of_iceberg(folder)
    assert {file.name for file in found} == orphans


@pytest.mark.parametrize("name", ["data", "metadata"])
def test_an_iceberg_table_in_a_folder_that_the_outer_one_uses_itself(name: str, tmp_path: Path) -> None:
    """`shop.orders.data` in `shop.orders`: both have files in `orders/data`."""
    folder = tmp_path / "orders"
    make_iceberg(folder)
    make_iceberg(folder / name)
    orphans = {"data/orphan.parquet", "data/p=1/orphan.parquet", "metadata/orphan-m0.avro"}
    for orphan in orphans:
        (folder / orphan).parent.mkdir(parents=True, exist_ok=True)
        (folder / orphan).write_bytes(b"x")
    (folder / name / "data" / "theirs.parquet").write_bytes(b"x")
    assert {file.name for file in removable_of_iceberg(folder)} == orphans
    assert {file.name for file in removable_of_iceberg(folder / name)} == {"data/theirs.parquet"}


@pytest.mark.parametrize("make", [make_delta, make_files])
def test_another_table_whose_files_are_right_in_the_folder_data(make: Callable[[Path], None], tmp_path: Path) -> None:
    """Its files cannot be told from orphans, so none is deleted."""
    folder = tmp_path / "orders"
    make_iceberg(folder)
    make(folder / "data")
    assert removable_of_iceberg(folder) == []


def test_an_iceberg_table_in_the_folder_of_a_delta_table(tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    make_delta(folder)
    make_iceberg(folder)
    (folder / "orphan.parquet").write_bytes(b"x")
    assert {file.name for file in removable_of_delta(folder)} == {"orphan.parquet"}
