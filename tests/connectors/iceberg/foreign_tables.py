"""Iceberg tables of other writers: PyIceberg's, and the deletions of rows that only engines such as Spark and Flink
write, made with PyIceberg's own manifests."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

NAMESPACE = "sales"
_POSITIONS = Schema(
    NestedField(2147483546, "file_path", StringType(), required=True),
    NestedField(2147483545, "pos", LongType(), required=True),
)


def catalog_in(folder: Path) -> SqlCatalog:
    catalog = SqlCatalog("flowctl", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    catalog.create_namespace_if_not_exists(NAMESPACE)
    return catalog


def connection(folder: Path) -> dict[str, str]:
    """The options of a connection to the same catalog."""
    return {
        "catalog": "jdbc",
        "uri": f"sqlite:////{str(folder).lstrip('/')}/catalog.db",
        "warehouse": f"{folder}/warehouse",
        "namespace": NAMESPACE,
    }


class _DeleteManifests(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def delete_positions(table: Table, positions: Mapping[str, Sequence[int]]) -> Table:
    """As merge-on-read writers do it: the rows with these numbers in each data file."""
    pairs = sorted((path, at) for path, numbers in positions.items() for at in numbers)
    rows = pa.table({"file_path": [path for path, _ in pairs], "pos": pa.array([at for _, at in pairs], pa.int64())})
    return _commit_deletes(table, _POSITIONS, rows, DataFileContent.POSITION_DELETES, None)


def delete_equal(table: Table, schema: Schema, rows: pa.Table) -> Table:
    """As Flink writes upserts: all earlier rows that are equal to one of ``rows``, which have the columns of
    ``schema``."""
    ids = [field.field_id for field in schema.fields]
    return _commit_deletes(table, schema, rows, DataFileContent.EQUALITY_DELETES, ids)


def _commit_deletes(
    table: Table, schema: Schema, rows: pa.Table, content: DataFileContent, equality_ids: list[int] | None
) -> Table:
    io, spec, parent = table.io, table.spec(), table.current_snapshot()
    assert spec.is_unpartitioned() and parent is not None
    path = f"{table.location()}/data/{uuid.uuid4()}-deletes.parquet"
    local = path.removeprefix("file://")
    Path(local).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows.cast(schema_to_pyarrow(schema)), local)
    file = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=rows.num_rows,
        file_size_in_bytes=Path(local).stat().st_size,
        equality_ids=equality_ids,
        spec_id=spec.spec_id,
    )
    id, sequence = table.metadata.new_snapshot_id(), table.metadata.last_sequence_number + 1
    manifest = f"{table.location()}/metadata/{uuid.uuid4()}-m0.avro"
    writer = _DeleteManifests(spec, table.schema(), io.new_output(manifest), id, "null")
    with writer:
        writer.add(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=id, data_file=file))
    place = f"{table.location()}/metadata/snap-{id}.avro"
    with write_manifest_list(2, io.new_output(place), id, parent.snapshot_id, sequence, "null") as listed:
        listed.add_manifests([writer.to_manifest_file(), *parent.manifests(io)])
    totals = {"total-equality-deletes": str(rows.num_rows)} if equality_ids else {}
    summary = Summary(Operation.DELETE, **{"added-delete-files": "1", **totals})
    snapshot = Snapshot(
        snapshot_id=id, parent_snapshot_id=parent.snapshot_id, sequence_number=sequence, manifest_list=place,
        summary=summary, schema_id=table.schema().schema_id,
    )  # fmt: skip
    table.catalog.commit_table(
        table,
        (AssertRefSnapshotId(snapshot_id=parent.snapshot_id, ref="main"),),
        (
            AddSnapshotUpdate(snapshot=snapshot),
            SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=id),
        ),
    )
    return table.refresh()


def paths(table: Table) -> list[str]:
    return [task.file.file_path for task in table.scan().plan_files()]
