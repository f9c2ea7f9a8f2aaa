"""SQLite as an embedded target, the mirror of landing: executors write segments, the driver streams them into a
temporary table, and one ``BEGIN IMMEDIATE`` transaction commits the change together with its number.

The temporary table is this connection's own, so a killed try leaves nothing behind and the file is locked only for the
final transaction. The first write stores the file's inode in it (``_flowctl_target``) as its id from then on: that is
what was told before, and the file stays the same one when it is copied or moved. SQLite has no id of a table, so one
that was dropped and made again is told from its predecessor by its columns only.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowctl import crashpoints, delays
from flowctl.connectors import sql_commit
from flowctl.connectors.base import Capabilities, OpenContext
from flowctl.connectors.foreign import foreign_target
from flowctl.connectors.landing import Scratch
from flowctl.connectors.source import ReadRequest, Relation
from flowctl.connectors.sql_commit import COMMITS, Staged
from flowctl.connectors.sqlite import catalog, ddl, dropping, place
from flowctl.connectors.sqlite.database import open_database, quoted, translated
from flowctl.connectors.sqlite.duplicates import named_duplicates
from flowctl.connectors.sqlite.types import declared
from flowctl.connectors.target import CommitLookup, Fill, Target, WriteJob
from flowctl.errors import FlowctlError, StoppedByPolicy, TableError
from flowctl.model import types
from flowctl.model.commit import Commit, RowCounts
from flowctl.model.schema_change import SchemaChange
from flowctl.model.step import Mode
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.spec.spec import Layout
from flowctl.sql.dialects import Dialect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILE_ID = "_flowctl_target"
_STAGE = "_flowctl_stage"
_COMMITS = (COMMITS,)


@dataclass(frozen=True)
class SqliteTarget(Target):
    """One file, which the first write makes."""

    path: Path
    context: OpenContext
    capabilities: Capabilities

    def describe(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, TableInfo | None]:
        if not self.path.is_file():
            return dict.fromkeys(objects)
        found = self._source().describe([Relation(object) for object in objects])
        with self._open("ro") as connection:
            file_id = _file_id(connection) or self._inode()
            schema = dropping.schema_of(connection)

            def as_target(object: ObjectName, info: TableInfo) -> TableInfo:
                more = {dropping.SCHEMA: schema, "filled": catalog.filled(connection, object)}
                return replace(info, identity=_target_id(file_id, object), extra={**info.extra, **more})

            return {
                relation.object: as_target(relation.object, info) if info else None
                for relation, info in found.items()
                if relation.object is not None
            }

    def places(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, str]:
        return {object: place({"path": str(self.path)}, object, "") for object in objects}

    def committed(self, lookups: Sequence[CommitLookup]) -> Mapping[str, Commit | None]:
        if not self.path.is_file():
            return {lookup.table: None for lookup in lookups}
        with self._open("ro") as connection:
            if not _has_table(connection, COMMITS):
                return {lookup.table: None for lookup in lookups}
            tx = SqliteTransaction(connection)
            return {
                lookup.table: sql_commit.newest_commit(tx, _COMMITS, lookup.lineage, lookup.table) for lookup in lookups
            }

    def why_unwritable(self, object: ObjectName) -> TableError | None:
        place = self.path if self.path.exists() else self.path.parent
        if os.access(place, os.W_OK):
            return None
        return TableError(f"{self.path} cannot be written", hint=f"Let this user write {place}")

    def create_statements(self, object: ObjectName, columns: Sequence[Column], layout: Layout) -> list[str]:
        return ddl.create_statements(object, columns)

    def alter_statements(self, info: TableInfo, changes: Sequence[SchemaChange]) -> list[SchemaChange]:
        return ddl.alter_statements(info, changes)

    def filled_columns(self, there: TableInfo) -> Mapping[str, Fill]:
        filled: Mapping[str, Fill] = there.extra.get("filled", {})
        return filled

    def refuse_write(self, info: TableInfo, mode: Mode, *, replaces: bool) -> StoppedByPolicy | None:
        if info.extra.get("is_table", True):
            return None
        hint = "Name a table in `to`, one that is there or one to be made"
        return StoppedByPolicy(f"{info.object} is a view: rows written there need not be found there again", hint=hint)

    def most_columns(self, mode: Mode) -> int:
        """SQLite's 2,000 columns of a table, 1,000 levels of an
        expression (a merge compares each column), 2,000 columns of a result (a history has seven more)."""
        return {"append": 2000, "truncate": 2000, "merge": 990, "scd2": 1990}[mode]

    def scan(self, spark: SparkSession, object: ObjectName, columns: Sequence[Column]) -> DataFrame:
        """Landed like any read of SQLite: one read transaction into the buffer, then Spark reads the segments."""
        from flowctl.connectors.arrow import arrow_schema

        relation = Relation(object)
        folder = self._scratch().folder(f"scan-{object}")
        info = TableInfo(object, (), identity="")  # values are held to ``columns``, whatever the file declares
        with (
            self._source().capture(relation, info) as capture,
            folder.sink(arrow_schema(columns)) as sink,
        ):
            capture.read(ReadRequest(tuple(columns)), sink)
        schema = ", ".join(f"`{column.name}` {types.spark_ddl(column.type)}" for column in columns)
        return spark.read.schema(schema).parquet(folder.url)

    def write(self, spark: SparkSession, frame: DataFrame, job: WriteJob) -> Commit:
        from flowctl.connectors.sqlite.storable import storable

        newest = self._newest(job)
        if newest is not None and newest.seq >= job.record.seq:
            return sql_commit.already_committed(newest, job.record)
        columns = sql_commit.staged_columns(frame.columns, job)
        folder = self._scratch().folder(f"mirror-{job.record.table}-{job.record.seq}")
        with sql_commit.named_refusals():
            storable(frame, columns).write.mode("overwrite").parquet(folder.url)
        with self._open("rwc") as connection:
            staged = _load(connection, folder.batches(), columns)
            sql_commit.verify_total(job, staged.rows)
            return self._commit(connection, job, staged)

    def void(self, job: WriteJob) -> Commit:
        with self._open("rwc") as connection:
            return self._commit(connection, replace(job, record=replace(job.record, void=True)), None)

    def quarantine(self, spark: SparkSession, frame: DataFrame, job: WriteJob, since: int) -> None:
        from flowctl.connectors.sqlite.storable import storable

        folder = self._scratch().folder(f"quarantine-{job.record.table}-{job.record.seq}")
        with sql_commit.named_refusals():
            storable(frame, job.columns).write.mode("overwrite").parquet(folder.url)
        with self._open("rwc") as connection:
            staged = _load(connection, folder.batches(), job.columns)
            with _immediate(connection):
                have = _column_names(connection, job.object.parts[-1])
                _run(connection, ddl.sidecar_statements(job.object, have, job.columns))
                sql_commit.replace_quarantined(SqliteTransaction(connection), staged.table, job, since)
                job.before_commit()

    def _commit(self, connection: sqlite3.Connection, job: WriteJob, staged: Staged | None) -> Commit:
        """The final transaction; without ``staged`` it commits the number empty."""
        tx = SqliteTransaction(connection)
        counts = RowCounts()
        with _immediate(connection):
            connection.execute(sql_commit.commits_statement(_COMMITS, "sqlite"))
            record = _identified(connection, job, self._inode())
            standing = sql_commit.claim(tx, _COMMITS, record, job.at, job.base)
            if standing is not None:
                return standing
            if staged is not None:
                if not job.record.target_id and _has_table(connection, job.object.parts[-1]):
                    raise foreign_target(job.record, job.object)
                _run(connection, [*job.statements, *_sidecar(connection, job, staged.columns)])
                with named_duplicates(connection, job):
                    counts = sql_commit.apply_change(tx, job, staged)
            job.before_commit()
            crashpoints.reached("in_commit", job.record.table)
            delays.pause()
        delays.pause()
        return replace(self._read_back(job), counts=counts)

    def _read_back(self, job: WriteJob) -> Commit:
        """A commit counts only once our intent id is read back from the file."""
        newest = self._newest(job)
        if newest is None:
            raise FlowctlError(
                f"{self.path} lost a commit just made",
                hint="Put the file on a local disk, if it is on a network file system",
            )
        return sql_commit.already_committed(newest, job.record)

    def _newest(self, job: WriteJob) -> Commit | None:
        lookup = CommitLookup(job.record.lineage, job.record.table, job.object)
        return self.committed([lookup])[job.record.table]

    def _source(self) -> Any:
        from flowctl.connectors.sqlite.source import SqliteSource

        return SqliteSource(self.path, self.capabilities)

    def _scratch(self) -> Scratch:
        if self.context.scratch is None:
            raise FlowctlError("an SQLite target was opened without a buffer", hint="Use `flowctl apply`")
        return self.context.scratch

    def _inode(self) -> str:
        return f"inode-{self.path.stat().st_ino}"

    @contextmanager
    def _open(self, access: Any) -> Iterator[sqlite3.Connection]:
        with open_database(self.path, access) as connection, translated(self.path):
            yield connection


@dataclass(frozen=True)
class SqliteTransaction:
    """A :class:`flowctl.connectors.sql_commit.Transaction`."""

    connection: sqlite3.Connection
    dialect: Dialect = "sqlite"
    marker: str = "?"

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        return self.connection.execute(statement, parameters).rowcount

    def fetch(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.connection.execute(statement, parameters).fetchall()

    def column_names(self, table: tuple[str, ...]) -> list[str]:
        return _column_names(self.connection, table[-1])


@contextmanager
def _immediate(connection: sqlite3.Connection) -> Iterator[None]:
    """Takes the write lock at once: a transaction that reads first and then writes can fail half-way as busy."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _run(connection: sqlite3.Connection, statements: Sequence[str]) -> None:
    for statement in statements:
        connection.execute(statement)


def _sidecar(connection: sqlite3.Connection, job: WriteJob, present: Sequence[str]) -> list[str]:
    """What makes the sidecar of a history have the columns that a batch with the columns ``present`` needs."""
    if job.mode != "scd2":
        return []
    observed, columns = sql_commit.observed_name(job.object), sql_commit.observed_columns(job, present)
    if job.replace:  # of another key, or of what was no history
        connection.execute(f"DROP TABLE IF EXISTS {quoted(observed.parts[-1])}")
    return ddl.sidecar_statements(observed, _column_names(connection, observed.parts[-1]), columns)


def _column_names(connection: sqlite3.Connection, table: str) -> list[str]:
    """None when there is no such table."""
    return [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", [table])]


def _load(connection: sqlite3.Connection, batches: Iterator[Any], columns: Sequence[Column]) -> Staged:
    """Streams segments into a temporary table of the target's types; memory of one batch."""
    listed = ", ".join(f"{quoted(column.name)} {declared(column.type)}" for column in columns)
    connection.execute(f"CREATE TEMPORARY TABLE {_STAGE} ({listed})")
    insert = f"INSERT INTO temp.{_STAGE} VALUES ({', '.join('?' * len(columns))})"
    rows = 0
    connection.execute("BEGIN")
    for batch in batches:
        connection.executemany(insert, zip(*(values.to_pylist() for values in batch.columns), strict=True))
        rows += batch.num_rows
    connection.execute("COMMIT")
    return Staged(("temp", _STAGE), tuple(column.name for column in columns), rows)


def _identified(connection: sqlite3.Connection, job: WriteJob, inode: str) -> Commit:
    """The record with the target's id in it; the file gets its own on the first write."""
    file_id = _file_id(connection)
    if file_id is None:
        file_id = inode
        connection.execute(f"CREATE TABLE IF NOT EXISTS {_FILE_ID} (id TEXT NOT NULL)")
        connection.execute(f"INSERT INTO {_FILE_ID} VALUES (?)", [file_id])
    return sql_commit.identified(job.record, _target_id(file_id, job.object))


def _file_id(connection: sqlite3.Connection) -> str | None:
    if not _has_table(connection, _FILE_ID):
        return None
    row = connection.execute(f"SELECT id FROM {_FILE_ID}").fetchone()
    return str(row[0]) if row else None


def _target_id(file_id: str, object: ObjectName) -> str:
    return f"{file_id}/{object.parts[-1]}"


def _has_table(connection: sqlite3.Connection, name: str) -> bool:
    return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", [name]).fetchone())
