"""Commits of flowctl's own: added rows as new files, removed rows taken out of theirs, one entry in the table's log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, assert_never

from flowctl import crashpoints
from flowctl.connectors.buffered import frame_of
from flowctl.connectors.delta import actions, commit, data_files, features, partitions
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.table import OpenTable
from flowctl.connectors.delta.types import Action, columns_of
from flowctl.connectors.lake import rows
from flowctl.connectors.lake.changes import Change, ChangeBuilder
from flowctl.connectors.lake.conditions import Condition
from flowctl.connectors.lake.record import Record
from flowctl.connectors.lake.table import Removal
from flowctl.connectors.target import WriteJob
from flowctl.engine.batch import Batch, InMemory, OnEngine
from flowctl.engine.session import has_jvm, reachable
from flowctl.errors import TableError
from flowctl.storage.buffer import Buffer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class FileWriter:
    """Implements :class:`flowctl.connectors.delta.writer.Writer` on any engine that can write files."""

    spark: SparkSession
    buffer: Buffer

    def prepare(self, location: TableLocation, table: OpenTable | None, job: WriteJob) -> OpenTable:
        if not has_jvm(self.spark) and not reachable(location.url):
            what = f"Sail cannot reach {location.url}: it encodes some of its characters"
            raise TableError(what, hint=commit.HINT)
        table = commit.prepare(location, table, job)
        table.check_intent(job.record)
        return table

    def prepare_sidecar(self, location: TableLocation, table: OpenTable | None, side: WriteJob) -> OpenTable:
        return commit.prepare(location, table, side)  # the commit adds its columns

    def put(self, table: OpenTable, record: Record, batch: Batch, job: WriteJob) -> Record:
        def build(changes: ChangeBuilder) -> Change:
            if job.replaces_content:
                return changes.overwrite(batch)
            return changes.append(batch) if job.mode == "append" else changes.merge(batch)

        return self._commit(table, record, job, build)

    def rows_with_keys(self, table: OpenTable, job: WriteJob, batch: Batch, frame: DataFrame) -> Batch:
        return ChangeBuilder(self.spark, self.buffer, table, table.columns, job).candidates(batch).rows

    def apply_versions(self, table: OpenTable, record: Record, versions: Batch, job: WriteJob) -> Record:
        return self._commit(table, record, job, lambda changes: changes.apply_versions(versions))

    def replace_where(
        self, table: OpenTable, record: Record, going: Condition, coming: Condition, batch: Batch, side: WriteJob
    ) -> Record:
        return self._commit(table, record, side, lambda changes: changes.replace_where(going, batch))

    def _commit(
        self, table: OpenTable, record: Record, job: WriteJob, build: Callable[[ChangeBuilder], Change]
    ) -> Record:
        """Commits the change that ``build`` computes for ``table``. ``job`` has the table's columns after it."""
        if done := table.standing(record, job.base):
            return done
        table.check_memory()
        metadata = actions.with_columns(table.metadata, job.columns, replaces=job.replaces_content)
        columns = columns_of(metadata["schemaString"])
        protocol = features.raised(table.protocol, columns)
        change = build(ChangeBuilder(self.spark, self.buffer, table, columns, job))
        if change.operation == "MERGE":  # it has listed the files
            record = replace(record, hidden_rows=_hidden_rows(table, change.removal))
        added = self._write_files(table.location, metadata, change.new) if change.new is not None else []
        partitions.check_values(metadata, added, table.location.url)
        job.before_commit()
        crashpoints.reached("in_commit", job.record.table)
        info = actions.commit_info(record.text, change.operation, _parameters(change), _metrics(change, added))
        content = [info, actions.transaction(record.app_id, record.seq)]
        content += [{"protocol": protocol}] if protocol != table.protocol else []
        content += [{"metaData": metadata}] if metadata != table.metadata else []
        content += [actions.remove(file) for file in change.removal.removed]
        content += [{"add": file} for file in (*change.removal.kept, *added)]
        return commit.commit(table, record, content, job.base, is_blind=change.is_blind)

    def _write_files(self, location: TableLocation, metadata: Mapping[str, Any], batch: Batch) -> list[Action]:
        batch = rows.refuse(batch, rows.nulls_refused(columns_of(metadata["schemaString"])))
        match batch:
            case InMemory(held) if data_files.can_write(metadata):
                add = data_files.write_groups(location, metadata, held.schema, [held])
                return [add] if add is not None else []
            case InMemory() | OnEngine():
                frame = frame_of(batch, self.spark, lambda: self.buffer.folder("new-rows"))
                write = data_files.write_by_spark if has_jvm(self.spark) else data_files.write_by_sail
                return write(location, metadata, frame)
            case _:
                assert_never(batch)


def _hidden_rows(table: OpenTable, removal: Removal) -> int:
    removed = {file["path"] for file in removal.removed}
    live = (*(file for file in table.files if file["path"] not in removed), *removal.kept)
    return sum(map(actions.hidden_rows, live))


def _parameters(change: Change) -> dict[str, str]:
    if change.operation != "WRITE":
        return {}
    return {"mode": "Overwrite" if change.removal.removed else "Append", "partitionBy": "[]"}


def _metrics(change: Change, added: Sequence[Action]) -> dict[str, str]:
    """Metrics with Delta's names, as text."""
    counted = {
        "numFiles": len(added),
        "numOutputRows": sum(actions.row_count(file) for file in added),
        "numOutputBytes": sum(int(file["size"]) for file in added),
        "numRemovedFiles": len(change.removal.removed),
        **(change.metrics or {}),
    }
    return {name: str(value) for name, value in counted.items()}
