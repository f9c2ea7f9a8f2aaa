"""XA transactions: what is only prepared may be rolled back later, so its rows are not delivered.

MariaDB says so in the GTID of the transaction, MySQL in the event that ends it. No MySQL server is here: its events are
written as its `control_events.cpp` reads them.
"""

from __future__ import annotations

import struct
import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from flowctl.changes.segment import Op
from flowctl.changes.shape import Shape
from flowctl.connectors.mysql.changes.capture import Reader, Tables
from flowctl.connectors.mysql.changes.events import Event, Kind, TableMap
from flowctl.connectors.mysql.changes.places import MysqlProgress
from flowctl.connectors.mysql.changes.protocol import LogReader
from flowctl.connectors.mysql.changes.wire import wire_of
from flowctl.errors import StoppedByPolicy
from flowctl.model.position import BinlogPosition
from flowctl.model.table_info import Column, ObjectName
from flowctl.model.types import INT32
from flowctl.storage.disk import DiskStore
from flowctl.storage.lander import Lander
from flowctl.storage.landing import LandedBatch, LandingLog
from tests.connectors.captured import NO_LIMITS
from tests.connectors.mysql.changes.streaming import Captured
from tests.connectors.mysql.conftest import Script

ONE = ObjectName(("one",))
SERVER = uuid.UUID(int=7)
_TABLE = 93
_WRITE_ROWS, _XID = 30, struct.pack("<III", 1, 1, 0) + b"x"


@dataclass
class Written(LogReader):
    """A log that ends, and idles then."""

    written: Sequence[Event] = ()

    def events(self) -> Iterator[Event]:
        yield from self.written


def event(kind: int, body: bytes) -> Event:
    return Event(1_700_000_000, kind, 1, 0, len(body), memoryview(body))


def gtid(number: int) -> Event:
    clocks = b"\2" + struct.pack("<QQ", number - 1, number)
    return event(Kind.GTID, b"\0" + SERVER.bytes + struct.pack("<Q", number) + clocks)


def query(text: str) -> Event:
    return event(Kind.QUERY, struct.pack("<IIBHH", 1, 0, 4, 0, 0) + b"shop\0" + text.encode())


def insert(table: str, id: int) -> list[Event]:
    """The map of a table with an INT, with its sign and name, and a row."""
    number = _TABLE.to_bytes(6, "little")
    named = b"\4shop\0" + bytes([len(table)]) + table.encode() + b"\0"
    described = number + b"\1\0" + named + b"\1\3\0\0" + b"\1\1\0" + b"\4\3\2id"
    rows = number + b"\1\0" + b"\2\0" + b"\1\xff" + b"\0" + struct.pack("<i", id)
    return [event(Kind.TABLE_MAP, described), event(_WRITE_ROWS, rows)]


def xa(table: str, id: int, *, one_phase: bool) -> list[Event]:
    """`XA START`, a row, `XA END`, and `XA PREPARE` or `XA COMMIT … ONE PHASE`."""
    framed = [query("XA START X'78',X'',1"), *insert(table, id), query("XA END X'78',X'',1")]
    return [*framed, event(Kind.XA_PREPARE, bytes([one_phase]) + _XID)]


def read(events: Sequence[Event], folder: Path) -> list[int]:
    """The operations that the stream of `one` delivers."""

    def shape_of(found: TableMap, object: ObjectName) -> Shape:
        wires = tuple(wire_of(one, "", "int").to_text() for one in found.columns)
        return Shape(object, "my/one", (Column("id", INT32),), ("id",), wires)

    log = LandingLog(DiskStore(str(folder)), str(folder), "streams/cdc/", {})
    start = BinlogPosition(f"{SERVER}:1")
    sink = Lander(log, log.create(LandedBatch(0, start, start)), NO_LIMITS)
    reader = Reader(
        Written(None, "cdc", 4711, written=events),
        sink,
        Tables({("shop", "one"): ONE}, str.lower),
        MysqlProgress({str(SERVER): ((1, 1),)}),
        shape_of,
        lambda object: pytest.fail("no change of a whole table"),
        is_mariadb=False,
    )
    end = BinlogPosition(f"{SERVER}:1-3")
    reader.read(lambda: end, threading.Event())
    newest = log.newest()
    assert newest is not None and reader.progress.order >= end.order
    numbers = [int(number) for table in newest.tables for number in table.shapes]
    return [op for rows in log.rows(newest, numbers) for op in rows["op"].to_pylist()] if numbers else []


@pytest.mark.parametrize("end", ["XA COMMIT", "XA ROLLBACK"])
def test_rows_that_mysql_has_only_prepared_stop_the_stream(end: str, tmp_path: Path) -> None:
    events = [gtid(2), *xa("one", 1, one_phase=False), gtid(3), query(f"{end} X'78',X'',1")]
    with pytest.raises(StoppedByPolicy, match="rows of a prepared XA transaction") as error:
        read(events, tmp_path)
    assert "XA RECOVER" in error.value.hint


def test_other_tables_may_be_in_xa_transactions_of_mysql(tmp_path: Path) -> None:
    others = [gtid(2), *xa("two", 1, one_phase=False)]
    assert read([*others, gtid(3), query("XA ROLLBACK X'78',X'',1")], tmp_path / "prepared") == []
    assert read([*others, gtid(3), *xa("one", 1, one_phase=True)], tmp_path / "committed") == [Op.INSERT]


def test_an_xa_transaction_of_one_phase_is_like_any_other(mysql_database: str, script: Script, tmp_path: Path) -> None:
    script("CREATE TABLE one (id int PRIMARY KEY); CREATE TABLE two (id int PRIMARY KEY)")
    captured = Captured(mysql_database, tmp_path, [ONE])
    with captured.begin():
        pass
    script("XA START 'x'; INSERT INTO one VALUES (1); XA END 'x'; XA COMMIT 'x' ONE PHASE")
    script("XA START 'y'; INSERT INTO two VALUES (1); XA END 'y'; XA PREPARE 'y'; XA ROLLBACK 'y'")
    captured.capture()
    assert captured.changes((Column("id", INT32),), ["id"], ONE).rows["id"].to_pylist() == [1]
