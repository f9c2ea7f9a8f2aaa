"""After `RESET MASTER`, files and GTIDs of a log stand for other transactions than before."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from flowctl.connectors.mysql.changes.identity import OpenedFile, Verdict, verdict
from flowctl.errors import StoppedByPolicy
from flowctl.model.position import BinlogPosition, from_json, to_json
from flowctl.spec.spec import StreamSpec
from tests.connectors.captured import STREAM
from tests.connectors.mysql.changes.test_capture import FILES, ONE, begin, ops
from tests.connectors.mysql.conftest import Script

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5", "binlog.000007:1184"
KNOWN = OpenedFile(1, 100, "binlog.000007")


@pytest.mark.parametrize("has_captured", [False, True])
@pytest.mark.parametrize("stream", [STREAM, FILES], ids=["gtid", "file"])
def test_a_log_that_was_reset_and_is_longer_than_the_position(
    stream: StreamSpec, has_captured: bool, mysql_database: str, script: Script, tmp_path: Path
) -> None:
    script("RESET MASTER")  # so that few transactions are enough
    captured = begin(stream, mysql_database, script, tmp_path)
    if has_captured:
        script("INSERT INTO one VALUES (1, 'a'); FLUSH BINARY LOGS; INSERT INTO one VALUES (2, 'a')")
        captured.capture()
    time.sleep(1.1)  # the log has whole seconds
    inserts = ";".join(f"INSERT INTO one VALUES ({number}, 'a')" for number in range(10, 30))
    script(f"RESET MASTER; DELETE FROM one; {inserts}; FLUSH BINARY LOGS; DELETE FROM one; {inserts}")
    with pytest.raises(StoppedByPolicy, match=r"the log was reset \(RESET MASTER\)"):
        captured.capture()


def test_a_position_of_an_older_flowctl_continues(mysql_database: str, script: Script, tmp_path: Path) -> None:
    captured = begin(STREAM, mysql_database, script, tmp_path)
    newest = captured.log.newest()
    assert newest is not None and isinstance(newest.upper, BinlogPosition)
    captured.log.create(replace(newest, batch=1, upper=BinlogPosition(newest.upper.place)))
    script("INSERT INTO one VALUES (1, 'a')")
    landed = captured.capture().upper
    assert isinstance(landed, BinlogPosition) and landed.log == newest.upper.log
    assert ops(captured) == [("INSERT", 1)]


def test_a_position_keeps_the_file_in_which_it_was_reached(mysql_database: str, script: Script, tmp_path: Path) -> None:
    captured = begin(STREAM, mysql_database, script, tmp_path)
    before = captured.capture().upper
    assert isinstance(before, BinlogPosition)
    assert from_json({"kind": "binlog", "at": "0-1-5"}) == BinlogPosition("0-1-5", log="")
    read = from_json(to_json(before))
    assert isinstance(read, BinlogPosition) and read.log == before.log
    assert OpenedFile.from_text(read.log).name.startswith("binlog.")
    script("INSERT INTO one VALUES (1, 'a'); FLUSH BINARY LOGS")
    after = captured.capture().upper
    script("INSERT INTO one VALUES (2, 'a')")
    later = captured.capture().upper
    assert isinstance(after, BinlogPosition) and isinstance(later, BinlogPosition)
    assert after.log == before.log != later.log and ops(captured, ONE) == [("INSERT", 1), ("INSERT", 2)]


@pytest.mark.parametrize(
    ("here", "place", "before", "expected"),
    [
        (KNOWN, "0-1-5", None, "same"),
        (replace(KNOWN, created=101), B, None, "another"),
        (replace(KNOWN, server=2), B, None, "another"),
        (OpenedFile(2, 200, "binlog.000001"), "0-1-5", {}, "same"),  # of the same topology
        (OpenedFile(1, 200, "binlog.000008"), "0-1-5", None, "unclear"),
        (OpenedFile(1, 200, "binlog.000008"), "0-1-5", {0: (1, 5)}, "same"),
        (OpenedFile(1, 200, "binlog.000008"), "0-1-5", {0: (1, 3)}, "another"),
        (OpenedFile(1, 200, "binlog.000001"), "0-1-5", {}, "another"),
        (OpenedFile(1, 200, "binlog.000001"), "0-2-5", {}, "same"),  # of a replica, which has begun a log
        (OpenedFile(1, 200, "binlog.000001"), "0-1-5,1-1-3", {0: (1, 5), 1: (1, 3)}, "same"),  # with its state set
    ],
)
def test_which_log_a_place_of_mariadb_is_in(
    here: OpenedFile, place: str, before: dict[int, tuple[int, int]] | None, expected: Verdict
) -> None:
    assert verdict(KNOWN, here, place, before, is_mariadb=True) == expected


@pytest.mark.parametrize(
    ("here", "expected"),
    [
        (KNOWN, "same"),
        (OpenedFile(1, 200, "binlog.000008"), "same"),
        (OpenedFile(1, 200, "binlog.000007"), "another"),
        (OpenedFile(1, 200, "binlog.000001"), "another"),
        (OpenedFile(1, 200, "renamed.000001"), "same"),
    ],
)
def test_which_log_a_place_of_mysql_is_in(here: OpenedFile, expected: Verdict) -> None:
    assert verdict(KNOWN, here, A, None, is_mariadb=False) == expected
