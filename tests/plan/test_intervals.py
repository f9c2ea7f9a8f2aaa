"""What is read, for every kind of position; and that no row is ever between two intervals."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowctl.connectors.source import HighWatermark
from flowctl.model import types
from flowctl.model.file_log import FileLog
from flowctl.model.position import CursorPosition, FilesPosition, FileStamp, NoPosition, Ties, UpstreamPosition
from flowctl.model.position import from_json as position_from_json
from flowctl.model.position import to_json as position_to_json
from flowctl.model.table_info import Column, RowEstimate
from flowctl.model.value import TypedValue
from flowctl.plan.cursors import new_rows
from flowctl.plan.finding import Idle, Stop, Work
from flowctl.plan.intervals import find, find_upstream
from flowctl.plan.ties import with_columns
from flowctl.spec.spec import ColumnRules, Cursor
from flowctl.sql.row_hash import hashes_alike
from tests.plan.worlds import AMOUNT, ID, NOW, ORDERS, UPDATED_AT, at, cursor, high, source, table

OLD, NEW = "2026-11-19T22:10:04Z", "2026-11-20T06:15:33Z"
HOUR = 3600.0


def found(*, newest=NEW, recorded=OLD, mode="merge", nulls=False, **keys):
    spec = table(mode=mode, cursor=Cursor("updated_at", **keys))
    position = cursor(newest) if newest else None
    since = cursor(recorded) if recorded else None
    return find(spec, source(), high(position, has_null_cursor=nulls), since, "cursor")


@pytest.mark.parametrize(("mode", "read_to"), [("append", at(NEW)), ("merge", None), ("scd2", None)])
def test_only_append_stops_reading_at_the_upper_bound(mode, read_to):
    made = found(mode=mode).interval
    assert (made.lower, made.upper, made.read_from, made.read_to) == (cursor(OLD), cursor(NEW), at(OLD), read_to)


def test_lag_reads_again():
    made = found(lag=HOUR).interval
    assert (made.lower, made.read_from) == (cursor(OLD), at("2026-11-19T21:10:04Z"))


APPEND = table(mode="append", cursor=Cursor("updated_at"))
WRITTEN = (("aa", 1), ("bb", 2))


def appended(ties, columns=ORDERS, spec=APPEND):
    return find(spec, source(columns), high(cursor(NEW)), CursorPosition(at(OLD), ties), "cursor", "flow.yaml")


def test_append_leaves_out_the_rows_at_the_bound_that_it_has_written():
    assert appended(Ties(WRITTEN, (ID, AMOUNT))).interval.lower.ties == Ties(
        WRITTEN, (Column("id", types.INT64), AMOUNT)
    )


def test_append_takes_all_rows_at_a_position_that_somebody_has_set_for_written():
    assert appended(None).interval.lower == cursor(OLD)


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (types.INT32, types.INT64),
        (types.Decimal(9, 0), types.INT32),
        (types.Decimal(9, 2), types.Decimal(12, 4)),
        (types.FLOAT, types.DOUBLE),
        (types.DATE, types.TIMESTAMP_NTZ),
        (types.INT64, None),
        (types.INT64, types.STRING),
        (types.TIMESTAMP_NTZ, types.TIMESTAMP),
        (types.DATE, types.TIMESTAMP),
        (types.DOUBLE, types.Decimal(9, 2)),
        (types.BOOL, types.INT8),
    ],
)
def test_rows_at_the_position_are_told_apart_by_the_columns_of_then_while_their_hashes_mean_the_same(then, now):
    columns = (UPDATED_AT, *([Column("n", now)] if now else []))
    made = appended(Ties(WRITTEN, (UPDATED_AT, Column("n", then))), columns)
    if now and hashes_alike(then, now):
        assert isinstance(made, Work) and made.interval.lower.ties.columns == (UPDATED_AT, Column("n", now))
    else:
        assert isinstance(made, Stop) and '"n" is ' in made.reason
        assert f"`flowctl state set flow.yaml orders --position {at(OLD).text()}`" in made.hint
        assert "--full-refresh orders" in made.hint


def test_a_column_read_as_text_since_is_another():
    spec = replace(APPEND, columns=ColumnRules(types={"amount": "string"}))
    assert isinstance(appended(Ties(WRITTEN, ORDERS), spec=spec), Stop)


@pytest.mark.parametrize(
    ("schema", "kind"),
    [(ORDERS, Work), ((), Stop), (ORDERS[1:], Stop), ((*ORDERS, Column("x", types.BOOL)), Stop)],
)
def test_hashes_without_columns_are_over_those_recorded_with_them_while_these_are_all_the_same(schema, kind):
    old = CursorPosition(at(OLD), Ties((("aa", None), ("bb", None))))
    made = find(APPEND, source(), high(cursor(NEW)), with_columns(old, schema, APPEND, source()), "cursor")
    assert isinstance(made, kind)
    if isinstance(made, Work):
        assert made.interval.lower.ties == Ties(old.ties.counts, tuple(Column(c.name, c.type) for c in ORDERS))


@pytest.mark.parametrize(
    "document",
    [
        {"tie_hashes": ["aa", "bb"]},
        {"ties": {"columns": [["id", "int64"], ["note", "string", "text"]], "rows": {"aa": 1, "bb": None}}},
        {"ties": {"columns": [], "rows": {}}, "ties_may_be_gone": True},
        {"rows": 12000},
        {},
    ],
)
def test_written_rows_survive_json_in_the_old_form_and_in_the_new(document):
    document = {"kind": "cursor", "type": "int64", "value": "7", **document}
    assert position_to_json(position_from_json(document)) == document


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


@pytest.mark.parametrize("mode", ["merge", "scd2"])
@pytest.mark.parametrize("start", [None, "2026-01-01T00:00:00.000000Z"])
def test_a_vanished_newest_row_may_have_moved_back_so_everything_is_read_again(mode, start):
    made = found(newest="2026-11-19T22:00:00Z", mode=mode, start=start)
    assert isinstance(made, Work) and made.notes[0].startswith("the newest row, at 2026-11-19T22:10:04")
    assert made.interval.lower is None and made.interval.upper == cursor("2026-11-19T22:00:00Z")
    assert made.interval.read_from == (at(start) if start else None)
    within_lag = found(newest="2026-11-19T22:00:00Z", lag=HOUR, mode=mode)
    assert isinstance(within_lag, Work) and within_lag.notes == made.notes
    assert within_lag.interval.upper.at.text().startswith("2026-11-19T22:10:04")


def test_lag_and_days_look_again_though_nothing_is_newer():
    assert isinstance(found(newest=OLD), Idle)
    assert isinstance(found(newest=OLD, lag=HOUR), Work)


def test_a_position_moved_back_beyond_lag_stops():
    made = found(newest="2026-11-19T20:00:00Z", lag=HOUR)
    assert isinstance(made, Stop) and "more than lag before the recorded" in made.reason


TWO_WRITTEN = Ties((("aa", 2),), (ID,))


@pytest.mark.parametrize(
    ("newest", "ties", "there", "stops"),
    [
        ("2026-11-19T20:00:00Z", TWO_WRITTEN, 0, "behind"),
        ("2026-11-19T20:00:00Z", None, 0, "behind"),
        (NEW, TWO_WRITTEN, 0, "gone"),
        (None, TWO_WRITTEN, 0, "gone"),
        (NEW, TWO_WRITTEN, 1, None),
        (NEW, None, 0, None),
        (None, None, 0, None),
        (NEW, replace(TWO_WRITTEN, may_be_gone=True), 0, None),
        (NEW, Ties((), (ID,)), 0, None),
        ("2026-11-19T20:00:00Z", TWO_WRITTEN, 2, None),
        (None, TWO_WRITTEN, 2, None),
    ],
)
def test_append_stops_where_the_source_has_none_of_the_rows_it_has_written_last(newest, ties, there, stops):
    """A position that somebody has set, or a definition that somebody has accepted, claims nothing of these rows. The
    last two: they are there, and younger than a `cursor.delay` that was not set then."""
    seen = high(cursor(newest) if newest else None, rows_at_position=there)
    made = find(APPEND, source(), seen, CursorPosition(at(OLD), ties), "cursor", "flow.yaml")
    if stops is None:
        assert not isinstance(made, Stop)
        return
    words = "below the recorded" if stops == "behind" else "none of the rows that were appended"
    assert isinstance(made, Stop) and words in made.reason
    above = f"{at(newest).text()} --append-again" if stops == "behind" else at(OLD).text()
    assert f"`flowctl state set flow.yaml orders --position {above}`" in made.hint
    assert "--position beginning --append-again`" in made.hint and "--full-refresh orders" in made.hint


@pytest.mark.parametrize(("there", "kind"), [(2, Idle), (3, Work), (1, Idle)])
def test_append_reads_late_rows_at_its_position_though_nothing_is_newer(there, kind):
    since = CursorPosition(at(OLD), TWO_WRITTEN)
    made = find(APPEND, source(), high(cursor(OLD), rows_at_position=there), since, "cursor")
    assert isinstance(made, kind)
    if isinstance(made, Work):
        assert made.interval.read_from == made.interval.read_to == made.interval.upper.at == at(OLD)


@pytest.mark.parametrize(
    ("ties", "there", "counted", "new"),
    [
        (TWO_WRITTEN, 2, 13, 11),
        (TWO_WRITTEN, 5, 13, 11),
        (TWO_WRITTEN, 1, 13, 12),
        (None, 4, 13, 9),
        (None, None, 13, 13),
    ],
)
def test_a_count_leaves_out_the_rows_that_append_has_written(ties, there, counted, new):
    interval = find(APPEND, source(), high(cursor(NEW)), CursorPosition(at(OLD), ties), "cursor").interval
    assert new_rows(RowEstimate(counted, "count"), interval, there).value == new
    assert new_rows(RowEstimate(counted, "stats"), interval, there).value == counted


@pytest.mark.parametrize(
    ("mode", "seen", "key"),
    [
        ("append", {"writers": 1}, "1 open transaction has written to it"),
        ("append", {"writers": 2}, "cursor.delay"),
        ("merge", {"writers": 2}, "cursor.lag"),
        ("append", {"zone": "Asia/Tokyo"}, "cursor.delay is counted in Asia/Tokyo"),
    ],
)
def test_the_plan_names_the_key_against_rows_that_are_committed_late(mode, seen, key):
    spec = table(mode=mode, cursor=Cursor("updated_at"))
    (note,) = find(spec, source(), high(cursor(NEW), **seen), cursor(OLD), "cursor").notes
    assert key in note


def test_rows_younger_than_delay_are_no_empty_source():
    seen = HighWatermark(None, RowEstimate(), NOW, has_younger=True)
    delayed = table(cursor=Cursor("updated_at", delay=HOUR))
    assert find(delayed, source(), seen, None, "cursor") == Idle("all rows are younger than cursor.delay")
    (note,) = find(delayed, source(), seen, cursor(OLD), "cursor").notes
    assert note.startswith("no rows but some younger than cursor.delay")


@pytest.mark.parametrize(("nulls", "kind"), [("fail", Stop), ("skip", Idle), ("always", Work)])
def test_rows_without_a_cursor(nulls, kind):
    made = find(table(cursor=Cursor("updated_at", nulls=nulls)), source(), high(cursor(OLD), has_null_cursor=True),
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
    newest_watermark = HighWatermark(CursorPosition(TypedValue(kind, newest)), RowEstimate(), NOW)
    assert isinstance(find(table(), info, newest_watermark, None, "cursor"), Stop if refused else Work)


def test_a_recorded_value_is_read_in_the_type_the_column_has_now():
    info = source((Column("updated_at", types.INT64),))
    since, newest = CursorPosition(at("7", types.INT32)), CursorPosition(at("9", types.INT64))
    made = find(table(), info, high(newest), since, "cursor")
    assert made.interval.read_from == at("7", types.INT64)


@pytest.mark.parametrize(
    ("keys", "kind", "path"),
    [
        ({"lag": HOUR}, types.INT64, "cursor.lag"),
        ({"start": "yesterday"}, types.TIMESTAMP, "cursor.start"),
        ({"start": "2026-11-01T12:00:00+02:00"}, types.TIMESTAMP_NTZ, "cursor.start"),
    ],
)
def test_bounds_that_mean_nothing_for_the_column_stop(keys, kind, path):
    info = source((Column("updated_at", kind),))
    since = CursorPosition(at("7", types.INT64)) if kind == types.INT64 else None
    newest = CursorPosition(at("9", types.INT64)) if kind == types.INT64 else cursor(NEW)
    made = find(table(cursor=Cursor("updated_at", **keys)), info, high(newest), since, "cursor")
    assert isinstance(made, Stop) and made.path == path


A, B, CHANGED = FileStamp("a.csv", 1, "1"), FileStamp("b.csv", 2, "1"), FileStamp("a.csv", 9, "2")


def files(*stamps):
    return FilesPosition(tuple(stamps))


def log(*commits):
    """The log of commits that each read some files."""
    made = FileLog()
    for stamps in commits:
        made = made.with_read("orders", stamps)
    return made


@pytest.mark.parametrize(
    ("mode", "recorded", "now", "lower", "upper", "read"),
    [
        ("append", log(), files(A), None, log([A]), (A,)),
        ("append", log([A]), files(A, B), log([A]), log([A], [B]), (B,)),
        ("append", log([A]), files(B), log([A]), log([A], [B]), (B,)),
        ("merge", log([A]), files(CHANGED), log([A]), log([A], [CHANGED]), (CHANGED,)),
        ("truncate", log([A]), files(A, B), None, log([A, B]), (A, B)),
    ],
)
@pytest.mark.parametrize("form", ["log", "list"])
def test_each_file_once_and_truncate_all_that_are_there(form, mode, recorded, now, lower, upper, read):
    """From a position in the log as from one that an older flowctl recorded, which lists the files."""
    listed = files(*recorded.files.values()) if recorded.files else None
    since, known = (recorded.position, recorded) if form == "log" else (listed, None)
    made = find(table(mode=mode, cursor=None), source(), high(now), since, "files", log=known).interval
    assert (made.lower, made.upper, made.files) == (lower.position if lower else None, upper.position, read)


@pytest.mark.parametrize(("mode", "now"), [("append", files(A)), ("append", files()), ("truncate", files(A))])
@pytest.mark.parametrize("form", ["log", "list"])
def test_no_new_files_are_no_work(form, mode, now):
    since, known = (log([A]).position, log([A])) if form == "log" else (files(A), None)
    made = find(table(mode=mode, cursor=None), source(), high(now), since, "files", log=known)
    assert made == Idle(made.reason, since, made.notes)


def test_a_read_file_that_vanished_is_reported():
    made = find(table(mode="append", cursor=None), source(), high(files(B)), log([A]).position, "files", log=log([A]))
    assert made.notes == ("a.csv no longer exists; the rows read earlier stay",)


@pytest.mark.parametrize("now", [files(A), files(A, B)])
def test_a_read_file_that_cannot_be_opened_any_more_is_reported(now):
    seen = replace(high(now), closed=("a.csv",))
    made = find(table(mode="append", cursor=None), source(), seen, log([A]).position, "files", log=log([A]))
    assert made.notes == ("a.csv cannot be opened any more; the columns are those of the last run and new files",)


def test_a_file_that_changed_after_append_has_read_it_stops():
    made = find(
        table(mode="append", cursor=None), source(), high(files(CHANGED)), log([A]).position, "files", log=log([A])
    )
    assert isinstance(made, Stop) and "changed after being read" in made.reason


def test_without_a_position_everything_is_read_every_time():
    made = find(table(cursor=None), source(), high(NoPosition()), NoPosition(), "none")
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
        made = find(spec, source(), high(position), recorded, "cursor")
        if isinstance(made, Work):
            start = made.interval.read_from
            read |= {time for time in arrived if start is None or time >= start.value}
            assert recorded is None or recorded.at <= made.interval.upper.at
            recorded = made.interval.upper
    assert set(arrived) == read
