"""Merges by marks: what Spark hides flowctl finds hidden, what flowctl hides no engine shows, in any order."""

from __future__ import annotations

import base64
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from flowctl.connectors.delta import deletion_vectors, target
from flowctl.connectors.delta.choice import Choice, Way
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.target import OP_COLUMN
from flowctl.engine.session import has_jvm
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.spec.spec import Layout
from tests.connectors.delta import delta_tables
from tests.connectors.writing import COLUMNS, SOFT, Writer, gone, row, upserts


def merge(writer: Writer, rows: list[dict[str, Any]], seq: int, **fields: Any) -> Any:
    """As staging has counted it."""
    return writer.write(rows, seq, "merge", rows=len(rows), **fields)


@settings(deadline=None)
@given(st.sets(st.one_of(st.integers(0, 300), st.integers(0, 2**40)), min_size=1))
def test_a_vector_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, rows: set[int]) -> None:
    location = TableLocation(str(tmp_path_factory.mktemp("t")), {})
    written = deletion_vectors.write(location, {"a": BitMap64(rows), "b": BitMap64([7])})
    assert set(deletion_vectors.read(location, written["a"])) == rows
    assert set(deletion_vectors.read(location, written["b"])) == {7}


def test_the_older_format_of_the_protocols_example_is_refused(tmp_path: Path) -> None:
    """Delta protocol, *Deletion Vectors*: its inline example has another magic number than its format."""
    example = {
        "storageType": "i",
        "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        "sizeInBytes": 40,
        "cardinality": 6,
    }
    with pytest.raises(TableError, match="a format that flowctl does not know"):
        deletion_vectors.read(TableLocation(str(tmp_path), {}), example)


def test_pythons_table_of_digits_is_there_before_several_threads_read_vectors() -> None:
    """Python's base85 builds it in the first call, and does not lock it: other threads would find it half empty. A
    later Python may have none."""
    import_first = "import base64; from flowctl.connectors.delta import deletion_vectors"
    filled = "assert getattr(base64, '_b85dec', True)"
    subprocess.run([sys.executable, "-c", f"{import_first}; {filled}"], check=True)


def test_an_inline_vector_is_read(tmp_path: Path) -> None:
    data = deletion_vectors._MAGIC + BitMap64([3, 4, 2**40]).serialize()
    padded = data + b"\0" * (-len(data) % 4)
    text = base64.b85encode(padded).decode().translate(deletion_vectors._TO_Z85)
    descriptor = {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": 3}
    assert set(deletion_vectors.read(TableLocation(str(tmp_path), {}), descriptor)) == {3, 4, 2**40}


def test_a_damaged_vector_is_an_error(tmp_path: Path) -> None:
    location = TableLocation(str(tmp_path), {})
    descriptor = deletion_vectors.write(location, {"a": BitMap64([1, 2, 3])})["a"]
    (file,) = tmp_path.glob("deletion_vector_*.bin")
    file.write_bytes(file.read_bytes()[:-6] + b"damage")
    with pytest.raises(TableError, match="damaged"):
        deletion_vectors.read(location, descriptor)


def test_sparks_vectors_and_ours_add_up(writer: Writer) -> None:
    """200,000 rows in one file: several containers of the bitmap, and runs."""
    spark, location = writer.spark, delta_tables.location(writer)
    merge(writer, [], 1)
    rows = spark.range(0, 200_000, 1, 1).selectExpr("id", "'a' AS name", "CAST(NULL AS DECIMAL(12,2)) AS amount")
    rows.write.format("delta").mode("append").save(location.spark_path)
    writer.place.execute("DELETE FROM {table} WHERE id BETWEEN 1000 AND 90000 OR id % 7 = 0")
    (before,) = [file for file in delta_tables.files(writer) if "deletionVector" in file]
    hidden = deletion_vectors.read(location, before["deletionVector"])
    assert len(hidden) == before["deletionVector"]["cardinality"]
    ids = [*range(100_000, 100_500), 5, 1001, 7]  # there, there, hidden, hidden
    done = merge(writer, upserts(*(row(id, "b") for id in ids)), 2)
    assert (done.counts.inserted, done.counts.updated) == (2 + len([id for id in ids[:500] if id % 7 == 0]), 429)
    (after,) = [file for file in delta_tables.files(writer) if "deletionVector" in file]
    assert after["path"] == before["path"]
    assert after["deletionVector"]["cardinality"] == len(hidden) + 429
    assert json.loads(after["stats"])["tightBounds"] is False
    found = spark.read.format("delta").load(location.spark_path)
    alive = {id for id in range(200_000) if not (1000 <= id <= 90_000 or id % 7 == 0)} | set(ids)
    assert found.count() == len(alive)
    assert {id for (id,) in found.where("name = 'b'").select("id").collect()} == set(ids)
    writer.place.execute("DELETE FROM {table} WHERE id = 100001")  # Spark goes on from our vector
    assert found.count() == len(alive) - 1


@pytest.mark.long_on_spark
def test_a_file_without_rows_is_gone(writer: Writer) -> None:
    merge(writer, upserts(*(row(id) for id in range(4))), 1)
    first = {file["path"] for file in delta_tables.files(writer)}
    done = merge(writer, [gone(0), gone(1), gone(2), *upserts(row(3, "b"))], 2)
    assert (done.counts.updated, done.counts.deleted) == (1, 3)
    assert delta_tables.content(writer) == {3: "b"}
    assert first.isdisjoint(file["path"] for file in delta_tables.files(writer))
    assert not any("deletionVector" in file for file in delta_tables.files(writer))


@pytest.mark.long_on_spark
def test_nothing_changed_touches_no_file(writer: Writer) -> None:
    merge(writer, upserts(row(1), row(2)), 1)
    before = delta_tables.files(writer)
    assert merge(writer, [*upserts(row(1)), gone(9)], 2).counts.updated == 0
    assert delta_tables.files(writer) == before


@pytest.mark.parametrize("soft", [True, pytest.param(False, marks=pytest.mark.full)])
@pytest.mark.full
def test_histories_by_both_writers_are_those_of_a_dictionary(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, soft: bool
) -> None:
    chance = random.Random(7)
    own = target.choose
    columns = (*COLUMNS, SOFT) if soft else COLUMNS
    model: dict[int, str] = {}
    for seq in range(1, 8):
        by_turns = own if seq % 3 or not has_jvm(writer.spark) else lambda *given: Choice(Way.STATEMENTS)
        monkeypatch.setattr(target, "choose", by_turns)
        batch = {chance.randrange(30): chance.choice(["a", "b", "c", None]) for _ in range(12)}
        empty = dict.fromkeys((column.name for column in columns), None)
        rows = [
            {**empty, "id": id, "name": name, OP_COLUMN: "D" if name is None else "U"} for id, name in batch.items()
        ]
        merge(writer, rows, seq, columns=columns, soft_deletes=soft)
        model = {id: name for id, name in {**model, **batch}.items() if name is not None}
        if soft:
            there = writer.place.read(["id", "name", "_deleted_at"])
            assert len({id for id, _, _ in there}) == len(there)
            assert {id: name for id, name, deleted in there if deleted is None} == model
        else:
            assert delta_tables.content(writer) == model
    assert any("deletionVector" in file for file in delta_tables.files(writer))


@pytest.mark.long_on_spark
def test_vectors_outlive_a_checkpoint(writer: Writer) -> None:
    """Those are deltalake's, made every tenth version."""
    merge(writer, upserts(*(row(id) for id in range(40))), 1)
    merge(writer, upserts(row(2, "b"), row(3, "b")), 2)
    DeltaTable(delta_tables.location(writer).url).create_checkpoint()
    folder = Path(delta_tables.location(writer).url, "_delta_log")
    for entry in (*folder.glob("0*.json"), *folder.glob("0*.crc")):
        if int(entry.stem) < 2:
            entry.unlink()
    assert any("deletionVector" in file for file in delta_tables.files(writer))
    assert delta_tables.content(writer) == {id: "b" if id in (2, 3) else "a" for id in range(40)}
    merge(writer, upserts(row(2, "c")), 3)
    assert delta_tables.content(writer) == {id: {2: "c", 3: "b"}.get(id, "a") for id in range(40)}


@pytest.mark.needs("Delta's own statements")
def test_what_cannot_be_marked_is_merged_by_delta(writer: Writer) -> None:
    merge(writer, upserts(row(1)), 1)
    job = writer.job(2, "merge", rows=1)
    assert delta_tables.way(writer, job) is Way.MARKS
    assert delta_tables.way(writer, writer.job(2, "merge")) is Way.STATEMENTS, "nobody knows how many rows"
    assert delta_tables.way(writer, writer.job(2, "merge", rows=10_000_000)) is Way.STATEMENTS, "too many rows"
    writer.place.execute("ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')")
    assert delta_tables.way(writer, job) is Way.STATEMENTS, "no deletion vectors"
    writer.place.execute("ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    assert delta_tables.way(writer, job) is Way.MARKS
    writer.place.execute("ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    writer.place.execute("ALTER TABLE {table} ALTER COLUMN amount TYPE DECIMAL(14, 2)")
    wider = tuple(Column("amount", types.Decimal(14, 2)) if c.name == "amount" else c for c in COLUMNS)
    assert delta_tables.way(writer, writer.job(2, "merge", rows=1, columns=wider)) is Way.STATEMENTS, (
        "files of another type"
    )


@pytest.mark.needs("Delta's own statements")
def test_a_column_that_hides_the_place_is_left_to_delta(writer: Writer) -> None:
    columns = (*COLUMNS, Column("_metadata", types.STRING))
    merge(writer, upserts({**row(1), "_metadata": "m"}), 1, columns=columns)
    assert delta_tables.way(writer, writer.job(3, "merge", rows=1, columns=columns)) is Way.STATEMENTS


@pytest.mark.long_on_spark
def test_partitioned_tables_are_merged_by_delta(writer: Writer) -> None:
    layout = Layout(partition_by=("name",))
    statements = writer.place.target.create_statements(writer.place.object, list(COLUMNS), layout)
    merge(writer, upserts(row(1, "a"), row(2, "b")), 1, layout=layout, create=statements)
    merge(writer, upserts(row(1, "b")), 2, layout=layout)
    assert delta_tables.content(writer) == {1: "b", 2: "b"}
