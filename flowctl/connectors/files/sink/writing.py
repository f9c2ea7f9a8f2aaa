"""Writes rows as new files, which nobody sees until they are published."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.files.sink.encoding import Encoder, encoder
from flowctl.connectors.files.sink.folder import FileNames, NewFile, TableFolder, owner_of
from flowctl.connectors.files.sink.manifest import DataFile
from flowctl.model.commit import Commit
from flowctl.model.table_info import Column
from flowctl.spec.files_layout import FilesLayout

if TYPE_CHECKING:
    import pyarrow as pa

#: A batch is written in slices of about this size: the text of a slice must fit into one Arrow array (2 GiB).
_SLICE_BYTES = 16 * 2**20


@dataclass
class NewFiles:
    """Those of one attempt, which all have ``columns``. ``written`` have all of their content."""

    columns: tuple[Column, ...]
    written: list[NewFile] = field(default_factory=list)
    rows: int = 0

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.written)

    @property
    def entries(self) -> tuple[DataFile, ...]:
        return tuple(DataFile(file.path, file.rows, file.bytes) for file in self.written)

    def publish(self) -> None:
        for file in self.written:
            file.publish()


@contextmanager
def new_files(
    folder: TableFolder,
    record: Commit,
    batches: Iterable[pa.RecordBatch],
    columns: Sequence[Column],
    layout: FilesLayout,
) -> Iterator[NewFiles]:
    """Writes the rows of ``batches`` with exactly ``columns``; what a batch lacks is null. Files that are not published
    when the context ends are removed."""
    names = FileNames(record.seq, owner_of(record.lineage, record.table), layout.extension)
    made, current, encode = NewFiles(tuple(columns)), None, None
    try:
        with folder.own_errors():
            for batch in fitted(batches, columns, min(_SLICE_BYTES, layout.file_bytes)):
                if current is None or encode is None:
                    current = NewFile(folder, names.name(len(made.written)))
                    encode = encoder(current.opened, columns, layout)
                encode.write(batch)
                current.rows += batch.num_rows
                if current.opened.tell() >= layout.file_bytes:
                    _finish(made, current, encode)
                    current = encode = None
            if current is not None and encode is not None:
                _finish(made, current, encode)
                current = None
        yield made
    finally:
        for file in [*made.written, *([current] if current is not None else [])]:
            file.discard()


def _finish(made: NewFiles, file: NewFile, encode: Encoder) -> None:
    encode.close()
    file.finish()
    made.written.append(file)
    made.rows += file.rows


def fitted(
    batches: Iterable[pa.RecordBatch], columns: Sequence[Column], slice_bytes: int = _SLICE_BYTES
) -> Iterator[pa.RecordBatch]:
    """The rows with exactly ``columns``, in slices of about ``slice_bytes``; what a batch lacks is null."""
    import pyarrow as pa

    schema = arrow_schema(columns)
    for batch in batches:
        have = set(batch.schema.names)
        values = [
            batch.column(field.name).cast(field.type) if field.name in have else pa.nulls(batch.num_rows, field.type)
            for field in schema
        ]
        whole = pa.RecordBatch.from_arrays(values, schema=schema)
        rows = max(1, whole.num_rows * slice_bytes // max(whole.nbytes, 1))
        for start in range(0, whole.num_rows, rows):
            yield whole.slice(start, rows)
