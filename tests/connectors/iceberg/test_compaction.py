"""Data files and their compaction, of tables that end files early: it ends, and its result is not due again."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from flowctl.connectors.iceberg import compaction, data_files, maintain
from flowctl.connectors.iceberg.table import OpenTable, TablePlace, new_table, open_existing
from flowctl.connectors.iceberg.writer import Draft
from flowctl.model import types
from flowctl.model.table_info import Column, ObjectName
from tests.connectors.iceberg.iceberg_tables import catalog_of, change

TARGET, FILES = 4000, 60
COLUMNS = (Column("id", types.INT64), Column("note", types.STRING), Column("region", types.INT64))


def add_files(place: TablePlace, partition_by: tuple[str, ...]) -> None:
    """Files with between one and forty rows: the largest reach the target."""
    draw = random.Random(1)
    table = new_table(place, COLUMNS, partition_by)
    some = [
        pa.table(
            {"id": [at] * count, "note": [draw.randbytes(50).hex() for _ in range(count)], "region": [at % 2] * count}
        )
        for at, count in ((at, draw.randint(1, 40)) for at in range(FILES))
    ]
    draft = Draft(table, table.transaction())
    files = [file for rows in some for file in data_files.write(table.metadata, {}, rows.to_batches())]
    draft.replace_files(files, [], same_rows=True)
    assert draft.hand_over()
    limit = {"write.target-file-size-bytes": str(TARGET)}
    change(place.catalog, place.identifier, lambda transaction: transaction.set_properties(limit))


def content(table: OpenTable) -> list[tuple[int, str]]:
    found = table.handle.scan().to_arrow()
    return sorted(zip(found["id"].to_pylist(), found["note"].to_pylist(), strict=True))


@pytest.mark.parametrize("partition_by", [(), ("region",)], ids=["unpartitioned", "partitioned"])
def test_files_that_reach_the_tables_own_target_are_not_written_again(
    partition_by: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "_SLICE_BYTES", 1000)  # else a round writes one file, however large
    monkeypatch.setattr(maintain, "MANY", 5)
    monkeypatch.setattr(compaction, "MANY", 5)
    with catalog_of(tmp_path) as catalog:
        place, object = TablePlace(catalog, ("default", "orders"), {}), ObjectName(("orders",))
        add_files(place, partition_by)
        before = open_existing(place)
        (task, *_) = maintain.find_due(before, object).tasks
        rounds: list[None] = []

        def count_round() -> None:
            rounds.append(None)
            assert len(rounds) < 5

        compaction.compact(place, count_round)
        after = open_existing(place)
        assert content(after) == content(before) and 10 < len(after.files) < len(before.files)
        assert len(after.files) <= task.figures["files_after"] < len(before.files)
        small = [task for task in after.files if task.file.file_size_in_bytes < TARGET]
        assert len(small) <= (2 if partition_by else 1)
        assert maintain.find_due(after, object).tasks == ()
        assert maintain.note_for_plan(after.info(object)) == ""


def test_a_null_and_the_text_null_are_two_partitions(tmp_path: Path) -> None:
    """Their folders have the same name."""
    with catalog_of(tmp_path) as catalog:
        place = TablePlace(catalog, ("default", "orders"), {})
        table = new_table(place, (Column("id", types.INT64), Column("note", types.STRING)), ("note",))
        rows = pa.table({"id": [1, 2], "note": ["null", None]})
        draft = Draft(table, table.transaction())
        draft.replace_files(data_files.write(table.metadata, {}, rows.to_batches()), [], same_rows=True)
        assert draft.hand_over()
        handle = open_existing(place).handle
        assert handle.scan(row_filter="note is null").to_arrow()["id"].to_pylist() == [2]
        assert handle.scan(row_filter="note = 'null'").to_arrow()["id"].to_pylist() == [1]
