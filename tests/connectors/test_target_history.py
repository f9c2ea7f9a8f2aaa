"""scd2 through the targets' own commit; every case of the rules is tested where the SELECT is."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from deltalake import DeltaTable

from flowctl.connectors.target import DETECTED_COLUMN, OP_COLUMN
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column
from flowctl.sql.versioning import kept_columns, observed_columns
from tests.connectors.iceberg.iceberg_tables import catalog_of, drop_columns, roll_back
from tests.connectors.writing import HISTORY as COLUMNS
from tests.connectors.writing import Row, Writer


def day(number: int) -> dt.datetime:
    return dt.datetime(2026, 1, number, tzinfo=dt.UTC)


def seen(name: str, at: int) -> Row:
    row_hash = hashlib.sha256(name.encode()).hexdigest()
    return {"id": 1, "name": name, "valid_from": day(at), "row_hash": row_hash, OP_COLUMN: "U", DETECTED_COLUMN: False}


def touched(name: str, at: int, note: str) -> Row:
    return {**seen(name, at), "note": note}


def missing(at: int) -> Row:
    return {**gone(at), DETECTED_COLUMN: True}


def gone(at: int) -> Row:
    return {"id": 1, "name": None, "valid_from": day(at), "row_hash": None, OP_COLUMN: "D", DETECTED_COLUMN: False}


def versions(writer: Writer) -> list[tuple[object, ...]]:
    frame = writer.place.target.scan(writer.spark, writer.place.object, COLUMNS)
    text = frame.selectExpr("name", "dayofmonth(valid_from) AS b", "dayofmonth(valid_to) AS e", "is_current AS c")
    return [tuple(row) for row in text.orderBy("b").collect()]


def write(writer: Writer, seq: int, *rows: Row, **job: Any) -> None:
    writer.write(rows, seq, "scd2", **{"columns": COLUMNS, "compared": ("name",), **job})


def moment(number: int) -> str:
    return day(number).isoformat()


def content(writer: Writer, *names: str) -> list[tuple[Any, ...]]:
    """As an outside reader sees it."""
    return sorted(writer.place.read(names), key=str)


def of_columns(values: dict[str, str | None], at: int) -> Row:
    """A row whose hash is over its values that are not null, as the frame's is."""
    text = ";".join(f"{name}={value}" for name, value in sorted(values.items()) if value is not None)
    row_hash = hashlib.sha256(text.encode()).hexdigest()
    return {"id": 1, **values, "valid_from": day(at), "row_hash": row_hash, OP_COLUMN: "U", DETECTED_COLUMN: False}


@pytest.mark.modes("scd2")
@pytest.mark.smoke
@pytest.mark.long_on_spark
def test_late_rows_deletions_and_replays_give_the_history_of_all_observations(writer: Writer) -> None:
    write(writer, 1, seen("A", 1))
    write(writer, 2, seen("A", 5))
    assert versions(writer) == [("A", 1, None, True)]
    write(writer, 3, seen("B", 3))
    assert versions(writer) == [("A", 1, 3, False), ("B", 3, 5, False), ("A", 5, None, True)]
    write(writer, 4, gone(8))
    assert versions(writer)[-1] == ("A", 5, 8, False)
    write(writer, 5, seen("B", 3), seen("A", 5))
    assert versions(writer) == [("A", 1, 3, False), ("B", 3, 5, False), ("A", 5, 8, False)]
    write(writer, 6, seen("C", 9))
    assert versions(writer)[-1] == ("C", 9, None, True)


NOTED = (COLUMNS[0], COLUMNS[1], Column("note", types.STRING), *COLUMNS[2:])


@pytest.mark.modes("scd2")
@pytest.mark.long_on_spark
def test_a_version_has_the_row_that_it_begins_with(writer: Writer) -> None:
    for seq, row in enumerate((touched("A", 1, "first"), touched("A", 5, "touched"), touched("B", 3, "late")), 1):
        write(writer, seq, row, columns=NOTED)
    assert content(writer, "name", "note") == [("A", "first"), ("A", "touched"), ("B", "late")]
    found = dict(writer.place.read(["note", "valid_from"]))
    assert [str(found[note])[:10] for note in ("first", "late", "touched")] == [
        "2026-01-01",
        "2026-01-03",
        "2026-01-05",
    ]


@pytest.mark.modes("scd2")
@pytest.mark.long_on_spark
def test_a_key_that_is_gone_is_closed_once_and_its_return_leaves_a_gap(writer: Writer) -> None:
    """With its old event time, and with one that lies ahead of the detection."""
    write(writer, 1, seen("A", 1), at=moment(2))
    write(writer, 2, missing(7), at=moment(7))
    write(writer, 3, seen("A", 1), at=moment(9))
    assert versions(writer) == [("A", 1, 7, False), ("A", 9, None, True)]
    write(writer, 4, seen("B", 20), at=moment(10))
    write(writer, 5, missing(11), at=moment(11))
    assert versions(writer) == [("A", 1, 7, False), ("A", 9, 20, False)]  # B was never valid


@pytest.mark.modes("scd2")
@pytest.mark.long_on_spark
def test_a_flag_without_a_newer_event_time_closes_at_the_detection(writer: Writer) -> None:
    write(writer, 1, seen("A", 1), at=moment(2))
    write(writer, 2, gone(1), at=moment(7))
    write(writer, 3, gone(1), at=moment(8))
    assert versions(writer) == [("A", 1, 7, False)]


@pytest.mark.modes("scd2")
@pytest.mark.long_on_spark
@pytest.mark.full
def test_a_new_column_fills_no_old_version_and_a_dropped_one_empties_none(writer: Writer) -> None:
    after = (*COLUMNS, Column("city", types.STRING))

    def both(seq: int, *rows: Row, **job: Any) -> None:
        write(writer, seq, *rows, **{"columns": after, "compared": ("name", "city"), **job})

    write(writer, 1, of_columns({"name": "A"}, 1))
    info = writer.info()
    new = SchemaChange("city", "new_column", None, types.STRING, "add", "on_schema_change.new_column: add")
    (change,) = writer.place.target.alter_statements(info, [new])
    both(2, of_columns({"name": "A", "city": "x"}, 3), alter=[change], new_columns=("city",))
    assert content(writer, "name", "city") == [("A", "x"), ("A", None)]
    for seq in (3, 4):  # read in full after the increment that brought the column
        both(seq, of_columns({"name": "A", "city": "x"}, 1))
        assert content(writer, "name", "city") == [("A", "x"), ("A", None)]

    def without(seq: int, name: str, at: int) -> None:
        row = {**of_columns({"name": name}, at), "city": None}
        both(seq, row, compared=("name",), absent=("city",))

    without(5, "A", 3)
    without(6, "A", 5)
    assert content(writer, "name", "city") == [("A", "x"), ("A", None)]
    without(7, "B", 7)
    without(8, "B", 7)
    assert [(name, city, bool(current)) for name, city, current in content(writer, "name", "city", "is_current")] == [
        ("A", "x", False),
        ("A", None, False),
        ("B", None, True),
    ]


#: What an older version's sidecar has beside the key.
OLD_SIDECAR = ("_event_at", "row_hash", "_deleted", "_detected", "_arrival", "_lineage", "_seq", "_try")


def make_old_sidecar(writer: Writer) -> None:
    """Before the first write on Delta, whose columns cannot be dropped; after it elsewhere."""
    place, (*_, name) = writer.place, writer.place.object.parts
    if place.type == "delta":
        import pyarrow as pa

        kinds = {"_event_at": pa.timestamp("us", "UTC"), "_deleted": pa.bool_(), "_detected": pa.bool_()}
        kinds |= {"_arrival": pa.int64(), "_seq": pa.int64()}
        schema = pa.schema([("id", pa.int64()), *((one, kinds.get(one, pa.string())) for one in OLD_SIDECAR)])
        DeltaTable.create(f"{place.options['path']}/{name}__observed", schema)
        return
    listed = observed_columns(NOTED, ("id",), kept_columns(NOTED, ("id",), ("name",), ("note",)))
    younger = [column.name for column in listed if column.name not in ("id", *OLD_SIDECAR)]
    if place.type == "iceberg":
        with catalog_of(place.options["warehouse"]) as catalog:
            drop_columns(catalog, ("default", f"{name}__observed"), younger)
        return
    parts = ".".join(f'"{part}"' for part in (*place.object.parts[:-1], f"{name}__observed"))
    for column in younger:
        place.execute(f'ALTER TABLE {parts} DROP COLUMN "{column}"')


@pytest.mark.modes("scd2")
@pytest.mark.long_on_spark("postgres")
@pytest.mark.full
def test_the_sidecar_of_an_older_version_gets_its_columns(writer: Writer) -> None:
    is_delta = writer.place.type == "delta"
    if is_delta:
        make_old_sidecar(writer)
    write(writer, 1, touched("A", 1, "first"), columns=NOTED, at=moment(2))
    if not is_delta:
        make_old_sidecar(writer)
    write(writer, 2, touched("A", 9, "later"), columns=NOTED, at=moment(12))
    write(writer, 3, touched("B", 8, "late"), columns=NOTED, at=moment(13))
    assert content(writer, "name", "note") == [("A", "first"), ("A", "later"), ("B", "late")]


@contextmanager
def sidecar_taken_back(writer: Writer, name: str) -> Iterator[None]:
    """Afterwards it is as before, and the table is not."""
    place = writer.place
    match place.type:
        case "delta":
            url = f"{place.options['path']}/{name}"
            before = DeltaTable(url).version()
            yield
            DeltaTable(url).restore(before)
        case "iceberg":
            identifier = ("default", name)
            with catalog_of(place.options["warehouse"]) as catalog:
                snapshot = catalog.load_table(identifier).current_snapshot()
                assert snapshot is not None
                yield
                roll_back(catalog, identifier, snapshot.snapshot_id)
        case _:
            yield
            parts = ".".join(f'"{part}"' for part in (*place.object.parts[:-1], name))
            place.execute(f"DELETE FROM {parts} WHERE _arrival > 1")


@pytest.mark.modes("scd2")
@pytest.mark.long_on_spark
@pytest.mark.full
def test_versions_that_the_sidecar_does_not_know_are_not_deleted(writer: Writer) -> None:
    """It was taken back, and the table was not. What is read again is known again."""
    name = f"{writer.place.object.parts[-1]}__observed"
    write(writer, 1, seen("A", 1))
    with sidecar_taken_back(writer, name):
        write(writer, 2, seen("B", 3))
    with pytest.raises(TableError, match=f"{name} does not have"):
        write(writer, 3, seen("C", 5))
    assert versions(writer) == [("A", 1, 3, False), ("B", 3, None, True)]
    write(writer, 3, seen("B", 3), intent="again")
    write(writer, 4, seen("C", 5))
    assert versions(writer) == [("A", 1, 3, False), ("B", 3, 5, False), ("C", 5, None, True)]
    write(writer, 5, seen("A", 3))
    assert versions(writer) == [("A", 1, 5, False), ("C", 5, None, True)]
