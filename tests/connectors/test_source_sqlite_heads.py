"""What plans ask an SQLite source about its cursors: how many rows are still to be written, what a delay keeps out."""

from __future__ import annotations

import datetime as dt
import sqlite3
from typing import Any

import pytest

from flowctl.connectors.base import HeadRequest
from flowctl.model.interval import Interval
from flowctl.model.position import CursorPosition
from flowctl.model.value import from_text
from tests.connectors.reading import table
from tests.connectors.test_source_sqlite import database, file, rows_of, source

__all__ = ["database", "file", "source"]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("INTEGER", [1, 5, 5, 7, None]),
        ("TIMESTAMP", ["2026-01-01 00:00:00", "2026-01-02T03:00:00", "2026-01-02 03:00", "2026-01-03", None]),
        ("DECIMAL_TEXT(9,2)", ["1", "5.0", "5.00", "7", None]),
        ("TEXT", ["a", "b", "b", "c", None]),
        ("DATE", ["2026-01-01", "2026-01-02", "2026-01-02", "2026-01-03", None]),
    ],
)
def test_a_head_counts_what_append_has_still_to_write(
    database: sqlite3.Connection, source: Any, kind: str, values: list[Any]
) -> None:
    database.execute(f"CREATE TABLE t (at {kind})")
    database.executemany("INSERT INTO t VALUES (?)", [(value,) for value in values])
    info = source.describe([table("t")])[table("t")]
    position = from_text(info.columns[0].type, str(values[1]))
    asked = HeadRequest(table("t"), info, info.columns[0], position, position=position, estimate="count")
    whole = HeadRequest(table("t"), info, info.columns[0], estimate="count")
    nulls = HeadRequest(table("t"), info, info.columns[0], position, null_rows=True, estimate="count")
    heads = source.heads({"asked": asked, "whole": whole, "nulls": nulls})
    assert (heads["asked"].rows.value, heads["asked"].rows_at_position) == (3, 2)
    assert (heads["whole"].rows.value, heads["whole"].rows_at_position) == (4, None)
    assert heads["nulls"].rows.value == 4
    interval = Interval(CursorPosition(position), CursorPosition(position), "at", position)
    above = rows_of(source, table("t"), interval=interval, above=True)
    assert len(above) == 1


def test_what_delay_keeps_out_is_not_counted_for_append_and_is_no_empty_table(
    database: sqlite3.Connection, source: Any
) -> None:
    now = dt.datetime.now(dt.UTC)
    database.execute("CREATE TABLE t (at TIMESTAMP)")
    database.executemany(
        "INSERT INTO t VALUES (?)", [((now - dt.timedelta(minutes=m)).isoformat(" ")[:19],) for m in (1, 90)]
    )
    info = source.describe([table("t")])[table("t")]
    given = {"relation": table("t"), "info": info, "cursor": info.columns[0], "estimate": "count"}
    heads = source.heads(
        {
            "append": HeadRequest(**given, delay=3600, appends=True),
            "merge": HeadRequest(**given, delay=3600),
            "young": HeadRequest(**given, delay=36000, appends=True),
        }
    )
    assert [heads[name].rows.value for name in ("append", "merge", "young")] == [1, 2, 0]
    assert (heads["append"].has_younger, heads["young"].has_younger) == (False, True)
