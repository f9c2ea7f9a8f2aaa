"""Places in a binary log: their order, and that they are unchanged by text and JSON."""

from __future__ import annotations

import random
import struct

import pytest

from flowctl.connectors.mysql.changes import events
from flowctl.connectors.mysql.changes.places import progress
from flowctl.connectors.mysql.changes.protocol import encoded
from flowctl.errors import StoppedByPolicy
from flowctl.model import binlog
from flowctl.model.position import BinlogPosition, comparable, from_json, place_from_text, to_json

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "3e11fa47-71ca-11e1-9e33-c80aa9429563"


@pytest.mark.parametrize(
    ("place", "order"),
    [
        ("", 0),
        ("0-1-42", 42),
        ("0-1-42,1-7-8", 50),
        (f"{A}:1-5", 5),
        (f"{A}:1-5:7,{B}:1", 7),
        ("12345678-1234-11ef-9e33-c80aa9429562:1-5", 5),  # begins like a GTID of MariaDB
        ("binlog.000007:1184", 7 << 32 | 1184),
        ("my-bin.log.1234567:4", 1234567 << 32 | 4),
        ("@123", 123),
    ],
)
def test_a_place_has_an_order_and_survives_json(place: str, order: int) -> None:
    position = place_from_text(place)
    assert position.order == order
    assert from_json(to_json(position)) == position and str(position) == place


@pytest.mark.parametrize("text", ["16/B374D848", "0-1", "binlog.000007", f"{A}:", "0-1-2;0-1-3", "@x"])
def test_other_texts_are_no_places(text: str) -> None:
    with pytest.raises(ValueError):
        place_from_text(text)


def test_files_and_gtids_are_not_comparable() -> None:
    gtid, file, part = BinlogPosition("0-1-5"), BinlogPosition("binlog.000001:4"), BinlogPosition("@7")
    assert not comparable(gtid, file) and comparable(gtid, part) and comparable(file, file)


def test_sets_of_mysql_are_normal_whatever_their_text() -> None:
    found = binlog.set_from_text(f" {B.upper()}:7, {A}:3-5:1-2:9 ,{A}:6")
    assert binlog.set_text(found) == f"{A}:1-6:9,{B}:7"
    assert encoded(binlog.set_from_text(f"{A}:1-6")) == (
        struct.pack("<Q", 1) + bytes.fromhex(A.replace("-", "")) + struct.pack("<QQQ", 1, 1, 7)
    )


def test_each_transaction_adds_one_to_a_set_of_mysql() -> None:
    chosen = random.Random(1)
    numbers = {A: list(range(1, 40)), B: list(range(1, 40))}
    for listed in numbers.values():
        chosen.shuffle(listed)
    there = progress("", is_mariadb=False)
    for count in range(78):
        source = chosen.choice([source for source, listed in numbers.items() if listed])
        gtid = events.Gtid(numbers[source].pop(), source=source)
        assert there.order_of(gtid) == there.order == binlog.order_of(there.place) == count
        there.ended(gtid, 1)
    assert there.place == f"{A}:1-39,{B}:1-39"


def test_domains_of_mariadb_add_up_and_numbers_do_not_go_back() -> None:
    there = progress("0-1-10,1-1-3", is_mariadb=True)
    first, gap = events.Gtid(4, domain=1), events.Gtid(20, domain=0)
    assert there.order_of(first) == 13
    there.ended(first, 2)
    assert there.place == "0-1-10,1-2-4" and there.order == 14
    assert there.order_of(gap) == 23 >= there.order
    there.ended(gap, 1)
    assert there.order == binlog.order_of(there.place) == 24
    with pytest.raises(StoppedByPolicy, match="not in the order of its GTIDs"):
        there.order_of(events.Gtid(20, domain=0))


def test_times_within_a_second_follow_from_the_place() -> None:
    """They grow, never reach the next second, and are never those of a snapshot, which is a whole second."""
    gtids, files = progress("0-1-10", is_mariadb=True), progress("binlog.000007:4", is_mariadb=True)
    assert [gtids.microsecond(order) for order in (0, 1, 999_998, 999_999)] == [1, 2, 999_999, 1]
    offsets = (4, 4295, 1 << 30, (1 << 32) - 1)
    assert [files.microsecond(binlog.file_order(7, at)) for at in offsets] == [1, 2, 249_999, 999_993]


def test_a_gtid_event_of_mysql() -> None:
    """Its fields as MySQL's `control_events.h` documents them."""
    source, at = bytes.fromhex(A.replace("-", "")), 1_700_000_000_123_456
    body = b"\x01" + source + struct.pack("<QBQQ", 77, 2, 5, 6) + at.to_bytes(7, "little") + b"\x00" * 5
    assert events.mysql_gtid(memoryview(body), is_anonymous=False) == events.Gtid(77, source=A, at=at)
    anonymous = events.mysql_gtid(memoryview(body), is_anonymous=True)
    assert anonymous == events.Gtid(0, at=at)
    with pytest.raises(StoppedByPolicy, match="without a GTID"):
        progress(f"{A}:1-3", is_mariadb=False).order_of(anonymous)
