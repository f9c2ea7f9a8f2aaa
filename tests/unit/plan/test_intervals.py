"""What is read, for every kind of position; and that no row is ever between two intervals."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowctl.connectors.base import Head
from flowctl.model import types
from flowctl.model.position import CursorPosition, FilesPosition, FileStamp, NoPosition, UpstreamPosition
from flowctl.model.table_info import Column, RowEstimate
from flowctl.model.value import TypedValue
from flowctl.plan.intervals import Idle, Refused, Work, find, find_upstream
from flowctl.spec.spec import Cursor
from tests.unit.plan.worlds import NOW, at, cursor, head, source, table

OLD, NEW = "2026-11-19T22:10:04Z", "2026-11-20T06:15:33Z"
HOUR = 3600.0


def found(*, newest=NEW, recorded=OLD, mode="merge", nulls=False, **keys):
    spec = table(mode=mode, cursor=Cursor("updated_at", **keys))
    position = cursor(newest) if newest else None
    since = cursor(recorded) if recorded else None
    return find(spec, source(), head(position, has_null_cursor=nulls), since, "cursor")


@pytest.mark.parametrize(("mode", "read_to"), [("append", at(NEW)), ("merge", None), ("scd2", None)])
def test_only_append_stops_reading_at_the_upper_bound(mode, read_to):
    made = found(mode=mode).interval
    assert (made.lower, made.upper, made.read_from, made.read_to) == (cursor(OLD), cursor(NEW), at(OLD), read_to)


def test_lag_reads_again():
    made = found(lag=HOUR).interval
    assert (made.lower, made.read_from) == (cursor(OLD), at("2026-11-19T21:10:04Z"))


def test_append_leaves_out_the_rows_at_the_bound_that_it_has_written():
    since = CursorPosition(at(OLD), ("aa", "bb"))
    made = find(table(mode="append", cursor=Cursor("updated_at")), source(), head(cursor(NEW)), since, "cursor")
    assert made.interval.skip_hashes == {"aa", "bb"}


def test_append_takes_all_rows_at_a_position_that_somebody_has_set_for_written():
    made = find(table(mode="append", cursor=Cursor("updated_at")), source(), head(cursor(NEW)), cursor(OLD), "cursor")
    assert made.interval.skip_hashes is None
    first = find(table(mode="append", cursor=Cursor("updated_at")), source(), head(cursor(NEW)), None, "cursor")
    assert first.interval.skip_hashes == frozenset()


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"newest": OLD}, "no new rows"),
        ({"newest": None}, "no new rows"),
        ({"newest": None, "recorded": None}, "the source has no rows"),
        (
            {"recorded": None, "start": "2027-01-01T00:00:00Z"},
            "no rows from cursor.start 2027-01-01T00:00:00.000000Z on",
        ),
    ],
)
def test_empty_intervals_are_no_work(keys, reason):
    made = found(**keys)
    assert isinstance(made, Idle) and made.reason == reason


def test_a_vanished_newest_row_is_a_warning():
    made = found(newest="2026-11-19T22:00:00Z")
    assert isinstance(made, Idle) and made.notes[0].startswith("the newest row, at 2026-11-19T22:10:04")
    within_lag = found(newest="2026-11-19T22:00:00Z", lag=HOUR)
    assert isinstance(within_lag, Work) and within_lag.notes == made.notes
    assert within_lag.interval.upper.at.text().startswith("2026-11-19T22:10:04")


def test_lag_and_days_look_again_though_nothing_is_newer():
    assert isinstance(found(newest=OLD), Idle)
    assert isinstance(found(newest=OLD, lag=HOUR), Work)


def test_a_position_moved_back_beyond_lag_stops():
    made = found(newest="2026-11-19T20:00:00Z", lag=HOUR)
    assert isinstance(made, Refused) and made.guard == "position moved back"


@pytest.mark.parametrize(("nulls", "kind"), [("fail", Refused), ("skip", Idle), ("always", Work)])
def test_rows_without_a_cursor(nulls, kind):
    made = find(table(cursor=Cursor("updated_at", nulls=nulls)), source(), head(cursor(OLD), has_null_cursor=True),
                cursor(OLD), "cursor")  # fmt: skip
    assert isinstance(made, kind)
    if isinstance(made, Work):
        assert made.interval.include_null and made.interval.upper == cursor(OLD)


@pytest.mark.parametrize(
    ("kind", "newest", "refused"),
    [
        (types.TIMESTAMP, NOW + dt.timedelta(minutes=4), False),
        (types.TIMESTAMP, NOW + dt.timedelta(minutes=6), True),
        (types.TIMESTAMP, dt.datetime.max.replace(tzinfo=dt.UTC), True),
        (types.TIMESTAMP_NTZ, NOW.replace(tzinfo=None) + dt.timedelta(hours=14), False),
        (types.TIMESTAMP_NTZ, NOW.replace(tzinfo=None) + dt.timedelta(hours=15), True),
        (types.DATE, NOW.date(), False),
        (types.DATE, NOW.date() + dt.timedelta(days=2), True),
        (types.DOUBLE, float("inf"), True),
        (types.DOUBLE, float("nan"), True),
        (types.INT64, 2**62, False),
        (types.STRING, "zzz", False),
    ],
)
def test_a_cursor_that_would_freeze_the_table_stops_it(kind, newest, refused):
    info = source((Column("updated_at", kind),))
    newest_head = Head(CursorPosition(TypedValue(kind, newest)), RowEstimate(), NOW)
    assert isinstance(find(table(), info, newest_head, None, "cursor"), Refused if refused else Work)


def test_a_recorded_value_is_read_in_the_type_the_column_has_now():
    info = source((Column("updated_at", types.INT64),))
    since, newest = CursorPosition(at("7", types.INT32)), CursorPosition(at("9", types.INT64))
    made = find(table(), info, head(newest), since, "cursor")
    assert made.interval.read_from == at("7", types.INT64)


@pytest.mark.parametrize(
    ("keys", "kind", "path"),
    [({"lag": HOUR}, types.INT64, "cursor.lag"), ({"start": "yesterday"}, types.TIMESTAMP, "cursor.start")],
)
def test_bounds_that_mean_nothing_for_the_column_stop(keys, kind, path):
    info = source((Column("updated_at", kind),))
    since = CursorPosition(at("7", types.INT64)) if kind == types.INT64 else None
    newest = CursorPosition(at("9", types.INT64)) if kind == types.INT64 else cursor(NEW)
    made = find(table(cursor=Cursor("updated_at", **keys)), info, head(newest), since, "cursor")
    assert isinstance(made, Refused) and made.path == path


A, B, CHANGED = FileStamp("a.csv", 1, "1"), FileStamp("b.csv", 2, "1"), FileStamp("a.csv", 9, "2")


def files(*stamps):
    return FilesPosition(tuple(stamps))


@pytest.mark.parametrize(
    ("mode", "recorded", "now", "lower", "upper"),
    [
        ("append", None, files(A), None, files(A)),
        ("append", files(A), files(A, B), files(A), files(A, B)),
        ("append", files(A), files(B), files(A), files(A, B)),
        ("merge", files(A), files(CHANGED), files(A), files(CHANGED)),
        ("truncate", files(A), files(B), None, files(B)),
    ],
)
def test_each_file_once_and_truncate_all_that_are_there(mode, recorded, now, lower, upper):
    made = find(table(mode=mode, cursor=None), source(), head(now), recorded, "files")
    assert (made.interval.lower, made.interval.upper) == (lower, upper)


@pytest.mark.parametrize(("mode", "now"), [("append", files(A)), ("append", files()), ("truncate", files(A))])
def test_no_new_files_are_no_work(mode, now):
    assert isinstance(find(table(mode=mode, cursor=None), source(), head(now), files(A), "files"), Idle)


def test_a_file_that_changed_after_append_has_read_it_stops():
    made = find(table(mode="append", cursor=None), source(), head(files(CHANGED)), files(A), "files")
    assert isinstance(made, Refused) and made.guard == "file changed"


def test_without_a_position_everything_is_read_every_time():
    made = find(table(cursor=None), source(), head(NoPosition()), NoPosition(), "none")
    assert made == Work(made.interval, "always reads in full") and made.interval.lower is None


def test_upstream_numbers():
    assert isinstance(find_upstream({"a": 3}, UpstreamPosition((("a", 3),))), Idle)
    assert find_upstream({"a": 4, "b": 1}, UpstreamPosition((("a", 3), ("b", 1)))).reason == "a changed"
    assert find_upstream({"a": 1}, None).reason == "never ran"


times = st.integers(min_value=0, max_value=200).map(
    lambda minutes: dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=minutes)
)


@given(st.lists(st.lists(times, max_size=5), max_size=8), st.sampled_from([0.0, 600.0]))
def test_however_rows_arrive_in_order_every_one_is_in_some_interval_and_positions_only_rise(batches, lag):
    """Rows arrive with rising times, some of them equal; after each arrival a plan is made and its interval read."""
    spec = table(cursor=Cursor("updated_at", lag=lag))
    arrived, read, recorded = [], set(), None
    newest = dt.datetime.min.replace(tzinfo=dt.UTC)
    for batch in batches:
        later = sorted(time for time in batch if time > newest)
        arrived += later
        newest = max([newest, *later])
        position = CursorPosition(TypedValue(types.TIMESTAMP, newest)) if arrived else None
        made = find(spec, source(), head(position), recorded, "cursor")
        if isinstance(made, Work):
            start = made.interval.read_from
            read |= {time for time in arrived if start is None or time >= start.value}
            assert recorded is None or recorded.at <= made.interval.upper.at
            recorded = made.interval.upper
    assert set(arrived) == read
