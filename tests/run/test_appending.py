"""Append at its position, on real Spark and a real source: late rows once, written rows never again, whatever columns
have come and gone since."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from flowctl.connectors.buffered import frame_of
from flowctl.connectors.source import HighWatermark, WatermarkRequest
from flowctl.diagnostics import Mark
from flowctl.engine.batch import InMemory, OnEngine
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model.position import CursorPosition, Ties, from_json, to_json
from flowctl.model.table_info import RowEstimate, TableInfo
from flowctl.model.value import TypedValue
from flowctl.plan.finding import Finding, Idle, Stop, Work
from flowctl.plan.intervals import find
from flowctl.plan.projection import read_columns
from flowctl.run.appending import read_interval
from flowctl.run.reading import open_snapshot
from flowctl.spec.spec import ColumnRules, Cursor, Guard, ObjectSource, ReadHints, TableSpec, TargetRef
from flowctl.storage.buffer import Buffer
from tests.connectors.reading import opened, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARK = Mark("flow.yaml", 1, 1)
SPEC = TableSpec("log", ObjectSource("src", ("log",)), TargetRef("dst", ("log",)), "append", MARK, cursor=Cursor("at"))
RELATION = table("log")


@dataclass
class Log:
    """A source table, and a plan with its read as often as a test likes. The position goes through JSON each time.
    ``connector`` are the type of the source and its options, ``execute`` runs SQL there."""

    spark: SparkSession
    buffer: Buffer
    connector: tuple[str, dict[str, str]]
    execute: Callable[[str], list[tuple[Any, ...]]]
    hints: ReadHints = ReadHints()
    position: CursorPosition | None = None
    spec: TableSpec = SPEC
    has_older: bool = True

    def do(self, script: str) -> None:
        for statement in script.split(";"):
            self.execute(statement)

    def plan(self, info: TableInfo) -> Finding:
        ((newest,),) = self.execute("SELECT max(at) FROM log")
        watermark = HighWatermark(
            CursorPosition(TypedValue(info.columns[0].type, newest)), RowEstimate(), has_older=self.has_older
        )
        return find(self.spec, info, watermark, self.position, "cursor", "flow.yaml")

    @contextmanager
    def source(self) -> Iterator[tuple[Any, TableInfo]]:
        kind, options = self.connector
        with opened(kind, **options) as connector:
            (info,) = connector.source.describe([RELATION]).values()
            yield connector.source, info

    def refused(self) -> Stop:
        with self.source() as (_, info):
            made = self.plan(info)
        assert isinstance(made, Stop), made
        return made

    def run(self) -> list[dict[str, Any]]:
        """The new rows."""
        with self.source() as (source, info):
            made = self.plan(info)
            assert isinstance(made, Work), made
            read = read_columns(self.spec, info.columns)
            with open_snapshot(source, self.spark, RELATION, info, self.hints, self.buffer) as snapshot:
                found = read_interval(self.spark, snapshot, read, self.spec, made.interval, self.buffer, "flow.yaml")
                frame = frame_of(found.rows, self.spark, lambda: self.buffer.folder("found"))
                rows = [row.asDict() for row in frame.collect()]
        assert isinstance(found.rows, OnEngine if self.hints.splits else InMemory)
        self.position = from_json(to_json(found.position))
        return rows


def in_sqlite(spark: SparkSession, buffer: Buffer, path: Path) -> Log:
    def execute(statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(path)) as connection, connection:
            return connection.execute(statement).fetchall()

    return Log(spark, buffer, ("sqlite", {"path": str(path)}), execute)


def in_postgres(spark: SparkSession, buffer: Buffer, url: str, hints: ReadHints) -> Log:
    def execute(statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(url) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    return Log(spark, buffer, ("postgres", {"url": url}), execute, hints)


@pytest.fixture
def buffer(tmp_path: Path) -> Iterator[Buffer]:
    with Buffer(str(tmp_path / "state"), "run", {}) as made:
        yield made


@pytest.fixture
def log(spark: SparkSession, buffer: Buffer, tmp_path: Path) -> Log:
    made = in_sqlite(spark, buffer, tmp_path / "log.db")
    made.do("CREATE TABLE log (at INTEGER, line TEXT)")
    return made


def lines(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(row["line"] for row in rows)


def test_equal_rows_that_arrive_later_at_the_position_are_written_as_often_as_they_come(log: Log) -> None:
    log.do("INSERT INTO log VALUES (1, 'a'), (2, 'x'), (2, 'x'), (2, 'y')")
    assert lines(log.run()) == ["a", "x", "x", "y"]
    log.do("INSERT INTO log VALUES (2, 'x'), (2, 'z'), (2, NULL), (3, 'b')")
    assert sorted(map(str, (row["line"] for row in log.run()))) == ["None", "b", "x", "z"]
    log.do("INSERT INTO log VALUES (3, 'b'), (3, 'b'), (4, 'c')")
    assert lines(log.run()) == ["b", "b", "c"]


def test_a_written_row_is_not_written_again_after_its_columns_have_changed(log: Log) -> None:
    log.do("INSERT INTO log VALUES (1, 'a'), (2, 'x'), (2, 'y')")
    log.run()
    log.do("ALTER TABLE log ADD COLUMN host TEXT DEFAULT 'h1'; INSERT INTO log VALUES (2, 'z', 'h2'), (3, 'b', 'h2')")
    assert lines(log.run()) == ["b", "z"]
    log.do("INSERT INTO log VALUES (3, 'b', 'h3'), (4, 'c', 'h2')")
    assert lines(log.run()) == ["b", "c"]


def test_columns_that_the_table_takes_no_longer_still_tell_its_rows_apart(log: Log) -> None:
    log.do("ALTER TABLE log ADD COLUMN host TEXT; INSERT INTO log VALUES (1, 'x', 'h1'), (1, 'x', 'h2')")
    log.run()
    log.spec = replace(SPEC, columns=ColumnRules(exclude=("host",)))
    log.do("INSERT INTO log VALUES (1, 'x', 'h3'), (2, 'y', 'h1')")
    rows = log.run()
    assert lines(rows) == ["x", "y"] and set(rows[0]) == {"at", "line"}


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE log DROP COLUMN host",
        "ALTER TABLE log RENAME COLUMN host TO machine",
        "ALTER TABLE log DROP COLUMN host; ALTER TABLE log ADD COLUMN host INTEGER",
    ],
)
def test_a_column_that_is_gone_or_another_stops_the_table_with_both_next_steps(log: Log, change: str) -> None:
    log.do("ALTER TABLE log ADD COLUMN host TEXT; INSERT INTO log VALUES (1, 'x', 'h1')")
    log.run()
    log.do(f"{change}; INSERT INTO log (at, line) VALUES (2, 'y')")
    made = log.refused()
    assert '"host" is ' in made.reason
    assert "`flowctl state set flow.yaml log --position 1`" in made.hint and "--full-refresh log" in made.hint
    log.position = replace(log.position, ties=None)  # what `state set --position 1` leaves
    log.do("INSERT INTO log (at, line) VALUES (1, 'never read')")
    assert lines(log.run()) == ["y"]


def test_a_column_made_wider_keeps_its_rows(log: Log) -> None:
    log.do("DROP TABLE log; CREATE TABLE log (at INTEGER, line TEXT, n INT2); INSERT INTO log VALUES (1, 'x', 7)")
    log.run()
    log.do("DROP TABLE log; CREATE TABLE log (at BIGINT, line TEXT, n BIGINT)")
    log.do("INSERT INTO log VALUES (1, 'x', 7), (2, 'y', 8)")
    assert lines(log.run()) == ["y"]


def test_a_table_made_anew_whose_row_at_the_position_is_another_stops(log: Log) -> None:
    log.do("INSERT INTO log VALUES (1, 'a'), (2, 'b')")
    log.run()
    log.do("DROP TABLE log; CREATE TABLE log (at INTEGER, line TEXT)")
    log.do("INSERT INTO log VALUES (1, 'other'), (2, 'rows'), (3, 'here')")
    with pytest.raises(StoppedByPolicy, match='at "at" 2 exists any more') as stopped:
        log.run()
    assert "--full-refresh log" in stopped.value.hint and "--position 2" in stopped.value.hint
    log.position = replace(log.position, ties=replace(log.position.ties, may_be_gone=True))  # --accept-definition
    assert lines(log.run()) == ["here", "rows"]


def test_a_log_that_deletes_old_rows_goes_on_above_them_unless_one_is_left(log: Log) -> None:
    log.spec = replace(SPEC, guard=Guard(allow_purged=True))
    log.do("INSERT INTO log VALUES (1, 'a'), (2, 'b')")
    log.run()
    log.do("DELETE FROM log WHERE at = 2; INSERT INTO log VALUES (3, 'c')")
    with pytest.raises(StoppedByPolicy, match='at "at" 2 exists any more'):
        log.run()
    log.do("DELETE FROM log WHERE at = 1")
    log.has_older = False
    assert lines(log.run()) == ["c"]
    log.do("DELETE FROM log; INSERT INTO log VALUES (3, 'other'), (4, 'd')")
    with pytest.raises(StoppedByPolicy, match='at "at" 3 exists any more'):
        log.run()


def test_positions_of_an_older_flowctl_leave_out_all_rows_of_each_hash(log: Log) -> None:
    log.do("INSERT INTO log VALUES (1, 'x'), (1, 'x'), (1, 'y')")
    log.run()
    ties = log.position.ties
    log.position = replace(log.position, ties=Ties(tuple((one, None) for one, _ in ties.counts), ties.columns))
    log.do("INSERT INTO log VALUES (1, 'z'), (2, 'b')")
    assert lines(log.run()) == ["b", "z"]


@pytest.mark.parametrize("hints", [ReadHints(), ReadHints(splits=2)], ids=["in memory", "by the engine"])
def test_postgres_rows_at_the_position_are_told_apart_as_well(
    spark: SparkSession, buffer: Buffer, postgres_database: str, hints: ReadHints
) -> None:
    log = in_postgres(spark, buffer, postgres_database, hints)
    day = "timestamptz '2026-01-01Z' + interval '1 s' *"
    log.do("CREATE TABLE log (at timestamptz, line text, host inet, n numeric(9,2), d date)")
    values = "'h', '::1', 1.50, '2026-01-01'"
    log.do(f"INSERT INTO log SELECT {day} i, {values} FROM unnest(ARRAY[1, 2, 2]) i")
    assert len(log.run()) == 3
    log.do("ALTER TABLE log ADD COLUMN level text DEFAULT 'info', ALTER COLUMN n TYPE numeric(12,4)")
    log.do(f"INSERT INTO log SELECT {day} i, {values}, 'new' FROM unnest(ARRAY[2, 3]) i")
    assert sorted(row["at"].second for row in log.run()) == [2, 3]
    log.spec = replace(SPEC, columns=ColumnRules(exclude=("host",)))
    log.do(f"INSERT INTO log SELECT {day} i, 'h', '::2', 1.50, '2026-01-01', 'new' FROM unnest(ARRAY[3, 4]) i")
    rows = log.run()
    assert sorted(row["at"].second for row in rows) == [3, 4] and "host" not in rows[0]
    log.do(f"ALTER TABLE log DROP COLUMN level; INSERT INTO log SELECT {day} 5")
    assert '"level" is gone' in log.refused().reason


@dataclass
class TimedLog(Log):
    """What the source itself says of its cursor, a time, is planned with."""

    def plan(self, info: TableInfo) -> Finding:
        at = self.position.at if self.position is not None else None
        cursor = self.spec.cursor
        assert cursor is not None
        request = WatermarkRequest(
            RELATION, info, info.columns[0], lower=at, position=at, delay=cursor.delay, appends=True, estimate="none"
        )
        with self.source() as (source, _):
            watermark = source.high_watermarks({"log": request})["log"]
        return find(self.spec, info, watermark, self.position, "cursor", "flow.yaml")


def test_more_rows_at_one_value_than_can_be_told_apart_are_written_once_with_a_delay(
    spark: SparkSession, buffer: Buffer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowctl.run.appending.MOST", 3)
    log = in_sqlite(spark, buffer, tmp_path / "log.db")
    log = TimedLog(spark, buffer, log.connector, log.execute)
    log.do("CREATE TABLE log (at TIMESTAMP, line TEXT); INSERT INTO log VALUES ('2026-01-01 00:00:00.5', 'a')")
    for line in "bcd":
        log.do(f"INSERT INTO log VALUES ('2026-01-01 00:00:00.5', '{line}')")
    with pytest.raises(TableError, match='more than 10,000 rows share the newest "at" 2026-01-01T') as failed:
        log.run()
    assert failed.value.hint.startswith("Set cursor.delay to longer than any transaction")
    log.spec = replace(SPEC, cursor=Cursor("at", delay=60.0))
    assert lines(log.run()) == ["a", "b", "c", "d"]
    assert log.position is not None and (log.position.ties, log.position.rows) == (None, 4)
    with log.source() as (_, info):
        assert log.plan(info) == Idle("no new rows", log.position)
    log.do("INSERT INTO log VALUES ('2026-01-02 00:00:00.5', 'e')")
    assert lines(log.run()) == ["e"]
    assert log.position.ties is not None and log.position.rows is None


def test_rows_that_come_nevertheless_where_too_many_are_stop_the_table(
    spark: SparkSession, buffer: Buffer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowctl.run.appending.MOST", 1)
    log = in_sqlite(spark, buffer, tmp_path / "log.db")
    log = TimedLog(spark, buffer, log.connector, log.execute, spec=replace(SPEC, cursor=Cursor("at", delay=172800.0)))
    log.do("CREATE TABLE log (at DATE, line TEXT); INSERT INTO log VALUES ('2026-01-01', 'a'), ('2026-01-01', 'b')")
    assert lines(log.run()) == ["a", "b"]
    log.do("INSERT INTO log VALUES ('2026-01-01', 'late'), ('2026-01-02', 'c')")
    made = log.refused()
    assert made.reason.startswith('1 row came at "at" 2026-01-01 after it was read')
    assert "`flowctl state set flow.yaml log --position 2026-01-01`" in made.hint
    log.position = replace(log.position, rows=None)  # what that leaves
    assert lines(log.run()) == ["c"]


#: What happens to the source between two runs, with the columns that a row has from then on.
CHANGES = ("nothing", "nothing", "a column more", "a column fewer", "an old row gone")


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 60))])
def test_however_rows_arrive_at_ties_each_is_written_once(log: Log, seed: int) -> None:
    """Rows of few contents at rising positions, many of them equal, while columns come and go. A column that goes stops
    the table; what `state set` at the position leaves unread is not written, whatever comes there."""
    chance = random.Random(seed)
    expected: Counter[tuple[int, str]] = Counter()
    written: Counter[tuple[int, str]] = Counter()
    position, columns = 0, 0
    for _ in range(5):
        match chance.choice(CHANGES):
            case "a column more":
                columns += 1
                log.do(f"ALTER TABLE log ADD COLUMN c{columns} TEXT DEFAULT 'x'")
            case "a column fewer" if columns:
                log.do(f"ALTER TABLE log DROP COLUMN c{columns}")
                columns -= 1
            case "an old row gone" if position:
                log.do(f"DELETE FROM log WHERE at < {position} AND rowid % 3 = 0")
        newest = position + chance.randint(1, 2)
        arriving = [(at, chance.choice("ab")) for at in (position, newest) for _ in range(chance.randint(0, 3)) if at]
        arriving.append((newest, "a"))
        for at, line in arriving:
            log.do(f"INSERT INTO log (at, line) VALUES ({at}, '{line}')")
        with log.source() as (_, info):
            if isinstance(log.plan(info), Stop):
                log.position = replace(log.position, ties=None)
                arriving = [row for row in arriving if row[0] > position]
        expected.update(arriving)
        written.update((row["at"], row["line"]) for row in log.run())
        position = newest
    assert written == expected
