"""A table in SQLite that takes batches of messages as staging makes them, and what its source makes of the changes."""

from __future__ import annotations

import datetime as dt
import random
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.buffered import frame_of
from flowctl.connectors.source import (
    DELETED_COLUMN,
    PLACE_COLUMN,
    SOURCE_ORDER_COLUMN,
    TIME_COLUMN,
    TRUNCATED_COLUMN,
    ReadRequest,
    Snapshot,
)
from flowctl.connectors.target import WriteJob
from flowctl.diagnostics import Mark
from flowctl.engine.batch import InMemory, OnEngine
from flowctl.model import types
from flowctl.model.commit import Commit, Intent
from flowctl.model.interval import Interval
from flowctl.model.position import OffsetsPosition
from flowctl.model.projection import Columns
from flowctl.model.step import Load, PlannedTable, SeenTarget
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.plan.projection import projection
from flowctl.resolve.names import own_columns
from flowctl.run.appending import IntervalRead
from flowctl.run.stage import StagedBatch, Staging, stage
from flowctl.run.truncation import find_truncates, with_truncate
from flowctl.spec.spec import ReportedDeletes, TableSpec, TargetRef, TopicSource
from flowctl.sql import scd2
from flowctl.sql.dialects import schema_ddl
from flowctl.sql.difference import SOURCE_ORDER, Upsert, apply_statements, difference
from flowctl.sql.observations import observations
from flowctl.sql.versioning import Versioning, kept_columns, observed_columns
from flowctl.storage.buffer import Buffer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MARK = Mark("flow.yaml", 1, 1)
EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ROW = (Column("id", types.INT64), Column("name", types.STRING))
OWN = (
    Column(PLACE_COLUMN, types.INT64),
    Column(DELETED_COLUMN, types.BOOL),
    Column(TIME_COLUMN, types.TIMESTAMP),
    Column(TRUNCATED_COLUMN, types.BOOL),
    Column(SOURCE_ORDER_COLUMN, types.STRING),
)
TABLE = TableSpec(
    id="t",
    source=TopicSource("bus", ("t",)),
    target=TargetRef("out", ("t",)),
    mode="merge",
    mark=MARK,
    key=("id",),
    deletes=ReportedDeletes(action="soft"),
    format={"type": "json", "envelope": "debezium"},
)
ORDERED = replace(TABLE, format={**TABLE.format, "source_order": True})
HARD = replace(TABLE, deletes=ReportedDeletes(action="hard"))
HISTORY = replace(TABLE, mode="scd2", deletes=ReportedDeletes(action="hard"))
ORDERED_HISTORY = replace(HISTORY, format=ORDERED.format)


@dataclass(frozen=True)
class Change:
    """``id`` None: the table was truncated. ``name`` None: the row was deleted."""

    lsn: int
    id: int | None
    name: str | None = None


@dataclass(frozen=True)
class Sent:
    """A message: at ``offset`` of its partition, with a ``time`` in seconds."""

    change: Change
    offset: int
    time: int


@dataclass(frozen=True)
class FrameSnapshot(Snapshot):
    has_places: bool = True

    def frame(self, request: ReadRequest) -> DataFrame:
        raise NotImplementedError

    def is_empty(self, request: ReadRequest) -> bool:
        raise NotImplementedError


@dataclass
class Table:
    """A target in SQLite, and how far it has read."""

    spark: SparkSession
    buffer: Buffer
    table: TableSpec
    database: sqlite3.Connection
    in_memory: bool = True
    position: OffsetsPosition = OffsetsPosition(())
    commits: int = 0
    is_log: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        made = projection(self.table, ROW)
        own = own_columns(self.table)
        self.columns = Columns(ROW, (*(part.column for part in made), *own.values()), made)
        names = ", ".join(column.name for column in self.columns.target)
        self.database.execute(f"CREATE TABLE t ({names})")
        self.database.execute(f"CREATE TABLE o ({', '.join(one.name for one in self._observed)})")

    @property
    def _kept(self) -> tuple[Any, ...]:
        columns = self.columns.target
        return kept_columns(columns, ("id",), ("name",), [column.name for column in columns])

    @property
    def _observed(self) -> tuple[Column, ...]:
        if self.table.mode != "scd2":
            return ROW
        return observed_columns(self.columns.target, ("id",), self._kept)

    def describe(self, objects: Sequence[ObjectName]) -> dict[ObjectName, TableInfo]:
        return {one: TableInfo(one, self.columns.target, "t") for one in objects}

    def scan(self, spark: SparkSession, object: ObjectName, columns: Sequence[Column]) -> DataFrame:
        names = [column.name for column in columns]
        found = self.database.execute(f"SELECT {', '.join(names)} FROM t").fetchall()
        rows = [tuple(_typed(value, column) for value, column in zip(row, columns, strict=True)) for row in found]
        return spark.createDataFrame(rows, schema_ddl(columns))

    def stage(self, sent: Sequence[Sent]) -> StagedBatch:
        planned = PlannedTable(
            id="t",
            mark=MARK,
            source="bus:t",
            target="out:t",
            mode=self.table.mode,
            key=("id",),
            via="staged",
            seen=SeenTarget(exists=True),
        )
        interval = Interval(self.position, OffsetsPosition(((0, self.commits + 1),)))
        load = Load(table=planned, reason="", seq=self.commits + 1, interval=interval, columns=self.columns)
        intent = Intent("i", load.seq, interval, {}, "", "run", 1, "2030-01-01T00:00:00.000000Z")
        rows = pa.Table.from_pylist([_landed(one) for one in sent], arrow_schema((*ROW, *OWN)))
        read = frame_of(InMemory(rows), self.spark, lambda: self.buffer.folder("in"))
        batch = InMemory(rows) if self.in_memory else OnEngine(read)
        truncates = find_truncates(batch, self.table, interval)
        position = with_truncate(interval.upper, truncates, self.table)
        assert isinstance(position, OffsetsPosition)
        self.next = position
        made = IntervalRead(batch, position, None, truncates)
        job = WriteJob(Commit("", "t", load.seq, "i", "t", None), self.table.target.object, self.table.mode, ())
        args = (self.spark, FrameSnapshot(), made, load, self.columns, self.table, intent, self, self.buffer, job)
        return stage(Staging(*args))  # type: ignore[arg-type]

    def take(self, sent: Sequence[Sent]) -> None:
        staged = self.stage(sent)
        rows = frame_of(staged.batch, self.spark, lambda: self.buffer.folder("out")).toArrow()
        self._apply(rows)
        again = self.stage(sent)  # as after a kill: nothing of it may change the table once more
        before = self.rows(*(column.name for column in self.columns.target))
        self._apply(frame_of(again.batch, self.spark, lambda: self.buffer.folder("out")).toArrow())
        assert self.rows(*(column.name for column in self.columns.target)) == before
        self.position, self.commits = self.next, self.commits + 1

    def _apply(self, rows: pa.Table) -> None:
        run, names = self.database.execute, rows.schema.names
        run(f"CREATE TEMP TABLE s ({', '.join(names)})")
        marks = ", ".join("?" * len(names))
        self.database.executemany(
            f"INSERT INTO s VALUES ({marks})", [tuple(map(_stored, row.values())) for row in rows.to_pylist()]
        )
        for statement in self._merging(names) if self.table.mode == "merge" else self._versioning(names):
            run(statement)
        run("DROP TABLE changes")
        run("DROP TABLE s")

    def _merging(self, names: Sequence[str]) -> Iterator[str]:
        is_soft = self.table.deletes is not None and self.table.deletes.action == "soft"
        change = Upsert(
            ("t",), ("s",), tuple(one.name for one in self.columns.target), tuple(names), ("id",), ("name",),
            "_flowctl_op", "2030-01-01T00:00:00Z" if is_soft else None, self.table.has_source_order,
        )  # fmt: skip
        yield f"CREATE TEMP TABLE changes AS {difference(change, 'sqlite')}"
        yield from apply_statements(change, ("changes",), "sqlite")

    def _versioning(self, names: Sequence[str]) -> Iterator[str]:
        kept = self._kept
        order = next((one for one in kept if one.name == SOURCE_ORDER), None)
        columns = tuple(one.name for one in self.columns.target)
        change = Versioning(
            ("t",), ("s",), ("o",), columns, tuple(names), ("id",), self.commits + 1, "_flowctl_op",
            "_flowctl_detected", kept=kept, compared=("name",), order=order,
        )  # fmt: skip
        yield f"INSERT INTO o {observations(change, 'sqlite')}"
        yield f"CREATE TEMP TABLE changes AS {scd2.difference(change, 'sqlite')}"
        yield scd2.removal(change, ("changes",), "sqlite")
        yield scd2.addition(change, ("changes",), "sqlite")

    def rows(self, *names: str, where: str = "1") -> list[tuple[Any, ...]]:
        return sorted(self.database.execute(f"SELECT {', '.join(names)} FROM t WHERE {where}").fetchall(), key=repr)

    @property
    def live(self) -> dict[int, str]:
        is_live = {"scd2": "is_current"}.get(self.table.mode, "1")
        if any(column.name == "_deleted_at" for column in self.columns.target):
            is_live = "_deleted_at IS NULL"
        found = self.rows("id", "name", where=is_live)
        assert len(dict(found)) == len(found), "one live row for each key"
        return dict(found)


def _landed(sent: Sent) -> dict[str, Any]:
    change = sent.change
    return {
        "id": change.id,
        "name": change.name,
        PLACE_COLUMN: sent.offset,
        DELETED_COLUMN: change.id is not None and change.name is None,
        TIME_COLUMN: EPOCH + dt.timedelta(seconds=sent.time),
        TRUNCATED_COLUMN: change.id is None,
        SOURCE_ORDER_COLUMN: f"{change.lsn:020}",
    }


def _stored(value: Any) -> Any:
    """Times as seconds since the test's beginning."""
    return round((value - EPOCH).total_seconds()) if isinstance(value, dt.datetime) else value


def _typed(value: Any, column: Column) -> Any:
    if column.type == types.BOOL:
        return None if value is None else bool(value)
    if column.type == types.TIMESTAMP:
        return None if value is None else EPOCH
    return value


def source_rows(log: Sequence[Change]) -> dict[int, str]:
    rows: dict[int, str] = {}
    for change in log:
        if change.id is None:
            rows.clear()
        elif change.name is None:
            rows.pop(change.id, None)
        else:
            rows[change.id] = change.name
    return rows


def source_versions(sent: Sequence[Sent]) -> list[tuple[int, str, int, int | None]]:
    """Of messages in order, each with another time."""
    open: dict[int, tuple[str, int]] = {}
    ended: list[tuple[int, str, int, int | None]] = []

    def end(id: int, time: int) -> None:
        if id in open:
            name, begun = open.pop(id)
            ended.append((id, name, begun, time))

    for one in sent:
        change = one.change
        if change.id is None:
            for id in [*open]:
                end(id, one.time)
        elif change.name is None:
            end(change.id, one.time)
        elif open.get(change.id, ("", 0))[0] != change.name:
            end(change.id, one.time)
            open[change.id] = (change.name, one.time)
    return sorted([*ended, *((id, name, begun, None) for id, (name, begun) in open.items())], key=repr)


def changes(chance: random.Random, count: int) -> list[Change]:
    kinds = chance.choices(["change", "delete", "truncate"], [6, 2, 1.5], k=count)
    log = []
    for lsn, kind in enumerate(kinds, 1):
        id = None if kind == "truncate" else chance.randrange(4)
        log.append(Change(lsn, id, chance.choice("abc") if kind == "change" else None))
    return log


def cut(chance: random.Random, sent: Sequence[Sent]) -> Iterator[Sequence[Sent]]:
    ends = sorted({*chance.sample(range(1, len(sent)), 3), len(sent)})
    return (sent[start:end] for start, end in zip([0, *ends], ends, strict=False))


def messages(*changes: Change, start: int = 0) -> list[Sent]:
    return [Sent(change, start + at, start + at) for at, change in enumerate(changes)]


def truncate(lsn: int) -> Change:
    return Change(lsn, None)
