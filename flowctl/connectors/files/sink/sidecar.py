"""Rejected rows of a table, in a folder of Parquet files of their own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import reduce
from typing import TYPE_CHECKING

from flowctl.connectors.buffered import computed, record_batches
from flowctl.connectors.files.sink.folder import TableFolder
from flowctl.connectors.files.sink.manifest import DataFile, Manifest
from flowctl.connectors.files.sink.writing import NewFiles, new_files
from flowctl.connectors.target import WriteJob
from flowctl.engine.batch import OnEngine
from flowctl.model.table_info import Column
from flowctl.spec.files_layout import FilesLayout
from flowctl.storage.buffer import BufferFolder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_LAYOUT = FilesLayout()


def replace_rejected(
    folder: TableFolder, frame: DataFrame, place: BufferFolder, job: WriteJob, since: int, through: int | None
) -> None:
    """See :meth:`flowctl.connectors.target.Target.quarantine`."""
    rows = computed(frame, OnEngine(frame), lambda: place)
    while True:
        manifest = folder.newest()
        columns = _united(manifest.columns, job.columns)
        with ExitStack() as stack:
            kept: list[DataFile] = []
            made: list[NewFiles] = []
            for file in manifest.files:
                left = _left(folder, file, job, since, through)
                if left is None:
                    kept.append(file)
                elif left.num_rows:
                    made.append(stack.enter_context(new_files(folder, job.record, left.to_batches(), columns, _LAYOUT)))
            made.append(stack.enter_context(new_files(folder, job.record, record_batches(rows), columns, _LAYOUT)))
            next_one = Manifest(
                version=manifest.version + 1,
                id=manifest.id or f"files:{uuid.uuid4()}",
                columns=columns,
                files=(*kept, *(entry for files in made for entry in files.entries)),
                commits=manifest.with_commit(job.record),
            )
            job.before_commit()
            with folder.own_errors():
                for files in made:
                    files.publish()
            if folder.create(next_one):
                folder.clean(next_one)
                return


def _united(columns: Sequence[Column], others: Sequence[Column]) -> tuple[Column, ...]:
    known = {column.name for column in columns}
    return (*columns, *(Column(column.name, column.type) for column in others if column.name not in known))


def _left(folder: TableFolder, file: DataFile, job: WriteJob, since: int, through: int | None) -> pa.Table | None:
    """The rows of ``file`` that stay; None if all do."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with folder.own_errors(), folder.file_system.open(folder.full(file.path), "rb") as opened:
        rows = pq.read_table(opened)
    go = reduce(pc.and_, _conditions(rows, job, since, through))
    left = rows.filter(pc.invert(pc.fill_null(go, False)))
    return None if left.num_rows == rows.num_rows else left


def _conditions(rows: pa.Table, job: WriteJob, since: int, through: int | None) -> Iterator[pa.ChunkedArray]:
    """What holds for the rows that ``job`` replaces."""
    import pyarrow as pa
    import pyarrow.compute as pc

    nothing = pa.chunked_array([pa.nulls(rows.num_rows, pa.string())])
    names = rows.schema.names
    yield pc.equal(rows["_lineage"] if "_lineage" in names else nothing, job.record.lineage)
    yield pc.greater_equal(rows["_seq"], since)
    if through is not None:
        yield pc.less_equal(rows["_seq"], through)
    if any(column.name == "_table" for column in job.columns):
        yield pc.equal(rows["_table"] if "_table" in names else nothing, job.record.table)
