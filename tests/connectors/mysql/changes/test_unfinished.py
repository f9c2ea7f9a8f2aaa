"""A transaction without an end: the server was killed while it wrote it into its log, and has rolled it back."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from flowctl.connectors.mysql.changes.events import Event, Kind
from flowctl.storage import lander
from flowctl.storage.disk import DiskStore
from flowctl.storage.landing import LandingLog
from tests.connectors.mysql.changes.test_xa import event, gtid, insert, query, read

COMMIT = event(Kind.XID, struct.pack("<Q", 1))
RESTARTED = event(Kind.FORMAT, b"")


def whole(number: int, id: int) -> list[Event]:
    return [gtid(number), query("BEGIN"), *insert("one", id), COMMIT]


def cut(number: int, *ids: int) -> list[Event]:
    return [gtid(number), query("BEGIN"), *(one for id in ids for one in insert("one", id))]


def ids(events: Sequence[Event], folder: Path) -> list[int]:
    """Those of the rows that the stream of `one` delivers."""
    read([RESTARTED, *events], folder)
    log = LandingLog(DiskStore(str(folder)), str(folder), "streams/cdc/", {})
    rows = [row for number in log.numbers()[1:] for row in _data(log, number)]
    return [struct.unpack("<i", row[-4:])[0] for row in rows]


def _data(log: LandingLog, number: int) -> list[bytes]:
    (batch,) = log.between(number - 1, number)
    return [data for rows in log.rows(batch, [1]) for data in rows["data"].to_pylist()]


@pytest.mark.parametrize("run_bytes", [lander.RUN_BYTES, 1])  # 1: each row is written before its transaction ends
@pytest.mark.parametrize("between", [[RESTARTED], []])
def test_rows_of_a_transaction_without_an_end(
    between: list[Event], run_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lander, "RUN_BYTES", run_bytes)
    assert ids([*whole(2, 1), *cut(3, 98, 99), *between, *whole(3, 2)], tmp_path) == [1, 2]


def test_nothing_but_a_transaction_without_an_end(tmp_path: Path) -> None:
    unfinished = [*whole(2, 1), *cut(3, 99), RESTARTED]
    assert ids([*unfinished, gtid(3), query("BEGIN"), *insert("two", 5), COMMIT], tmp_path) == [1]
