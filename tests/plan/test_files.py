"""Tables of files: what was begun and is finished, given up or only recorded; what append must not read twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.model.file_log import FileLog
from flowctl.model.interval import Interval
from flowctl.model.position import FilesPosition, FileStamp, NoPosition
from flowctl.model.step import RecordOnly
from flowctl.observe.file_logs import files_written
from flowctl.plan.document import action_of
from tests.plan.worlds import committed, cursor, high, intent, observed, recorded, step, table, target

FILE_A, FILE_B, FIXED_B = (FileStamp(name, 1, tag) for name, tag in (("a.csv", "1"), ("b.csv", "1"), ("b.csv", "2")))


READ = FileLog().with_read("orders", [FILE_A])
BEGUN_TO = READ.with_read("orders", [FILE_B])


def _files_changed(*, mode="append", replaces=False, landed=False):
    """What state, its intent and the target name is in the log; the observation has looked it up."""
    spec = table(mode=mode)
    begun = intent(spec, Interval(READ.position, BEGUN_TO.position), replaces=replaces)
    commit = committed(4, "i4", BEGUN_TO.position) if landed else committed(position=READ.position)
    there = high(FilesPosition((FILE_A, FIXED_B)))
    seen = observed(there, target=target(), commit=commit, positions="files")
    return step(
        spec,
        replace(seen, file_log=READ, pending_log=READ.with_read("orders", [FILE_B])),
        recorded(spec, READ.position, intent=begun, highest=4),
    )


def test_a_begun_interval_whose_files_were_fixed_is_given_up():
    made = _files_changed()
    assert (action_of(made), made.seq) == ("change", 5)
    upper = READ.with_read("orders", [FIXED_B]).position
    assert made.interval == Interval(READ.position, upper, files=(FIXED_B,))
    assert made.notes[0].startswith("sequence number 4, begun by run 20261119T221004-1, is given up")


def test_a_begun_interval_of_an_older_flowctl_lists_its_files():
    read, begun_to = FilesPosition((FILE_A,)), FilesPosition((FILE_A, FILE_B))
    begun = intent(table(mode="append"), Interval(read, begun_to))
    made = step(
        table(mode="append"),
        observed(high(begun_to), target=target(), commit=committed(position=read), positions="files"),
        recorded(table(mode="append"), read, intent=begun, highest=4),
    )
    assert (action_of(made), made.interval.files_read, made.interval.upper) == ("recover", (FILE_B,), begun_to)


@pytest.mark.parametrize(("written", "action"), [([FILE_A], "none"), ([FILE_A, FILE_B], "stop")])
def test_append_stops_where_the_target_has_read_files_that_state_does_not_name(written, action):
    spec = table(mode="append")
    there = FileLog().with_read("orders", written)
    seen = observed(
        high(FilesPosition((FILE_A,))),
        target=target(),
        commit=committed(position=there.position),
        positions="files",
    )
    seen = replace(seen, file_log=READ, written_log=there if there != READ else None)
    made = step(spec, seen, recorded(spec, READ.position))
    assert action_of(made) == action
    if action == "stop":
        reason = (
            "the target has rows of 1 file that state does not count as read (b.csv): appending again would double them"
        )
        assert made.reason == reason


@pytest.mark.parametrize("position", [None, NoPosition(), cursor("2026-11-01T00:00:00Z")])
def test_append_stops_where_state_names_no_files_at_all(position):
    spec = table(mode="append")
    seen = observed(
        high(FilesPosition((FILE_A,))),
        target=target(),
        commit=committed(position=READ.position),
        positions="files",
    )
    made = step(spec, replace(seen, file_log=FileLog(), written_log=READ), recorded(spec, position))
    assert action_of(made) == "stop" and "that state does not count as read (a.csv)" in made.reason


def test_one_that_replaces_everything_each_time_is_given_up_too():
    made = _files_changed(mode="truncate", replaces=True)
    assert (action_of(made), made.seq, made.write_full) == ("change", 5, True)


def test_one_that_landed_is_recorded_whatever_became_of_its_files():
    made = _files_changed(landed=True)
    assert (action_of(made), made.seq, isinstance(made, RecordOnly)) == ("recover", 4, True)


def test_a_begun_full_refresh_whose_files_are_gone_is_one_under_the_next_number():
    made = _files_changed(replaces=True)
    assert (action_of(made), made.seq, made.reason, made.write_full, made.refresh) == (
        "change",
        5,
        "full refresh",
        True,
        True,
    )
    assert made.interval == Interval(
        None, FileLog().with_read("orders", [FILE_A, FIXED_B]).position, files=(FILE_A, FIXED_B)
    )
    assert made.notes[0].startswith("sequence number 4, begun by run 20261119T221004-1, is given up")


@pytest.mark.parametrize("given_up", [False, True])
def test_files_of_a_landed_number_are_looked_up_once_it_was_given_up(given_up):
    spec, written = table(mode="append"), FilesPosition((FILE_A, FILE_B))
    begun = intent(spec, Interval(FilesPosition((FILE_A,)), written))
    state = recorded(spec, FilesPosition(()), intent=begun, given_up=given_up)
    log = files_written(None, "orders", state, committed(4, "i4", written))
    assert (log is not None and set(log.files) == {"a.csv", "b.csv"}) == given_up
