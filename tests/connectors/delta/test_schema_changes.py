"""Changes of a schema after which old rows mean something else: the changes since then are lost, whatever files say."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from flowctl.connectors.source import ReadRequest, WatermarkRequest
from flowctl.model.interval import Interval
from tests.connectors.delta.test_source import FEED, ORDERS, path, position, put, source, watermark
from tests.connectors.reading import captured_rows, describe

__all__ = ["path", "source"]

#: The columns of a table with column mapping: their names in files, ids and types, by name.
Mapped = Mapping[str, tuple[str, int, str]]
MAPPED: Mapped = {"id": ("p-id", 1, "long"), "a": ("p-a", 2, "string"), "b": ("p-b", 3, "string")}


def lost(source: Any, since: int = 0) -> str:
    found = watermark(source, since).changes
    assert found is not None
    return str(found.lost)


class MappedTable:
    """Writes a log as the protocol has it: deltalake does not write tables with column mapping."""

    def __init__(self, path: str) -> None:
        self.folder, self.version = Path(path), -1
        (self.folder / "_delta_log").mkdir(parents=True)
        protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
        self.commit(protocol, self.schema(MAPPED), self.add(MAPPED, (1, "a1", "b1")))

    def commit(self, *actions: Mapping[str, Any]) -> None:
        self.version += 1
        text = "\n".join(map(json.dumps, ({"commitInfo": {"operation": "BY HAND"}}, *actions)))
        (self.folder / "_delta_log" / f"{self.version:020}.json").write_text(text)

    def schema(self, columns: Mapped) -> dict[str, Any]:
        marks = ("delta.columnMapping.physicalName", "delta.columnMapping.id")
        fields = [
            {"name": name, "type": kind, "nullable": True, "metadata": dict(zip(marks, (stored, id), strict=True))}
            for name, (stored, id, kind) in columns.items()
        ]
        settings = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9"}
        schema = json.dumps({"type": "struct", "fields": fields})
        made = {"id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema}
        return {"metaData": {**made, "partitionColumns": [], "configuration": settings, "createdTime": 1}}

    def add(self, columns: Mapped, *rows: tuple[Any, ...]) -> dict[str, Any]:
        name = f"{uuid.uuid4()}.parquet"
        fields = [
            pa.field(stored, pa.int64() if kind == "long" else pa.string(), metadata={"PARQUET:field_id": str(id)})
            for stored, id, kind in columns.values()
        ]
        values = [pa.array(of, field.type) for of, field in zip(zip(*rows, strict=True), fields, strict=True)]
        pq.write_table(pa.table(values, schema=pa.schema(fields)), self.folder / name)
        size = (self.folder / name).stat().st_size
        return {"add": {"path": name, "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": True}}


def test_a_column_that_was_renamed(source: Any, path: str) -> None:
    made, renamed = MappedTable(path), {"id": MAPPED["id"], "a": MAPPED["a"], "c": MAPPED["b"]}
    made.commit(made.schema(renamed))
    assert lost(source) == "column c was called b in version 0"
    made.commit(made.add(renamed, (2, "a2", "b2")))
    assert lost(source) == "column c was called b in version 0"
    assert lost(source, 1) == ""
    assert captured_rows(source, ORDERS)[-1] == {"id": 2, "a": "a2", "c": "b2"}


@pytest.mark.parametrize("since", [None, 0], ids=["the whole table", "changes"])
def test_a_column_that_was_renamed_after_an_interval_was_begun(source: Any, path: str, since: int | None) -> None:
    made = MappedTable(path)
    made.commit(made.add(MAPPED, (2, "a2", "b2")))
    begun = Interval(None if since is None else position(source, since), position(source, 1))

    def lost_under(columns: Mapped) -> str:
        made.commit(made.schema(columns))
        info = describe(source, ORDERS)
        wanted = ReadRequest(info.columns, None, net=True, key=("id",))
        request = WatermarkRequest(ORDERS, info, since=begun.lower, changes=wanted, begun=begun)
        return str(source.high_watermarks({"orders": request})["orders"].begun_lost)

    assert lost_under({**MAPPED, "new": ("p-new", 4, "long")}) == ""
    assert lost_under({"id": MAPPED["id"], "a": MAPPED["a"]}) == ""  # a column that is gone is not read
    assert lost_under({"id": MAPPED["id"], "a": MAPPED["a"], "c": MAPPED["b"]}) == "column c was called b in version 1"


def test_columns_that_exchanged_their_names(source: Any, path: str) -> None:
    made = MappedTable(path)
    made.commit(made.schema({"id": MAPPED["id"], "a": MAPPED["b"], "b": MAPPED["a"]}))
    assert lost(source) == "column a was called b in version 0"


def test_a_column_that_was_dropped_and_added_again(source: Any, path: str) -> None:
    made = MappedTable(path)
    made.commit(made.schema({name: MAPPED[name] for name in ("id", "a")}))
    assert lost(source) == ""
    again: Mapped = {**MAPPED, "b": ("p-b2", 4, "string")}
    made.commit(made.schema(again), made.add(again, (2, "a2", "b2")))
    assert lost(source) == "column b was another one in version 0"
    assert lost(source, 1) == ""
    assert [row["b"] for row in captured_rows(source, ORDERS)] == [None, "b2"]


def test_a_column_that_is_new_loses_nothing(source: Any, path: str) -> None:
    made = MappedTable(path)
    wide: Mapped = {**MAPPED, "c": ("p-c", 4, "long")}
    made.commit(made.schema(wide), made.add(wide, (2, "a2", "b2", 7)))
    assert lost(source) == ""


@pytest.mark.parametrize("feed", [{}, FEED], ids=["without feed", "with feed"])
def test_a_table_partitioned_in_another_way(source: Any, path: str, feed: Mapping[str, str]) -> None:
    put(path, (1, "a"), configuration=feed)
    put(path, (2, "b"))
    rows = pa.table({"id": [1, 3], "note": ["a", "c"]})
    write_deltalake(path, rows, mode="overwrite", schema_mode="overwrite", partition_by=["note"])
    assert lost(source) == "the table was partitioned in another way in version 0"
    assert lost(source, 1) == "the table was partitioned in another way in version 1"
    write_deltalake(path, pa.table({"id": [4], "note": ["d"]}), mode="append")
    assert lost(source, 2) == ""
    write_deltalake(path, rows, mode="overwrite", schema_mode="overwrite", partition_by=["id"])
    assert lost(source, 3) == "the table was partitioned in another way in version 3"
    assert sorted(row["id"] for row in captured_rows(source, ORDERS)) == [1, 3]


def test_a_type_that_was_another_one_in_between(source: Any, path: str) -> None:
    """The feed has rows of every version."""
    put(path, (1, "a"), configuration=FEED)
    write_deltalake(path, pa.table({"id": ["one"], "note": ["a"]}), mode="overwrite", schema_mode="overwrite")
    write_deltalake(path, pa.table({"id": [1], "note": ["b"]}), mode="overwrite", schema_mode="overwrite")
    assert lost(source) == "column id had another type in version 1"
    put(path, (2, "c"))
    assert lost(source, 2) == ""
