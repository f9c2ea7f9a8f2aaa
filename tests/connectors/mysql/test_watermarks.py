"""What plans ask a MySQL source about its cursors: in the order of the cursor's type, whatever the column's own is."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from flowctl.connectors.source import WatermarkRequest
from flowctl.errors import StoppedByPolicy
from flowctl.model import types
from flowctl.model.position import CursorPosition
from flowctl.model.value import from_text
from tests.connectors.mysql.conftest import Script
from tests.connectors.reading import describe, table
from tests.connectors.sql.watermarks import (
    must_count_what_append_has_still_to_write,
    must_keep_out_what_is_younger,
)


@pytest.mark.parametrize(
    ("native", "kind", "values"),
    [
        ("INT UNSIGNED", "bigint", ["1", "5", "5", "4294967295"]),
        ("BIGINT UNSIGNED", "decimal(20,0)", ["1", "18446744073709551614", "18446744073709551614", str(2**64 - 1)]),
        ("DECIMAL(9,2)", "decimal(9,2)", ["1", "5.00", "5.00", "10.5"]),
        ("DOUBLE", "double", ["1e-300", "0.1", "0.1", "1e300"]),
        ("FLOAT", "float", ["0.25", "0.5", "0.5", "16777216"]),
        ("DATE", "date", ["2026-01-01", "2026-01-02", "2026-01-02", "2026-01-03"]),
        (
            "DATETIME(3)",
            "timestamp_ntz",
            ["2026-01-01", "2026-01-02 03:00:00.1", "2026-01-02 03:00:00.1", "2026-01-03"],
        ),
        ("TIMESTAMP NULL", "timestamp", ["2026-01-01", "2026-01-02 03:00", "2026-01-02 03:00", "2026-01-03"]),
        ("VARCHAR(9)", "string", ["A", "a", "a", "b"]),
        ("VARCHAR(9) COLLATE utf8mb4_general_ci", "string", ["B", "a", "a", "b"]),
        ("VARCHAR(9) COLLATE utf8mb4_general_ci", "string", ["a", "a ", "a ", "ä"]),
        ("VARCHAR(9) CHARACTER SET latin1", "string", ["z", "ä", "ä", "ö"]),
        ("VARCHAR(9)", "string", ["\\\\", "\uffff", "\uffff", "\U0001f986"]),
        ("ENUM('a', 'b', 'c')", "string", ["a", "b", "b", "c"]),
        ("YEAR", "smallint", ["1901", "2026", "2026", "2155"]),
    ],
)
@pytest.mark.full
def test_a_watermark_counts_what_append_has_still_to_write(
    script: Script, source: Any, native: str, kind: str, values: list[str]
) -> None:
    listed = ", ".join(f"('{value}')" for value in values)
    script(f"CREATE TABLE t (c {native}) CHARSET utf8mb4; INSERT INTO t VALUES {listed}, (NULL)")
    must_count_what_append_has_still_to_write(source, kind, [value.replace("\\\\", "\\") for value in values])


def failure_of_first(source: Any) -> str:
    """Of the first column as a cursor."""
    info = describe(source, table("t"))
    return str(source.high_watermarks({"t": WatermarkRequest(table("t"), info, info.columns[0])})["t"].failure)


@pytest.mark.parametrize("native", ["ENUM('z','b','a')", "ENUM('it''s','it')", "SET('a','b')"])
def test_a_cursor_whose_texts_sort_in_another_way_is_refused(script: Script, source: Any, native: str) -> None:
    """Of an ENUM, a row with a was never read after one with z."""
    script(f"CREATE TABLE t (c {native}, n INT)")
    assert "is read as text, in which 10 comes before 9" in failure_of_first(source)


@pytest.mark.parametrize("native", ["VARBINARY(9)", "LONGBLOB", "TINYINT(1)"])
def test_a_cursor_of_a_type_that_cannot_be_one_is_refused(script: Script, source: Any, native: str) -> None:
    script(f"CREATE TABLE t (c {native})")
    assert "which cannot be a cursor" in failure_of_first(source)


def test_a_zero_date_is_below_every_other(script: Script, source: Any) -> None:
    script("SET sql_mode = ''; CREATE TABLE t (c DATE); INSERT INTO t VALUES ('0000-00-00'), ('2026-01-02')")
    info = describe(source, table("t"))
    found = source.high_watermarks({"c": WatermarkRequest(table("t"), info, info.columns[0])})
    assert found["c"].position == CursorPosition(from_text(types.DATE, "2026-01-02"))


def test_a_cursor_that_has_no_order_or_holds_something_else_stops_its_table_only(script: Script, source: Any) -> None:
    script("SET sql_mode = ''; CREATE TABLE t (z DATE, n INT, d DECIMAL(65,0), h TIME, s VARCHAR(9))")
    script("SET sql_mode = ''; INSERT INTO t VALUES ('0000-00-00', 1, 1, '100:00:00', '7')")
    info = describe(source, table("t"))
    zero, number, digits, hours, text = info.columns
    found = source.high_watermarks(
        {
            "zero": WatermarkRequest(table("t"), info, zero),
            "n": WatermarkRequest(table("t"), info, number),
            "digits": WatermarkRequest(table("t"), info, digits),
            "hours": WatermarkRequest(table("t"), info, hours),
            "text": WatermarkRequest(table("t"), info, replace(text, type=types.INT32)),
            "absent": WatermarkRequest(table("t"), info, replace(number, name="absent")),
            "where": WatermarkRequest(table("t", where="absent = 1"), info, number),
        }
    )
    failures = {name: str(one.failure) for name, one in found.items() if one.failure}
    assert set(failures) == {"zero", "digits", "hours", "text", "absent", "where"}
    assert isinstance(found["zero"].failure, StoppedByPolicy) and "0000-00-00" in failures["zero"]
    assert "in which 10 comes before 9" in failures["digits"] and "in which 10 comes before 9" in failures["hours"]
    assert "which the server does not sort as int" in failures["text"]
    assert found["n"].position == CursorPosition(from_text(types.INT32, "1"))


def test_what_delay_keeps_out_is_no_empty_table(script: Script, source: Any) -> None:
    """In the server's own zone, unless the spec names one; the test's server is at +03:00."""
    now = dt.datetime.now(dt.UTC) + dt.timedelta(hours=3)
    found = must_keep_out_what_is_younger(script, source, "DATETIME(6)", now)
    assert (found["append"].zone, found["east"].zone) == ("+03:00", "")
