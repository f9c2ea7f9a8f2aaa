"""Rows found by this process: exactly the live ones with a key of the batch, with the values that engines see."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.delta.file_reader import DataFile, partition_value, reading
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.lake import row_search
from flowctl.connectors.lake.row_search import FILE, ROW, Search
from flowctl.connectors.lake.table import Unreadable
from flowctl.errors import TableError, TransientError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import DataType
from tests.connectors.delta import delta_tables
from tests.connectors.sinks import Rows
from tests.connectors.test_target_types import ALL, ZONED, differing
from tests.connectors.writing import Writer

ID, TEXT, NAME = Column("id", types.INT64), Column("text", types.STRING), Column("name", types.STRING)


def file(folder: Path, name: str, rows: pa.Table, **options: Any) -> DataFile:
    pq.write_table(rows, folder / name, **options)
    return DataFile(name, BitMap64, {})


def search(folder: Path, files: Sequence[DataFile], columns: Sequence[Column], keys: pa.Table) -> list[dict[str, Any]]:
    sink = Rows()
    size = Search(partial(reading, TableLocation(str(folder), {})), files, tuple(columns)).collect_rows(keys, sink)
    assert size == sum(batch.nbytes for batch in sink.batches)
    return sink.rows()


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[list[tuple[int | None, str | None]]], list[set[int]], set[Any], int]:
    key = st.tuples(st.one_of(st.none(), st.integers(0, 9)), st.one_of(st.none(), st.sampled_from("abc")))
    files = draw(st.lists(st.lists(key, max_size=30), max_size=4))
    hidden = [draw(st.sets(st.integers(0, max(len(rows) - 1, 0)))) for rows in files]
    keys = draw(st.sets(st.tuples(st.integers(0, 9), st.sampled_from("abc"))))
    return files, hidden, keys, draw(st.integers(1, 12))


@settings(deadline=None)
@given(tables(), st.booleans())
def test_exactly_the_live_rows_with_a_key(
    tmp_path_factory: pytest.TempPathFactory, made: tuple[Any, ...], both: bool
) -> None:
    """One column as the key, or two; row groups, batches and files end anywhere. A null is no key."""
    files, hidden, keys, size = made
    folder, data_files, wanted = tmp_path_factory.mktemp("t"), [], []
    wanted_ids = {id for id, _ in keys}
    for at, rows in enumerate(files):
        named = [str(row) for row in range(len(rows))]
        content = {"id": [id for id, _ in rows], "text": [text for _, text in rows], "name": named}
        table = pa.table(content, arrow_schema([ID, TEXT, NAME]))
        pq.write_table(table, folder / f"{at}", row_group_size=size)
        data_files.append(DataFile(f"{at}", lambda at=at: BitMap64(hidden[at]), {}))  # type: ignore[misc]
        wanted += [
            {"id": id, "text": text, "name": str(row), FILE: at, ROW: row}
            for row, (id, text) in enumerate(rows)
            if row not in hidden[at] and ((id, text) in keys if both else id in wanted_ids)
        ]
    wanted_keys = pa.table({"id": [id for id, _ in keys], "text": [text for _, text in keys]}, arrow_schema([ID, TEXT]))
    with mock.patch.multiple(row_search, _KEY_ROWS=5, _ROWS=3, _MANY=4):
        assert (
            search(folder, data_files, [ID, TEXT, NAME], wanted_keys if both else wanted_keys.select(["id"])) == wanted
        )


KEYS: dict[str, tuple[DataType, list[Any]]] = {
    **{name: ALL[name] for name in ("bool", "short", "int", "long", "decimal", "whole", "text", "binary", "date")},
    "tiny": (types.INT8, [-128, 127]),
    "local": (types.TIMESTAMP_NTZ, [at.replace(tzinfo=None) for at in ZONED]),
    "moment": (types.TIMESTAMP, ZONED),
    "amount": (types.Decimal(12, 2), [decimal.Decimal("-0.01"), decimal.Decimal("9999999999.99")]),
}


@pytest.mark.parametrize("name", KEYS)
def test_a_key_of_each_type(name: str, tmp_path: Path) -> None:
    kind, values = KEYS[name]
    column = Column("k", kind)
    data_files = [file(tmp_path, "f", pa.table({"k": [*values, None]}, arrow_schema([column])))]
    for row, value in enumerate(values):
        keys = pa.table({"k": [value]}, arrow_schema([column]))
        assert search(tmp_path, data_files, [column], keys) == [{"k": value, FILE: 0, ROW: row}]


@pytest.mark.parametrize("kind", [types.DOUBLE, types.FLOAT], ids=str)
def test_floats_are_the_keys_that_engines_take_them_for(kind: DataType, tmp_path: Path) -> None:
    column, nan = Column("k", kind), float("nan")
    data_files = [file(tmp_path, "f", pa.table({"k": [-0.0, nan, 1.5, None]}, arrow_schema([column])))]
    for value, row in ((0.0, 0), (-0.0, 0), (-nan, 1), (1.5, 2)):
        keys = pa.table({"k": [value]}, arrow_schema([column]))
        assert [found[ROW] for found in search(tmp_path, data_files, [column], keys)] == [row]


def test_what_has_parts_is_no_key(tmp_path: Path) -> None:
    column = Column("k", types.Array(types.INT64))
    with pytest.raises(Unreadable, match="key column k has parts"):
        search(tmp_path, [], [column], pa.table({"k": [[1]]}, arrow_schema([column])))


PARTITIONS: list[tuple[DataType, str, Any]] = [
    (types.INT32, "-5", -5),
    (types.STRING, "ä b/c", "ä b/c"),
    (types.BOOL, "true", True),
    (types.DATE, "0001-01-01", dt.date(1, 1, 1)),
    (types.Decimal(10, 2), "-0.01", decimal.Decimal("-0.01")),
    (types.TIMESTAMP, "2026-01-01 00:00:00.000001", dt.datetime(2026, 1, 1, 0, 0, 0, 1, dt.UTC)),
    (types.TIMESTAMP, "2026-01-01T00:00:00.000001Z", dt.datetime(2026, 1, 1, 0, 0, 0, 1, dt.UTC)),
    (types.TIMESTAMP_NTZ, "2026-01-01 02:03:04", dt.datetime(2026, 1, 1, 2, 3, 4)),
]


@pytest.mark.parametrize(("kind", "text", "value"), PARTITIONS, ids=[f"{kind}-{text}" for kind, text, _ in PARTITIONS])
def test_values_of_partitions(kind: DataType, text: str, value: Any, tmp_path: Path) -> None:
    """They are not in the file; as a key, and as a column of its rows."""
    column = Column("p", kind)
    assert partition_value(text, kind).as_py() == value
    assert partition_value(None, kind).as_py() is partition_value("", kind).as_py() is None
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "f")
    data_files = [DataFile("f", BitMap64, {"p": text})]
    found = search(tmp_path, data_files, [ID, column], pa.table({"p": [value]}, arrow_schema([column])))
    assert found == [{"id": id, "p": value, FILE: 0, ROW: id - 1} for id in (1, 2)]
    assert search(tmp_path, data_files, [ID, column], pa.table({"id": [2]})) == [found[1]]


def test_a_file_that_is_older_than_a_column(tmp_path: Path) -> None:
    data_files = [
        file(tmp_path, "old", pa.table({"id": [1, 2]})),
        file(tmp_path, "new", pa.table({"name": ["a"], "id": [1]})),
    ]
    assert search(tmp_path, data_files, [ID, NAME], pa.table({"id": [1]})) == [
        {"id": 1, "name": None, FILE: 0, ROW: 0},
        {"id": 1, "name": "a", FILE: 1, ROW: 0},
    ]
    assert search(tmp_path, data_files[:1], [ID, NAME], pa.table({"name": ["a"]})) == []


def test_other_writers_types_of_the_same_values(tmp_path: Path) -> None:
    """Spark's old timestamps, which say nothing of a zone; narrow, dictionary and large forms of Arrow's."""
    at = dt.datetime(1, 1, 1, 0, 0, 0, 1)
    columns = [ID, NAME, TEXT, Column("local", types.TIMESTAMP_NTZ), Column("moment", types.TIMESTAMP)]
    rows = pa.table(
        {
            "id": pa.array([1], pa.int32()),
            "name": pa.array(["a"]).dictionary_encode(),
            "text": pa.array(["b"], pa.large_string()),
            "local": pa.array([at]),
            "moment": pa.array([at]),
        }
    )
    data_files = [file(tmp_path, "f", rows, use_deprecated_int96_timestamps=True)]
    found = {"id": 1, "name": "a", "text": "b", "local": at, "moment": at.replace(tzinfo=dt.UTC), FILE: 0, ROW: 0}
    assert search(tmp_path, data_files, columns, pa.table({"id": pa.array([1], pa.int32())})) == [found]


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"id": [1]}).replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}),
        pa.table({"ID": [1]}),
        pa.table({"id": ["no number"]}),
        pa.table({"id": [1.5]}),
    ],
    ids=["another calendar", "another name", "another type", "not exactly"],
)
def test_what_is_not_read_exactly_is_left_to_the_engine(rows: pa.Table, tmp_path: Path) -> None:
    path = tmp_path / "f"
    pq.write_table(rows, path)
    with pytest.raises(Unreadable):
        search(tmp_path, [DataFile("f", BitMap64, {})], [ID], pa.table({"id": [1]}))


def test_a_file_that_is_gone_is_tried_again(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match="f is gone"):
        search(tmp_path, [DataFile("f", BitMap64, {})], [ID], pa.table({"id": [1]}))


@pytest.mark.parametrize("content", [None, b"", b"PAR1"], ids=["missing", "empty", "cut off"])
def test_a_file_that_the_newest_version_needs_is_not_tried_again(tmp_path: Path, content: bytes | None) -> None:
    """Nor by Spark, which could not read it either."""
    write_deltalake(tmp_path, pa.table({"id": [1]}))
    (path,) = tmp_path.glob("*.parquet")
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TableError, match="is missing" if content is None else "is damaged") as caught:
        search(tmp_path, [DataFile(path.name, BitMap64, {})], [ID], pa.table({"id": [1]}))
    assert type(caught.value) is TableError and caught.value.hint.startswith("Restore the file")


@pytest.mark.long_on_spark
def test_values_of_every_type_that_stay_with_a_changed_row(writer: Writer) -> None:
    """They go through this process, as columns that are not the batch's; and a row that comes again is no change."""
    columns = (ID, *(Column(name, kind) for name, (kind, _) in ALL.items()), NAME)
    depth = max(len(values) for _, values in ALL.values())
    rows = [
        {"id": at, "name": "a", **{name: values[at] if at < len(values) else None for name, (_, values) in ALL.items()}}
        for at in range(depth)
    ]
    merge = {"columns": columns, "rows": depth}
    writer.write(rows, 1, "merge", **merge)
    before = delta_tables.files(writer)
    assert writer.write(rows, 2, "merge", **merge).counts.updated == 0
    assert delta_tables.files(writer) == before
    changed = [{"id": at, "name": "b"} for at in range(1, depth)]
    assert writer.write(changed, 3, "merge", columns=(ID, NAME), rows=depth).counts.updated == depth - 1
    assert any("deletionVector" in file for file in delta_tables.files(writer)), "marked, on any engine"
    rows[1:] = [{**row, "name": "b"} for row in rows[1:]]
    wanted, have = writer.frame(rows, columns), writer.place.target
    assert differing(wanted, have.scan(writer.spark, writer.place.object, columns), columns) == []
