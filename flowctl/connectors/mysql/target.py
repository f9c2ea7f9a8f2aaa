"""MySQL and MariaDB as a target: this process loads a staging table, one transaction commits the change and its
sequence number.

DDL ends a transaction there, so it comes before (see :mod:`flowctl.connectors.sql.target`): a table that flowctl has
created names the intent in its comment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from flowctl.connectors import refusal
from flowctl.connectors.base import Capabilities, OpenContext
from flowctl.connectors.buffered import computed, frame_of
from flowctl.connectors.mysql import catalog, limits, refusals
from flowctl.connectors.mysql.client import Client
from flowctl.connectors.mysql.loading import load, staging_table
from flowctl.connectors.mysql.session import MYSQL, MysqlSession, dialect_of
from flowctl.connectors.mysql.source import MysqlSource
from flowctl.connectors.mysql.types import split_comment
from flowctl.connectors.preconditions import verify_total
from flowctl.connectors.sql import commits, timeouts
from flowctl.connectors.sql.change import StagedRows
from flowctl.connectors.sql.commits import COMMITS
from flowctl.connectors.sql.embedded import scan_landed
from flowctl.connectors.sql.hindrances import Constraint
from flowctl.connectors.sql.session import SqlDialect
from flowctl.connectors.sql.storable import Form, require_storable, storable
from flowctl.connectors.sql.target import SqlTarget
from flowctl.connectors.target import CommitLookup, WriteJob, WriteShape
from flowctl.engine.batch import Batch
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model.commit import Commit, RowCounts
from flowctl.model.mode import Mode
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.sql import dialects

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FORM = Form("MySQL", nan="MySQL has no NaN", zone="", has_infinity=False)


@dataclass(frozen=True)
class MysqlTarget(SqlTarget[MysqlSession]):
    """One database."""

    client: Client
    context: OpenContext
    capabilities: Capabilities

    @property
    def dialect(self) -> SqlDialect:  # type: ignore[override]
        """That of the server, once it was asked."""
        return dialect_of(self.client.facts.collation) if self.client.facts else MYSQL

    @contextmanager
    def session(self) -> Iterator[MysqlSession]:
        with self.client.connect() as connection:
            yield MysqlSession(connection)

    @contextmanager
    def writing_session(self) -> Iterator[MysqlSession]:
        """The server ends it once this process has been suspended for as long as a lease lives: neither the DDL before
        a commit nor the commit itself comes after another run has begun."""
        with self.session() as session:
            session.execute(f"SET wait_timeout = {max(1, round(timeouts.idle_in_commit()))}")
            yield session

    def places(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, str]:
        """By the server's own identity, independent of host and name."""
        with self.client.connect() as connection:
            fold = connection.facts.fold
            found = {object: catalog.parts_of(connection, object) for object in objects}
            return {
                object: f"{catalog.system_of(connection, fold(schema))}/{fold(name)}"
                for object, (schema, name) in found.items()
            }

    def newest(self, session: MysqlSession, lookups: Sequence[CommitLookup]) -> dict[str, Commit | None]:
        tables = {one.table: self.commits_table(session, one.object) for one in lookups}
        there = {table for table in set(tables.values()) if self._exists(session, table)}
        return {
            one.table: commits.newest_commit(session, tables[one.table], one.lineage, one.table)
            if tables[one.table] in there
            else None
            for one in lookups
        }

    def why_unwritable(self, object: ObjectName, mode: Mode) -> TableError | None:
        with self.client.connect() as connection:
            named = "'read_only', 'log_bin', 'binlog_format'"
            set_to = dict(connection.fetch(f"SHOW VARIABLES WHERE Variable_name IN ({named})"))
            facts, (schema, _) = connection.facts, catalog.parts_of(connection, object)
            known = connection.fetch("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
        if set_to.get("read_only", "OFF") not in ("OFF", "0"):
            return TableError(f"{object} cannot be written: the server is read-only", hint="Name the primary server")
        if set_to.get("log_bin") == "ON" and set_to.get("binlog_format") == "STATEMENT":
            what = "the server's binary log has the format STATEMENT, which no READ COMMITTED transaction can write"
            return TableError(f"{object} cannot be written: {what}", hint="Set binlog_format to MIXED or ROW there")
        if schema not in {name for (name,) in known}:
            hint = f"Create it, or let {facts.user} see it"
            return TableError(f"{object} cannot be written: there is no database {schema}", hint=hint)
        return None

    def alter_statements(self, info: TableInfo, changes: Sequence[SchemaChange]) -> list[SchemaChange]:
        """A column is changed by declaring it again."""
        return [self._declared(info, change) for change in super().alter_statements(info, changes)]

    def refuse_change(self, info: TableInfo, change: SchemaChange) -> SchemaChange | None:
        return refusals.refuse_change(info, change)

    def refuse_write(self, info: TableInfo, mode: Mode, *, replaces: bool) -> StoppedByPolicy | None:
        return refusals.refuse_write(info, mode, replaces=replaces)

    def limited_columns(self, there: TableInfo, written: Collection[str]) -> list[Column]:
        return [one for one in there.columns if one.name in written and limits.is_limited(one)]

    def most_columns(self, mode: Mode) -> int:
        """InnoDB's limit of 1,017 columns, less one for the change in merge and scd2."""
        return 1017 if mode in ("append", "truncate") else 1016

    def explain_write(
        self,
        object: ObjectName,
        there: TableInfo | None,
        write: WriteShape,
        engine: str,
        conf: Mapping[str, str],
    ) -> str:
        facts = self.client.facts
        return (
            "loaded by multi-row INSERT, as the server's local_infile is off" if facts and not facts.takes_files else ""
        )

    def confirm_write(self, object: ObjectName, write: WriteShape, written: Sequence[str]) -> str:
        require_storable([column for column in write.columns if column.name in written], _FORM)
        return ""

    def scan(self, spark: SparkSession, object: ObjectName, columns: Sequence[Column]) -> DataFrame:
        source = MysqlSource(self.client, self.capabilities)
        return scan_landed(source, self.buffer, spark, object, columns)

    @contextmanager
    def hand_over(
        self, spark: SparkSession, batch: Batch, columns: Sequence[Column], job: WriteJob
    ) -> Iterator[StagedRows]:
        """Loads the rows into a staging table."""
        frame = frame_of(batch, spark, lambda: self.buffer.folder(f"rows-{job.object}"))
        with staging_table(self.client, job, columns) as stage:
            with refusal.named():
                folder = partial(self.buffer.folder, f"storable-{job.object}-{job.record.seq}")
                rows = computed(storable(frame, columns, _FORM), batch, folder)
            total = load(self.client, rows, columns, stage)
            verify_total(job, total)
            yield StagedRows(stage, tuple(column.name for column in columns), total)

    def accept(self, session: MysqlSession, rows: StagedRows) -> StagedRows:
        ((count,),) = session.fetch(f"SELECT count(*) FROM {self.dialect.table(rows.table)}")
        return replace(rows, rows=count)

    def write_batch(self, session: MysqlSession, job: WriteJob, loaded: Any) -> RowCounts:
        """Refuses values that the table's own types would change, before anything is written."""
        if loaded is not None:
            limits.require_kept(session, job, loaded)
        return super().write_batch(session, job, loaded)

    def violated_constraint(self, session: MysqlSession, job: WriteJob, error: Exception) -> Constraint | None:
        return refusals.violated_constraint(session.connection, job.object, error)

    def commits_table(self, session: MysqlSession, object: ObjectName) -> tuple[str, ...]:
        return (catalog.parts_of(session.connection, object)[0], COMMITS)

    def ensure_commits(self, session: MysqlSession, object: ObjectName) -> None:
        if not self._exists(session, self.commits_table(session, object)):
            super().ensure_commits(session, object)

    def _exists(self, session: MysqlSession, table: tuple[str, ...]) -> bool:
        return ObjectName(table) in catalog.find(session.connection, [ObjectName(table)])

    def _declared(self, info: TableInfo, change: SchemaChange) -> SchemaChange:
        column = info.column(change.column)
        if column is None or change.action not in ("relax", "widen") or (change.action == "widen" and column.nullable):
            return change
        if change.action == "widen":
            return replace(change, statement=f"{change.statement} NOT NULL")
        declared, comment = split_comment(column.native)
        texts = info.extra.get("altered", {}).get(change.column, "")
        ending = f" COMMENT {dialects.text(comment, 'mysql')}" if comment else ""
        table, name = self.dialect.table(info.object.parts), self.dialect.quoted(change.column)
        return replace(change, statement=f"ALTER TABLE {table} MODIFY COLUMN {name} {declared}{texts} NULL{ending}")
