"""SQLite as an embedded target, the reverse of landing: executors write segments, the driver streams them into a
temporary table, and one ``BEGIN IMMEDIATE`` transaction commits the change together with its sequence number.

The temporary table belongs to this connection, so a killed attempt leaves nothing behind, and the file is locked only
for the final transaction.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from flowctl.connectors import refusal
from flowctl.connectors.buffered import computed, frame_of, record_batches
from flowctl.connectors.preconditions import verify_total
from flowctl.connectors.sql.change import StagedRows
from flowctl.connectors.sql.embedded import Access, EmbeddedTarget, HandedRows
from flowctl.connectors.sql.hindrances import Constraint
from flowctl.connectors.sql.storable import Form, require_storable, storable
from flowctl.connectors.sqlite import limits, place, refusals
from flowctl.connectors.sqlite.database import open_database, readers_of, translated
from flowctl.connectors.sqlite.location import Location
from flowctl.connectors.sqlite.session import SQLITE, SqliteSession
from flowctl.connectors.sqlite.source import SqliteSource
from flowctl.connectors.target import WriteJob, WriteShape
from flowctl.engine.batch import Batch
from flowctl.errors import TableError
from flowctl.model.mode import Mode
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.spec.spec import Layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_FORM = Form("SQLite", nan="SQLite stores NaN as null")


@dataclass(frozen=True)
class SqliteTarget(EmbeddedTarget[SqliteSession]):
    location: Location
    dialect = SQLITE

    @contextmanager
    def open_session(self, access: Access) -> Iterator[SqliteSession]:
        if access == "rwc" and (refused := self._refused()):
            raise refused
        chosen = self.location.mode if access == "rwc" else access
        opened = open_database(self.path, chosen, is_immutable=self.location.is_immutable and access != "none")
        with opened as connection, translated(self.path):
            yield SqliteSession(connection, self.inode if access != "none" else "", readers_of(self.path))

    def why_unwritable(self, object: ObjectName, mode: Mode) -> TableError | None:
        return self._refused() or super().why_unwritable(object, mode)

    def _refused(self) -> TableError | None:
        if why := self.location.why_read_only:
            return TableError(f"{self.path} is opened with {why}", hint=f"Remove {why} from `path` of the connection")
        return None

    def source(self) -> SqliteSource:
        return SqliteSource(self.path, self.capabilities, is_immutable=self.location.is_immutable)

    def place(self, object: ObjectName) -> str:
        return place({"path": str(self.path)}, object, "")

    def refuse_change(self, info: TableInfo, change: SchemaChange) -> SchemaChange | None:
        return refusals.refuse_change(info, change)

    def refuse_key(self, there: TableInfo, key: Sequence[str], layout: Layout) -> tuple[str, str] | None:
        return refusals.refuse_key(there, key)

    def limited_columns(self, there: TableInfo, written: Collection[str]) -> list[Column]:
        return limits.limited(there, written)

    def confirm_write(self, object: ObjectName, write: WriteShape, written: Sequence[str]) -> str:
        require_storable([column for column in write.columns if column.name in written], _FORM)
        return ""

    def most_columns(self, mode: Mode) -> int:
        """SQLite's limits: 2,000 columns of a table, 1,000 levels of an expression (a merge compares each column),
        2,000 columns of a result (a history has seven more)."""
        return {"append": 2000, "truncate": 2000, "merge": 990, "scd2": 1990}[mode]

    @contextmanager
    def hand_over(
        self, spark: SparkSession, batch: Batch, columns: Sequence[Column], job: WriteJob
    ) -> Iterator[HandedRows]:
        """In the order of ``columns``, as SQLite stores them."""
        frame = frame_of(batch, spark, lambda: self.buffer.folder(f"rows-{job.object}"))
        with refusal.named():
            folder = partial(self.buffer.folder, f"storable-{job.object}-{job.record.seq}")
            rows = computed(storable(frame, columns, _FORM), batch, folder)
        yield HandedRows(rows, tuple(columns), job)

    def load(self, session: SqliteSession, rows: HandedRows) -> StagedRows:
        """Streams the rows into a temporary table of the target's types, which a killed attempt does not leave behind.
        Memory is bounded by one batch."""
        name, total = f"_flowctl_stage_{secrets.token_hex(4)}", 0
        session.execute(f"CREATE TEMPORARY TABLE {name} ({self.dialect.listed(rows.columns)})")
        insert = f"INSERT INTO {name} VALUES ({', '.join([self.dialect.marker] * len(rows.columns))})"
        session.execute("BEGIN")
        for batch in record_batches(rows.rows):
            session.execute_many(insert, zip(*(values.to_pylist() for values in batch.columns), strict=True))
            total += batch.num_rows
        session.execute("COMMIT")
        verify_total(rows.job, total)
        staged = StagedRows((name,), tuple(column.name for column in rows.columns), total)
        limits.require_kept(session, rows.job, staged)
        return staged

    def violated_constraint(self, session: SqliteSession, job: WriteJob, error: Exception) -> Constraint | None:
        return refusals.violated_constraint(session.connection, job.object.parts[-1], error)
