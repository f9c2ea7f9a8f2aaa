"""What each SQL source must answer to a plan about its cursors, however its database writes them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flowctl.connectors.source import HighWatermark, WatermarkRequest
from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import CursorPosition
from flowctl.model.value import from_text
from tests.connectors.reading import captured_rows, describe, table


def must_count_what_append_has_still_to_write(source: Any, kind: str, values: Sequence[str]) -> None:
    """The column ``c`` of the table ``t`` has these values (the second is the position, twice there) and a null."""
    info = describe(source, table("t"))
    cursor = replace(info.columns[0], type=types.parse(kind))
    first, position, _, newest = (from_text(cursor.type, value) for value in values)
    asked = WatermarkRequest(table("t"), info, cursor, position, position=position, estimate="count")
    watermarks = source.high_watermarks(
        {
            "asked": asked,
            "whole": WatermarkRequest(table("t"), info, cursor, estimate="count"),
            "nulls": WatermarkRequest(table("t"), info, cursor, position, null_rows=True, estimate="count"),
            "all": replace(asked, position=first, check_older=True),
            "from its start": replace(asked, position=first, first=position, check_older=True),
        }
    )
    assert {name: one.failure for name, one in watermarks.items() if one.failure} == {}
    assert {one.position for one in watermarks.values()} == {CursorPosition(newest)}
    assert (watermarks["asked"].rows.value, watermarks["asked"].rows_at_position) == (3, 2)
    assert (watermarks["whole"].rows.value, watermarks["whole"].rows_at_position) == (4, None)
    assert watermarks["nulls"].rows.value == 4 and watermarks["whole"].has_null_cursor
    assert (watermarks["all"].has_older, watermarks["from its start"].has_older) == (True, False)
    interval = Interval(CursorPosition(position), CursorPosition(position), "c", position)
    kinds = {"c": kind}
    assert len(captured_rows(source, table("t"), kinds, interval, above=True)) == 1
    assert len(captured_rows(source, table("t"), kinds, interval)) == 3


def must_keep_out_what_is_younger(
    script: Callable[[str], object], source: Any, native: str, now: dt.datetime
) -> Mapping[str, HighWatermark]:
    """Makes the table with rows of a minute and of 90 minutes before ``now``; the answers, by what was asked."""
    listed = ", ".join(f"('{(now - dt.timedelta(minutes=m)).replace(tzinfo=None)}')" for m in (1, 90))
    script(f"CREATE TABLE t (c {native}); INSERT INTO t VALUES {listed}")
    info = describe(source, table("t"))
    given: dict[str, Any] = {"relation": table("t"), "info": info, "cursor": info.columns[0], "estimate": "count"}
    found: Mapping[str, HighWatermark] = source.high_watermarks(
        {
            "append": WatermarkRequest(**given, delay=3600, appends=True),
            "merge": WatermarkRequest(**given, delay=3600),
            "young": WatermarkRequest(**given, delay=36000, appends=True),
            "east": WatermarkRequest(**given, delay=3600, appends=True, zone="Asia/Tokyo"),
        }
    )
    assert [found[name].rows.value for name in ("append", "merge", "young", "east")] == [1, 2, 0, 2]
    assert (found["append"].has_younger, found["young"].has_younger) == (False, True)
    return found
