"""Reads rows of one version of a table in this process. Columns are found by their ids, so a renamed one is read from
files that have its former name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from flowctl.connectors.arrow import arrow_schema, arrow_type
from flowctl.connectors.iceberg.deletions import ROWS, Deletions
from flowctl.connectors.iceberg.file_reader import StoredFile, reading
from flowctl.connectors.iceberg.versions import LiveFile, TableVersion
from flowctl.connectors.refusal import PREFIX, refusal
from flowctl.connectors.refusal import error_of as refused
from flowctl.errors import StoppedByPolicy
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    import pyarrow as pa
    from pyroaring import BitMap64


@dataclass(frozen=True)
class Scan:
    """Reads ``columns`` of ``version``, with the types that they have here (the table's may be narrower)."""

    version: TableVersion
    columns: tuple[Column, ...]

    def all_rows(self) -> Iterator[pa.RecordBatch]:
        """The live rows of the whole version."""
        deletions = Deletions(self.version)
        for file in self.version.data.values():
            yield from self.rows(file, without=deletions.hidden(file))

    def rows(
        self, file: LiveFile, *, only: BitMap64 | None = None, without: BitMap64 | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a data file with the numbers ``only`` (None: any), but not those with the numbers ``without``."""
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyiceberg.table import FileScanTask

        stored, start = StoredFile(FileScanTask(file.file), self.version.handle.io), 0
        with reading(self.version.metadata, self.version.place.storage, stored) as reader:
            for batch in reader.batches(self._here, ROWS):
                numbers = pa.array(range(start, start + batch.num_rows), pa.int64())
                start += batch.num_rows
                if only is not None:
                    batch = batch.filter(pc.is_in(numbers, pa.array(list(only), pa.int64())))
                if without:
                    batch = batch.filter(pc.invert(pc.is_in(numbers, pa.array(list(without), pa.int64()))))
                if batch.num_rows:
                    yield self._as_wanted(batch)

    @cached_property
    def _here(self) -> tuple[Column, ...]:
        """``columns`` as the table has them."""
        there = {column.name: column for column in self.version.columns}
        if missing := next((column.name for column in self.columns if column.name not in there), None):
            what = f"{self.version.place.shown} has no column {missing} any more"
            raise StoppedByPolicy(what, hint="Plan again: it was changed since the plan was made")
        return tuple(replace(there[column.name], nullable=True) for column in self.columns)

    def _as_wanted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        values = []
        for value, wanted, here in zip(batch.columns, self.columns, self._here, strict=True):
            try:
                values.append(value.cast(arrow_type(wanted.type)))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                text = refusal(wanted.name, here.native, wanted.type)
                raise refused(text.removeprefix(PREFIX)) from error
        return pa.RecordBatch.from_arrays(values, schema=arrow_schema(self.columns))
