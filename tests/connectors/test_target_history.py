"""scd2 through the targets' own commit; every case of the rules is tested where the SELECT is."""

from __future__ import annotations

import datetime as dt
import hashlib

from flowctl.connectors.base import DETECTED_COLUMN, OP_COLUMN
from flowctl.model import types
from flowctl.model.table_info import Column
from tests.connectors.writing import Row, Writer

COLUMNS = (
    Column("id", types.INT64),
    Column("name", types.STRING),
    Column("valid_from", types.TIMESTAMP),
    Column("valid_to", types.TIMESTAMP),
    Column("is_current", types.BOOL),
    Column("row_hash", types.STRING),
)


def day(number: int) -> dt.datetime:
    return dt.datetime(2026, 1, number, tzinfo=dt.UTC)


def seen(name: str, at: int) -> Row:
    row_hash = hashlib.sha256(name.encode()).hexdigest()
    return {"id": 1, "name": name, "valid_from": day(at), "row_hash": row_hash, OP_COLUMN: "U", DETECTED_COLUMN: False}


def gone(at: int) -> Row:
    return {"id": 1, "name": None, "valid_from": day(at), "row_hash": None, OP_COLUMN: "D", DETECTED_COLUMN: False}


def versions(writer: Writer) -> list[tuple[object, ...]]:
    frame = writer.place.target.scan(writer.spark, writer.place.object, COLUMNS)
    text = frame.selectExpr("name", "dayofmonth(valid_from) AS b", "dayofmonth(valid_to) AS e", "is_current AS c")
    return [tuple(row) for row in text.orderBy("b").collect()]


def write(writer: Writer, seq: int, *rows: Row) -> None:
    writer.write(rows, seq, "scd2", columns=COLUMNS, compared=("name",))


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
