"""Commits of flowctl's own: new rows as files, rows that go out of theirs, one entry in the table's log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

from flowctl.connectors.buffered import frame_of
from flowctl.connectors.delta import commit, memory_file, sail_files, spark_files
from flowctl.connectors.delta.changes import Change, ChangeBuilder
from flowctl.connectors.delta.conditions import Condition
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.log import LoggedCommit
from flowctl.connectors.delta.replay import Action, LogSnapshot
from flowctl.connectors.delta.schemas import refuse_nulls, without_nulls
from flowctl.connectors.delta.table import OpenTable
from flowctl.connectors.delta.writer import Numbered
from flowctl.connectors.target import WriteJob
from flowctl.engine.batch import Batch, InMemory, OnEngine
from flowctl.engine.session import has_jvm, reachable
from flowctl.errors import TableError
from flowctl.storage.scratch import Scratch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class FileWriter:
    """As :class:`flowctl.connectors.delta.writer.Writer`, on any engine that can write files."""

    spark: SparkSession
    scratch: Scratch

    def prepare(self, location: TableLocation, table: OpenTable | None, job: WriteJob) -> OpenTable:
        if not has_jvm(self.spark) and not reachable(location.url):
            what = f"Sail cannot reach {location.url}: it encodes some of its characters"
            raise TableError(what, hint=commit.HINT)
        table = commit.prepare(location, table, job)
        table.check_intent(job.record)
        return table

    def prepare_sidecar(self, location: TableLocation, table: OpenTable | None, side: WriteJob) -> OpenTable:
        return commit.prepare(location, table, side)  # its columns come with the commit

    def put(self, table: OpenTable, number: Numbered, rows: Batch, job: WriteJob) -> LoggedCommit:
        def build(changes: ChangeBuilder) -> Change:
            if job.replaces_content:
                return changes.overwrite(rows)
            return changes.append(rows) if job.mode == "append" else changes.merge(rows)

        return self._commit(table, number, job, build)

    def rows_with_keys(self, table: OpenTable, job: WriteJob, rows: Batch) -> Batch:
        return self._changes(table, job, table.snapshot).rows_with_keys(rows)

    def apply_versions(self, table: OpenTable, number: Numbered, versions: Batch, job: WriteJob) -> LoggedCommit:
        return self._commit(table, number, job, lambda changes: changes.apply_versions(versions))

    def replace_where(
        self, table: OpenTable, number: Numbered, going: Condition, coming: Condition, rows: Batch, side: WriteJob
    ) -> LoggedCommit:
        return self._commit(table, number, side, lambda changes: changes.replace_where(going, rows))

    def _commit(
        self, table: OpenTable, number: Numbered, job: WriteJob, build: Callable[[ChangeBuilder], Change]
    ) -> LoggedCommit:
        return commit.commit(
            table,
            number.app,
            job,
            number.record,
            lambda snapshot: build(self._changes(table, job, snapshot)),
            self._write_rows,
        )

    def _write_rows(self, location: TableLocation, metadata: Mapping[str, Any], rows: Batch) -> list[Action]:
        match rows:
            case InMemory(held) if memory_file.can_write(metadata):
                refuse_nulls(held, metadata)
                add = memory_file.write_groups(location, metadata, held.schema, [held])
                return [add] if add is not None else []
            case InMemory() | OnEngine():
                frame = without_nulls(frame_of(rows, self.spark, lambda: self.scratch.folder("new-rows")), metadata)
                write_files = spark_files.write_files if has_jvm(self.spark) else sail_files.write_files
                return write_files(location, metadata, frame)
            case _:
                assert_never(rows)

    def _changes(self, table: OpenTable, job: WriteJob, snapshot: LogSnapshot) -> ChangeBuilder:
        return ChangeBuilder(self.spark, self.scratch, table.location, job, snapshot)
