"""Append at its position, on real Spark and a real source: late rows once, written rows never again, whatever columns
have come and gone since."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flowctl.connectors.base import Head
from flowctl.diagnostics import Mark
from flowctl.errors import StoppedByPolicy
from flowctl.model.position import CursorPosition, Ties, from_json, to_json
from flowctl.model.step import Step
from flowctl.model.table_info import RowEstimate
from flowctl.plan.intervals import Finding, Refused, Work, find
from flowctl.plan.projection import read_columns
from flowctl.run.appending import read_interval
from flowctl.run.reading import open_snapshot
from flowctl.spec.spec import ColumnRules, Cursor, ObjectSource, ReadHints, TableSpec, TargetRef
from flowctl.state.buffer import Buffer
from tests.connectors.reading import opened, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARK = Mark("flow.yaml", 1, 1)
SPEC = TableSpec("log", ObjectSource("src", ("log",)), TargetRef("dst", ("log",)), "append", MARK, cursor=Cursor("at"))
RELATION = table("log")


@dataclass
class Log:
    """A source table, and a plan with its read as often as a test likes. The position goes through JSON each time."""

    spark: SparkSession
    buffer: Buffer
    path: Path
    position: CursorPosition | None = None
    spec: TableSpec = SPEC
    written: list[dict[str, Any]] = field(default_factory=list)

    def do(self, script: str) -> None:
        connection = sqlite3.connect(self.path)
        connection.executescript(script)
        connection.close()

    def plan(self) -> Finding:
        with opened("sqlite", path=str(self.path)) as connector:
            (info,) = connector.source.describe([RELATION]).values()
        connection = sqlite3.connect(self.path)
        ((newest,),) = connection.execute("SELECT max(at) FROM log").fetchall()
        connection.close()
        kind = info.column("at").type
        from flowctl.model.value import TypedValue

        head = Head(CursorPosition(TypedValue(kind, newest)), RowEstimate())
        return find(self.spec, info, head, self.position, "cursor", "flow.yaml")

    def run(self) -> list[dict[str, Any]]:
        """The new rows."""
        made = self.plan()
        assert isinstance(made, Work), made
        with opened("sqlite", path=str(self.path)) as connector:
            (info,) = connector.source.describe([RELATION]).values()
            step = Step(
                "log", "change", "", MARK, "", "", "append", source_columns=read_columns(self.spec, info.columns)
            )
            with open_snapshot(connector.source, self.spark, RELATION, info, ReadHints(), self.buffer) as snapshot:
                read = read_interval(self.spark, snapshot, step, made.interval, self.buffer, "flow.yaml")
                rows = [row.asDict() for row in read.rows.frame.collect()]
        assert read.rows.count == len(rows)
        self.position = from_json(to_json(read.position))
        self.written += rows
        return rows


@pytest.fixture
def log(spark: SparkSession, tmp_path: Path) -> Iterator[Log]:
    with Buffer(str(tmp_path / "state"), "run", {}) as buffer:
        made = Log(spark, buffer, tmp_path / "log.db")
        made.do("CREATE TABLE log (at INTEGER, line TEXT)")
        yield made


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
    made = log.plan()
    assert isinstance(made, Refused) and '"host" is ' in made.reason
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
    with pytest.raises(StoppedByPolicy, match='at "at" 2 is there any more') as stopped:
        log.run()
    assert "--full-refresh log" in stopped.value.hint and "--position 2" in stopped.value.hint
    log.position = replace(log.position, ties=replace(log.position.ties, may_be_gone=True))  # --accept-definition
    assert lines(log.run()) == ["here", "rows"]


def test_positions_of_an_older_flowctl_leave_out_all_rows_of_each_hash(log: Log) -> None:
    log.do("INSERT INTO log VALUES (1, 'x'), (1, 'x'), (1, 'y')")
    log.run()
    ties = log.position.ties
    log.position = replace(log.position, ties=Ties(tuple((one, None) for one, _ in ties.counts), ties.columns))
    log.do("INSERT INTO log VALUES (1, 'z'), (2, 'b')")
    assert lines(log.run()) == ["b", "z"]
