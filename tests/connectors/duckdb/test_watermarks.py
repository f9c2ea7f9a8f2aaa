"""What plans ask a DuckDB source about its cursors: in the order of the cursor's type, whatever the column's own is."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from flowctl.connectors.source import WatermarkRequest
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model import types
from flowctl.model.position import CursorPosition
from flowctl.model.value import from_text
from tests.connectors.duckdb.test_source import Script, file, script, source
from tests.connectors.reading import describe, table
from tests.connectors.sql.watermarks import (
    must_count_what_append_has_still_to_write,
    must_keep_out_what_is_younger,
)

__all__ = ["file", "script", "source"]


@pytest.mark.parametrize(
    ("native", "kind", "values"),
    [
        ("INTEGER", "int", ["1", "5", "5", "7"]),
        ("UBIGINT", "decimal(20,0)", ["1", "18446744073709551614", "18446744073709551614", "18446744073709551615"]),
        ("HUGEINT", "decimal(38,0)", ["9", "10", "10", "11"]),
        ("DECIMAL(9,2)", "decimal(9,2)", ["1", "5.00", "5.00", "10.5"]),
        ("DOUBLE", "double", ["1e-300", "0.1", "0.1", "1e300"]),
        ("DATE", "date", ["2026-01-01", "2026-01-02", "2026-01-02", "2026-01-03"]),
        ("TIMESTAMP", "timestamp_ntz", ["2026-01-01", "2026-01-02 03:00:00.1", "2026-01-02 03:00:00.1", "2026-01-03"]),
        ("TIMESTAMP_MS", "timestamp_ntz", ["2026-01-01", "2026-01-02 03:00", "2026-01-02 03:00", "2026-01-03"]),
        (
            "TIMESTAMP WITH TIME ZONE",
            "timestamp",
            ["2026-01-01 00:00:00+00", "2026-01-02 03:00:00+00", "2026-01-02 04:00:00+01", "2026-01-02 03:00:01+00"],
        ),
        ("VARCHAR", "string", ["A", "a", "a", "b"]),
        ("VARCHAR COLLATE NOCASE", "string", ["B", "a", "a", "b"]),
        ("VARCHAR", "bigint", ["9", "10", "10", "11"]),
        (
            "VARCHAR",
            "timestamp",
            ["2026-01-01 00:00:00Z", "2026-01-02T03:00:00Z", "2026-01-02T04:00:00+01", "2026-01-02T03:00:01Z"],
        ),
        ("ENUM('a', 'b', 'c')", "string", ["a", "b", "b", "c"]),
    ],
)
def test_a_watermark_counts_what_append_has_still_to_write(
    script: Script, source: Any, native: str, kind: str, values: list[str]
) -> None:
    listed = ", ".join(f"('{value}')" for value in values)
    script(f"CREATE TABLE t (c {native}); INSERT INTO t VALUES {listed}, (NULL)")
    must_count_what_append_has_still_to_write(source, kind, values)


@pytest.mark.parametrize(
    ("native", "value"), [("TIMESTAMP", "infinity"), ("DATE", "infinity"), ("DOUBLE", "nan"), ("DATE", "10000-01-01")]
)
def test_a_cursor_without_end_stops_its_table_only(script: Script, source: Any, native: str, value: str) -> None:
    script(f"CREATE TABLE t (c {native}, n INTEGER); INSERT INTO t VALUES ('{value}', 1)")
    info = describe(source, table("t"))
    at, number = (WatermarkRequest(table("t"), info, column) for column in info.columns)
    found = source.high_watermarks({"at": at, "n": number})
    assert isinstance(found["at"].failure, StoppedByPolicy) and value in found["at"].failure.message
    assert found["n"].position == CursorPosition(from_text(types.INT32, "1"))


def test_a_cursor_that_holds_something_else_stops_its_table_only(script: Script, source: Any) -> None:
    script("CREATE TABLE t (c VARCHAR, n INTEGER, b BIGNUM, l INTEGER[]); INSERT INTO t VALUES ('soon', 1, 1, [1])")
    info = describe(source, table("t"))
    found = source.high_watermarks(
        {
            "at": WatermarkRequest(table("t"), info, replace(info.columns[0], type=types.DATE)),
            "n": WatermarkRequest(table("t"), info, info.columns[1]),
            "b": WatermarkRequest(table("t"), info, info.columns[2]),
            "number as text": WatermarkRequest(table("t"), info, replace(info.columns[1], type=types.STRING)),
            "list as text": WatermarkRequest(table("t"), info, replace(info.columns[3], type=types.STRING)),
            "absent": WatermarkRequest(table("t"), info, replace(info.columns[1], name="absent")),
            "where": WatermarkRequest(table("t", where="absent = 1"), info, info.columns[1]),
        }
    )
    failures = {name: str(one.failure) for name, one in found.items() if one.failure}
    assert set(failures) == {"at", "b", "number as text", "list as text", "absent", "where"}
    assert "column c (VARCHAR) holds a value that is not exactly date" in failures["at"]
    assert all("in which 10 comes before 9" in failures[name] for name in ("b", "number as text", "list as text"))
    assert isinstance(found["b"].failure, TableError) and "decimal(38,0)" in found["b"].failure.hint


@pytest.mark.parametrize("native", ["BLOB", "BOOLEAN", "INTEGER[]", "STRUCT(a INTEGER)"])
def test_a_cursor_of_a_type_that_cannot_be_one_is_refused(script: Script, source: Any, native: str) -> None:
    script(f"CREATE TABLE t (c {native}); INSERT INTO t VALUES (NULL)")
    info = describe(source, table("t"))
    failure = source.high_watermarks({"t": WatermarkRequest(table("t"), info, info.columns[0])})["t"].failure
    assert str(failure).startswith(f"cursor column c ({info.columns[0].native}) is ")
    assert "which cannot be a cursor" in str(failure)


def test_an_enum_that_does_not_sort_as_its_texts_is_refused(script: Script, source: Any) -> None:
    """A row with a was never read after one with z."""
    script("CREATE TABLE t (c ENUM('z', 'b', 'a')); INSERT INTO t VALUES ('z')")
    info = describe(source, table("t"))
    failure = source.high_watermarks({"t": WatermarkRequest(table("t"), info, info.columns[0])})["t"].failure
    assert "is read as text, in which 10 comes before 9" in str(failure)


def test_what_delay_keeps_out_is_no_empty_table(script: Script, source: Any) -> None:
    now = dt.datetime.now(dt.UTC)
    found = must_keep_out_what_is_younger(script, source, "TIMESTAMP", now)
    assert (found["append"].zone, found["east"].zone) == ("UTC", "")
