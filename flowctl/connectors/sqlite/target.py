"""SQLite as an embedded target, the reverse of landing: executors write segments, the driver streams them into a
temporary table, and one ``BEGIN IMMEDIATE`` transaction commits the change together with its sequence number.

The temporary table belongs to this connection, so a killed attempt leaves nothing behind, and the file is locked only
for the final transaction. The first write stores the file's inode in it (``_flowctl_target``) as its permanent id, so a
copied or moved file keeps its identity. SQLite has no table ids: a recreated table differs from its predecessor by its
columns only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from flowctl.connectors.base import Capabilities, OpenContext
from flowctl.connectors.preconditions import identified
from flowctl.connectors.source import ReadRequest, Relation
from flowctl.connectors.sql import commits
from flowctl.connectors.sql.commits import COMMITS
from flowctl.connectors.sql.embedded import EmbeddedTarget
from flowctl.connectors.sql.hindrances import Constraint
from flowctl.connectors.sqlite import place, refusals
from flowctl.connectors.sqlite.database import open_database, readers_of, translated
from flowctl.connectors.sqlite.session import SQLITE, SqliteSession
from flowctl.connectors.target import CommitLookup, WriteJob
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model.commit import Commit
from flowctl.model.mode import Mode
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.sql.dialects import schema_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class SqliteTarget(EmbeddedTarget[SqliteSession]):
    """One file, which the first write creates."""

    path: Path
    context: OpenContext
    capabilities: Capabilities
    dialect = SQLITE

    def session(self) -> AbstractContextManager[SqliteSession]:
        return self._open("ro" if self.path.is_file() else "none")

    def writing_session(self) -> AbstractContextManager[SqliteSession]:
        return self._open("rwc")

    @contextmanager
    def _open(self, access: Literal["ro", "rwc", "none"]) -> Iterator[SqliteSession]:
        with open_database(self.path, access) as connection, translated(self.path):
            inode = f"inode-{self.path.stat().st_ino}" if access != "none" else ""
            yield SqliteSession(connection, inode, readers_of(self.path))

    def places(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, str]:
        return {object: place({"path": str(self.path)}, object, "") for object in objects}

    def newest(self, session: SqliteSession, lookups: Sequence[CommitLookup]) -> dict[str, Commit | None]:
        if not session.has_table(COMMITS):
            return {lookup.table: None for lookup in lookups}
        return {one.table: commits.newest_commit(session, (COMMITS,), one.lineage, one.table) for one in lookups}

    def why_unwritable(self, object: ObjectName) -> TableError | None:
        place = self.path if self.path.exists() else self.path.parent
        if os.access(place, os.W_OK):
            return None
        return TableError(f"{self.path} cannot be written", hint=f"Let this user write {place}")

    def refuse_change(self, info: TableInfo, change: SchemaChange) -> SchemaChange | None:
        return refusals.refuse_change(info, change)

    def refuse_write(self, info: TableInfo, mode: Mode, *, replaces: bool) -> StoppedByPolicy | None:
        if info.extra.get("is_table", True):
            return None
        hint = "Name a table in `to`, an existing one or a new one"
        return StoppedByPolicy(f"{info.object} is a view: rows written to it may not be found in it", hint=hint)

    def most_columns(self, mode: Mode) -> int:
        """SQLite's limits: 2,000 columns of a table, 1,000 levels of an expression (a merge compares each column),
        2,000 columns of a result (a history has seven more)."""
        return {"append": 2000, "truncate": 2000, "merge": 990, "scd2": 1990}[mode]

    def scan(self, spark: SparkSession, object: ObjectName, columns: Sequence[Column]) -> DataFrame:
        """Landed like any read of SQLite: one read transaction into the buffer, then Spark reads the segments."""
        from flowctl.connectors.arrow import arrow_schema
        from flowctl.connectors.sqlite.source import SqliteSource

        folder = self.buffer.folder(f"scan-{object}")
        info = TableInfo(object, (), identity="")  # values must fit ``columns``, whatever the file declares
        source = SqliteSource(self.path, self.capabilities)
        with source.capture(Relation(object), info) as capture, folder.sink(arrow_schema(columns)) as sink:
            capture.read(ReadRequest(tuple(columns)), sink)
        return spark.read.schema(schema_ddl(columns)).parquet(folder.url)

    def storable(self, frame: DataFrame, columns: Sequence[Column]) -> DataFrame:
        from flowctl.connectors.sqlite.storable import storable

        return storable(frame, columns)

    def violated_constraint(self, session: SqliteSession, job: WriteJob, error: Exception) -> Constraint | None:
        return refusals.violated_constraint(session.connection, job.object.parts[-1], error)

    def commits_table(self, session: SqliteSession, object: ObjectName) -> tuple[str, ...]:
        return (COMMITS,)

    def ensure_commits(self, session: SqliteSession, object: ObjectName) -> None:
        with session.transaction():
            session.ensure_file_id()
            super().ensure_commits(session, object)

    def require_own(self, session: SqliteSession, job: WriteJob, there: TableInfo | None) -> None:
        """Checks the file's id too: another file in its place has other tables, or none."""
        identified(job.record, session.target_id(job.object))
        super().require_own(session, job, there)
