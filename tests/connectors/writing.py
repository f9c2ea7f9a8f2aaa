"""Writes numbered batches into a place, as the runner would."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowctl.connectors.target import DETECTED_COLUMN, OP_COLUMN, CommitLookup, WriteJob
from flowctl.engine.batch import Batch, InMemory, OnEngine
from flowctl.model import types
from flowctl.model.commit import Commit
from flowctl.model.mode import Mode
from flowctl.model.position import VersionPosition
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column, TableInfo
from flowctl.spec.spec import Layout
from tests.connectors.reading import describe
from tests.connectors.target_matrix import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINEAGE = "lineage-1"
TABLE = "orders"
AT = "2026-02-03T04:05:06.000000Z"
COLUMNS = (Column("id", types.INT64), Column("name", types.STRING), Column("amount", types.Decimal(12, 2)))
SOFT = Column("_deleted_at", types.TIMESTAMP)
HISTORY = (
    *COLUMNS[:2],
    Column("valid_from", types.TIMESTAMP),
    Column("valid_to", types.TIMESTAMP),
    Column("is_current", types.BOOL),
    Column("row_hash", types.STRING),
)
OWN = (Column(OP_COLUMN, types.STRING), Column(DETECTED_COLUMN, types.BOOL))

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Writer:
    """``in_memory``: batches are held by this process."""

    spark: SparkSession
    place: Place
    in_memory: bool = False

    def write(
        self, rows: Sequence[Row], seq: int, mode: Mode = "append", /, *, in_memory: bool | None = None, **job: Any
    ) -> Commit:
        """Commits ``rows`` as number ``seq``; a first number creates the table. ``job`` are fields of the WriteJob."""
        made = self.job(seq, mode, **job)
        batch = self.batch(rows, made.columns, in_memory=self.in_memory if in_memory is None else in_memory)
        return self.place.target.write(self.spark, batch, made)

    def batch(self, rows: Sequence[Row], columns: Sequence[Column], *, in_memory: bool | None = None) -> Batch:
        frame = self.frame(rows, columns)
        is_here = self.in_memory if in_memory is None else in_memory
        return InMemory(frame.toArrow()) if is_here else OnEngine(frame)

    def void(self, seq: int, mode: Mode = "append", /, **job: Any) -> Commit:
        done = self.place.target.void(self.job(seq, mode, **job))
        assert done is not None
        return done

    def committed(self) -> Commit | None:
        lookup = CommitLookup(LINEAGE, TABLE, self.place.object)
        return self.place.target.committed([lookup])[TABLE]

    def info(self) -> TableInfo:
        return describe(self.place.target, self.place.object)

    def frame(self, rows: Sequence[Row], columns: Sequence[Column]) -> DataFrame:
        """Two partitions with the columns that the first row has (all, when there is none)."""
        named = [
            column for column in (*columns, *OWN) if column.name in (rows[0] if rows else {c.name for c in columns})
        ]
        ddl = ", ".join(f"`{column.name}` {types.spark_ddl(column.type)}" for column in named)
        values = [tuple(row[column.name] for column in named) for row in rows]
        return self.spark.createDataFrame(values, ddl).repartition(2)

    def job(
        self,
        seq: int,
        mode: Mode,
        *,
        columns: Sequence[Column] = COLUMNS,
        intent: str = "",
        create: Sequence[str] | None = None,
        alter: Sequence[SchemaChange] = (),
        before_commit: Callable[[], None] = lambda: None,
        **fields: Any,
    ) -> WriteJob:
        info = self.place.target.describe([self.place.object])[self.place.object]
        if create is None:
            create = () if info else self.place.target.create_statements(self.place.object, list(columns), Layout())
        record = Commit(
            LINEAGE, TABLE, seq, intent or f"intent-{seq}", info.identity if info else "", VersionPosition(seq)
        )
        keyed = {"key": ("id",), "compared": tuple(c.name for c in columns if c.name not in ("id", SOFT.name))}
        return WriteJob(
            record=record,
            object=self.place.object,
            mode=mode,
            columns=tuple(columns),
            create=tuple(create),
            alter=tuple(alter),
            before_commit=before_commit,
            **{"at": AT, "fence": seq, "run_id": "run-1", **(keyed if mode in ("merge", "scd2") else {}), **fields},
        )


def row(id: int, name: str | None = "a") -> Row:
    return {"id": id, "name": name, "amount": None}


def upserts(*rows: Row) -> list[Row]:
    return [{**row, OP_COLUMN: "U"} for row in rows]


def gone(key: int, columns: Sequence[Column] = COLUMNS) -> Row:
    return {**dict.fromkeys(column.name for column in columns), "id": key, OP_COLUMN: "D"}
