"""An embedded SQL database, which is one file, as a target: the engine writes segments to the buffer, and this process
reads them.

The first write stores the file's inode in it (:data:`FILE_ID`) as its permanent id, so a copied or moved file keeps its
identity. There are no table ids: a table that flowctl has made is known by the intent that did
(:mod:`flowctl.connectors.sql.creator`); one that was there before, by its columns only.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from flowctl.connectors.base import Capabilities, OpenContext
from flowctl.connectors.buffered import read_folder
from flowctl.connectors.preconditions import identified
from flowctl.connectors.source import LandedSource, ReadRequest, Relation
from flowctl.connectors.sql import commits
from flowctl.connectors.sql.change import StagedRows
from flowctl.connectors.sql.commits import COMMITS
from flowctl.connectors.sql.session import Session
from flowctl.connectors.sql.target import SqlTarget
from flowctl.connectors.target import CommitLookup, WriteJob
from flowctl.engine.batch import Batch
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model.commit import Commit
from flowctl.model.mode import Mode
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.sql.dialects import schema_ddl
from flowctl.storage.buffer import Buffer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE_ID = "_flowctl_target"
#: How a file is opened. ``rwc`` creates a missing file, ``none`` replaces it by an empty database in memory.
Access = Literal["ro", "rwc", "none"]


class EmbeddedSession(Session):
    """``inode`` is the id that the first write stores in the file; empty for a file that does not exist."""

    inode: str

    @abstractmethod
    def has_table(self, name: str) -> bool:
        """Whether the database has this table, one of flowctl's own."""

    def local_name(self, object: ObjectName) -> str:
        """The table's name inside the file, as its id has it."""
        return object.parts[-1]

    def target_id(self, object: ObjectName) -> str:
        """The file's id and the table's name."""
        known = self.fetch(f"SELECT id FROM {FILE_ID}") if self.has_table(FILE_ID) else []
        return f"{known[0][0] if known else self.inode}/{self.local_name(object)}"

    def ensure_file_id(self) -> None:
        self.execute(f"CREATE TABLE IF NOT EXISTS {FILE_ID} (id TEXT NOT NULL)")
        marker = self.dialect.marker
        self.execute(f"INSERT INTO {FILE_ID} SELECT {marker} WHERE NOT EXISTS (SELECT 1 FROM {FILE_ID})", [self.inode])


E = TypeVar("E", bound=EmbeddedSession)


def scan_landed(
    source: LandedSource, buffer: Buffer, spark: SparkSession, object: ObjectName, columns: Sequence[Column]
) -> DataFrame:
    """A target's table, landed like any read: one read transaction into the buffer, then the engine reads the
    segments."""
    from flowctl.connectors.arrow import arrow_schema

    folder = buffer.folder(f"scan-{object}")
    info = TableInfo(object, (), identity="")  # values must fit ``columns``, whatever the database declares
    with source.capture(Relation(object), info) as capture, folder.sink(arrow_schema(columns)) as sink:
        capture.read(ReadRequest(tuple(columns)), sink)
    return read_folder(spark, schema_ddl(columns), folder)


@dataclass(frozen=True)
class HandedRows:
    """The rows of ``job``, in memory or in the buffer; ``columns`` are those to stage, with the target's types."""

    rows: Batch
    columns: tuple[Column, ...]
    job: WriteJob


@dataclass(frozen=True)
class EmbeddedTarget(SqlTarget[E]):
    """One file, which the first write creates."""

    path: Path
    context: OpenContext
    capabilities: Capabilities

    @abstractmethod
    def open_session(self, access: Access) -> AbstractContextManager[E]: ...

    @abstractmethod
    def source(self) -> LandedSource:
        """The same file as a source, for :meth:`scan`."""

    @abstractmethod
    def place(self, object: ObjectName) -> str:
        """See :meth:`flowctl.connectors.target.Target.places`."""

    @property
    def inode(self) -> str:
        return f"inode-{self.path.stat().st_ino}"

    def session(self) -> AbstractContextManager[E]:
        return self.open_session("ro" if self.path.is_file() else "none")

    def writing_session(self) -> AbstractContextManager[E]:
        return self.open_session("rwc")

    def places(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, str]:
        return {object: self.place(object) for object in objects}

    def newest(self, session: E, lookups: Sequence[CommitLookup]) -> dict[str, Commit | None]:
        if not session.has_table(COMMITS):
            return {lookup.table: None for lookup in lookups}
        return {one.table: commits.newest_commit(session, (COMMITS,), one.lineage, one.table) for one in lookups}

    def why_unwritable(self, object: ObjectName, mode: Mode) -> TableError | None:
        """A commit also needs files next to the database, so the folder must be writable too."""
        for place in (self.path, self.path.parent):
            if (place is not self.path or place.exists()) and not os.access(place, os.W_OK):
                return TableError(f"{self.path} cannot be written", hint=f"Let this user write {place}")
        return None

    def refuse_write(self, info: TableInfo, mode: Mode, *, replaces: bool) -> StoppedByPolicy | None:
        if info.extra.get("is_table", True):
            return None
        hint = "Name a table in `to`, an existing one or a new one"
        return StoppedByPolicy(f"{info.object} is a view: rows written to it may not be found in it", hint=hint)

    def scan(self, spark: SparkSession, object: ObjectName, columns: Sequence[Column]) -> DataFrame:
        return scan_landed(self.source(), self.buffer, spark, object, columns)

    def accept(self, session: E, rows: StagedRows) -> StagedRows:
        return rows

    def commits_table(self, session: E, object: ObjectName) -> tuple[str, ...]:
        return (COMMITS,)

    def ensure_commits(self, session: E, object: ObjectName) -> None:
        with session.transaction():
            session.ensure_file_id()
            super().ensure_commits(session, object)

    def require_own(self, session: E, job: WriteJob, there: TableInfo | None) -> None:
        """Checks the file's id where the table is missing: another file in its place may have none."""
        name = session.target_id(job.object)
        if there is None and not f"{job.record.target_id}/".startswith(f"{name}/"):
            identified(job.record, name)
        super().require_own(session, job, there)
