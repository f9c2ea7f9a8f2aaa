"""What plans ask an SQLite source about its cursors: how many rows are still to be written, what a delay keeps out."""

from __future__ import annotations

import datetime as dt
import sqlite3
from dataclasses import replace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from flowctl.connectors.source import WatermarkRequest
from flowctl.connectors.sql.conditions import earliest_local
from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import CursorPosition
from flowctl.model.value import from_text
from tests.connectors.reading import captured_rows, describe, table
from tests.connectors.sqlite.test_source import database, file, source

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
def test_a_watermark_counts_what_append_has_still_to_write(
    database: sqlite3.Connection, source: Any, kind: str, values: list[Any]
) -> None:
    database.execute(f"CREATE TABLE t (at {kind})")
    database.executemany("INSERT INTO t VALUES (?)", [(value,) for value in values])
    info = describe(source, table("t"))
    position = from_text(info.columns[0].type, str(values[1]))
    asked = WatermarkRequest(table("t"), info, info.columns[0], position, position=position, estimate="count")
    whole = WatermarkRequest(table("t"), info, info.columns[0], estimate="count")
    nulls = WatermarkRequest(table("t"), info, info.columns[0], position, null_rows=True, estimate="count")
    watermarks = source.high_watermarks({"asked": asked, "whole": whole, "nulls": nulls})
    assert (watermarks["asked"].rows.value, watermarks["asked"].rows_at_position) == (3, 2)
    assert (watermarks["whole"].rows.value, watermarks["whole"].rows_at_position) == (4, None)
    assert watermarks["nulls"].rows.value == 4
    first = from_text(info.columns[0].type, str(values[0]))
    older = {
        "all": replace(asked, position=first, check_older=True),
        "from its start": replace(asked, position=first, first=position, check_older=True),
    }
    found = source.high_watermarks(older)
    assert (found["all"].has_older, found["from its start"].has_older) == (True, False)
    interval = Interval(CursorPosition(position), CursorPosition(position), "at", position)
    above = captured_rows(source, table("t"), interval=interval, above=True)
    assert len(above) == 1


def test_what_delay_keeps_out_is_not_counted_for_append_and_is_no_empty_table(
    database: sqlite3.Connection, source: Any
) -> None:
    now = dt.datetime.now(dt.UTC)
    database.execute("CREATE TABLE t (at TIMESTAMP)")
    database.executemany(
        "INSERT INTO t VALUES (?)", [((now - dt.timedelta(minutes=m)).isoformat(" ")[:19],) for m in (1, 90)]
    )
    info = describe(source, table("t"))
    given = {"relation": table("t"), "info": info, "cursor": info.columns[0], "estimate": "count"}
    watermarks = source.high_watermarks(
        {
            "append": WatermarkRequest(**given, delay=3600, appends=True),
            "merge": WatermarkRequest(**given, delay=3600),
            "young": WatermarkRequest(**given, delay=36000, appends=True),
        }
    )
    assert [watermarks[name].rows.value for name in ("append", "merge", "young")] == [1, 2, 0]
    assert (watermarks["append"].has_younger, watermarks["young"].has_younger) == (False, True)


def test_a_query_that_fails_stops_its_own_table_only_and_is_no_misfit(
    database: sqlite3.Connection, source: Any
) -> None:
    database.executescript("CREATE TABLE t (at TIMESTAMP); INSERT INTO t VALUES ('2026-01-01 00:00:00')")
    database.executescript("CREATE VIEW v AS SELECT * FROM t")
    info = describe(source, table("v"))
    given = {"info": replace(info, columns=()), "cursor": replace(info.columns[0], type=types.TIMESTAMP_NTZ)}
    requests = {
        "broken": WatermarkRequest(table("v", where="no_such_column = 1"), **given),
        "without": WatermarkRequest(table("v", where="no_such_column = 1"), info, estimate="count"),
        "healthy": WatermarkRequest(table("v"), **given),
    }
    found = source.high_watermarks(requests)
    assert found["healthy"].failure is None and found["healthy"].position is not None
    assert {str(found[name].failure) for name in ("broken", "without")} == {
        "SQLite says: no such column: no_such_column"
    }


def test_delay_counts_in_the_zone_of_a_local_time(database: sqlite3.Connection, source: Any) -> None:
    """West of UTC a local time looks old and east of it young; without a zone it is SQLite's own, which is UTC."""
    zones = ["America/New_York", "Asia/Tokyo", "UTC"]
    database.execute("CREATE TABLE t (zone TEXT, at TIMESTAMP)")
    for zone in zones:
        for hours in (0.5, 1.5):
            local = (dt.datetime.now(dt.UTC) - dt.timedelta(hours=hours)).astimezone(ZoneInfo(zone))
            database.execute("INSERT INTO t VALUES (?, ?)", (zone, local.isoformat(" ")[:19]))
    info = describe(source, table("t"))
    requests = {
        zone: WatermarkRequest(table("t", where=f"zone = '{zone}'"), info, info.columns[1], delay=3600, zone=zone)
        for zone in zones
    }
    requests["own"] = replace(requests["UTC"], zone=None)
    watermarks = source.high_watermarks(requests)
    for zone in zones:
        now = dt.datetime.now(ZoneInfo(zone)).replace(tzinfo=None)
        age = now - watermarks[zone].position.at.value
        assert dt.timedelta(hours=1.4) < age < dt.timedelta(hours=1.6), zone
    assert watermarks["own"].position == watermarks["UTC"].position
    assert (watermarks["own"].zone, watermarks["UTC"].zone) == ("UTC", "")


@pytest.mark.parametrize(
    ("moment", "local"),
    [
        ("2026-10-24T23:30", "2026-10-25T01:30"),  # half an hour before 03:00 becomes 02:00 again: what comes is later
        ("2026-10-25T00:30", "2026-10-25T02:00"),  # 02:30 the first time: 02:00 is still to come
        ("2026-10-25T01:30", "2026-10-25T02:30"),
        ("2026-03-29T00:59", "2026-03-29T01:59"),
        ("2026-03-29T01:00", "2026-03-29T03:00"),
        ("2026-10-25T00:30:17.5", "2026-10-25T02:00"),
    ],
)
def test_a_delay_over_the_hour_that_comes_twice_keeps_off_the_second_one(moment: str, local: str) -> None:
    asked = dt.datetime.fromisoformat(moment).replace(tzinfo=dt.UTC)
    assert earliest_local(asked, "Europe/Amsterdam") == dt.datetime.fromisoformat(local)


@pytest.mark.parametrize(("native", "stored"), [("BLOB", b"\1"), ("BOOLEAN", 1)])
def test_a_cursor_of_a_type_that_cannot_be_one_is_refused(
    database: sqlite3.Connection, source: Any, native: str, stored: Any
) -> None:
    """The plan took it, and each run failed."""
    database.execute(f"CREATE TABLE t (at {native})")
    database.execute("INSERT INTO t VALUES (?)", [stored])
    info = describe(source, table("t"))
    failure = source.high_watermarks({"t": WatermarkRequest(table("t"), info, info.columns[0])})["t"].failure
    assert f"cursor column at ({native}) is " in str(failure) and "which cannot be a cursor" in str(failure)


@pytest.mark.parametrize(
    ("native", "kind", "stored"),
    [
        ("NUMERIC", None, [8, 9, 10]),
        ("", None, [1.5]),
        ("TEXT", None, ["a", 7]),
        ("INTEGER", types.STRING, [8, 10]),
    ],
)
def test_numbers_in_a_cursor_that_is_text_are_refused(
    database: sqlite3.Connection, source: Any, native: str, kind: types.DataType | None, stored: list[Any]
) -> None:
    """SQLite sorts them before every text, so that none would ever be read."""
    column = "BLOB" if native == "TEXT" else native  # keeps what it is given
    database.execute(f"CREATE TABLE t (at {column})")
    database.executemany("INSERT INTO t VALUES (?)", [(value,) for value in stored])
    info = describe(source, table("t"))
    cursor = replace(info.columns[0], type=kind or types.STRING)
    failure = source.high_watermarks({"t": WatermarkRequest(table("t"), info, cursor)})["t"].failure
    assert "is read as text, in which 10 comes before 9" in str(failure) and "decimal(38,0)" in failure.hint
    if "a" not in stored:
        cursor = replace(cursor, type=types.parse("decimal(38,1)"))
        found = source.high_watermarks({"t": WatermarkRequest(table("t"), info, cursor)})["t"]
        assert isinstance(found.position, CursorPosition) and float(found.position.at.value) == max(stored)
