"""Reads rows of one version of a table in this process, under the table's own column names.

Tables with column mapping have other names in their files (Delta protocol, *Column Mapping*): files are read under
these, and the rows renamed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from flowctl.connectors.arrow import arrow_schema, arrow_type
from flowctl.connectors.delta.actions import is_elsewhere
from flowctl.connectors.delta.file_reader import FileReader, data_file, errors_of, open_file
from flowctl.connectors.delta.table import OpenTable
from flowctl.connectors.delta.types import Action, columns_of
from flowctl.connectors.lake.table import Unreadable
from flowctl.connectors.refusal import PREFIX, refusal
from flowctl.connectors.refusal import error_of as refused
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    import pyarrow as pa
    from pyroaring import BitMap64

#: Rows read at a time.
_ROWS = 1 << 16
_PHYSICAL_NAME, _ID = "delta.columnMapping.physicalName", "delta.columnMapping.id"
#: In files of the change data feed (Delta protocol, *Change Data Files*).
_CHANGE_TYPE = Column("_change_type", types.STRING)


@dataclass(frozen=True)
class Scan:
    """Reads ``columns`` of ``table``, with the types that they have here (Delta's may be narrower). A column that this
    version does not have yet is null."""

    table: OpenTable
    columns: tuple[Column, ...]

    def rows(self, files: Sequence[Action]) -> Iterator[pa.RecordBatch]:
        """The live rows of ``files``, which are ``add`` actions of the table's log."""
        for file in files:
            for batch, _ in self._rows_of(file):
                yield batch

    def rows_at(self, file: Action, numbers: BitMap64) -> Iterator[pa.RecordBatch]:
        """The rows of a file with these numbers, live or not."""
        return (batch for batch, _ in self._rows_of(file, numbers))

    def changes(self, file: Action) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """The rows of a file of the change data feed, with the type of each change."""
        return self._rows_of(file, more=(_CHANGE_TYPE,))

    def _rows_of(
        self, file: Action, wanted: BitMap64 | None = None, more: tuple[Column, ...] = ()
    ) -> Iterator[tuple[pa.RecordBatch, Any]]:
        """Batches of ``columns``, and the first column of ``more`` (None without)."""
        import pyarrow as pa
        import pyarrow.compute as pc

        location = self.table.location
        if is_elsewhere(file["path"]):
            raise TableError(
                f"{location.url} has files of another table: it is a shallow clone",
                hint="Read the table that it is a clone of, or make a deep clone",
            )
        found, start, columns = data_file(location, file, self._partition_by), 0, (*self._stored, *more)
        try:
            with errors_of(location, found, is_planned=True), open_file(location, found) as reader:
                reader.require_readable(columns)
                self._require_ids(reader)
                hidden = found.hidden() if wanted is None else wanted
                listed = pa.array(list(hidden), pa.int64()) if hidden or wanted is not None else None
                for batch in reader.batches(columns, _ROWS):
                    end = start + batch.num_rows
                    if listed is not None:
                        is_listed = pc.is_in(pa.arange(start, end), listed)
                        batch = batch.filter(pc.invert(is_listed) if wanted is None else is_listed)
                    start = end
                    values = batch.columns
                    yield self._as_wanted(values[: len(self.columns)]), values[-1] if more else None
        except Unreadable as error:
            hint = "Write the table again with its own writer, or leave the column out with columns.exclude"
            raise TableError(error.message, hint=hint) from error

    def _as_wanted(self, stored: Sequence[pa.Array]) -> pa.RecordBatch:
        import pyarrow as pa

        values = []
        for value, wanted, here in zip(stored, self.columns, self._here, strict=True):
            renamed = value.view(arrow_type(here.type)) if value.type != arrow_type(here.type) else value
            try:
                values.append(renamed.cast(arrow_type(wanted.type)))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                text = refusal(wanted.name, here.native, wanted.type)
                raise refused(text.removeprefix(PREFIX)) from error
        return pa.RecordBatch.from_arrays(values, schema=arrow_schema(self.columns))

    @cached_property
    def _here(self) -> tuple[Column, ...]:
        """``columns`` as the table has them."""
        there = {column.name: column for column in self.table.columns}
        return tuple(there.get(column.name, column) for column in self.columns)

    @cached_property
    def _stored(self) -> tuple[Column, ...]:
        """``columns`` as the table's files have them."""
        names = stored_columns(self.table.metadata["schemaString"])
        return tuple(names.get(column.name, column) for column in self.columns)

    @cached_property
    def _partition_by(self) -> tuple[str, ...]:
        names = stored_columns(self.table.metadata["schemaString"])
        return tuple(names[name].name for name in self.table.partition_by)

    def _require_ids(self, reader: FileReader) -> None:
        """With column mapping by id, names in files mean nothing. Writers use the names that the log has for them; a
        file with others (of a table that was converted) is :class:`Unreadable`."""
        if self.table.properties.get("delta.columnMapping.mode") != "id":
            return
        wanted = {column.name for column in self._stored} - reader.file.partition_values.keys()
        expected = {
            path: number for path, number in ids_of(self.table.metadata["schemaString"]).items() if path[0] in wanted
        }
        there = reader.ids()
        for path, number in expected.items():
            if there.get(path, number) != number or (path not in there and number in there.values()):
                raise Unreadable(f"column mapping by id, and a file has other names than the log for field {number}")


def stored_columns(schema: str) -> Mapping[str, Column]:
    """The columns of a schema in Delta's JSON under the names that files have for them, by the table's names."""
    document = json.loads(schema)
    stored = columns_of(json.dumps(_stored(document)))
    return {field["name"]: column for field, column in zip(document["fields"], stored, strict=True)}


def _stored(written: Any) -> Any:
    match written:
        case {"type": "struct", "fields": fields}:
            return {**written, "fields": [_stored_field(field) for field in fields]}
        case {"type": "array", "elementType": item}:
            return {**written, "elementType": _stored(item)}
        case _:
            return written


def _stored_field(field: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**field, "name": _stored_name(field), "type": _stored(field["type"])}


def _stored_name(field: Mapping[str, Any]) -> str:
    return str((field.get("metadata") or {}).get(_PHYSICAL_NAME, field["name"]))


def ids_of(schema: str) -> dict[tuple[str, ...], int]:
    """The ids of the fields of a schema in Delta's JSON, by their path of names in files. An array's items have the
    array's path."""
    return dict(_ids(json.loads(schema), ()))


def _ids(written: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    match written:
        case {"type": "struct", "fields": fields}:
            for field in fields:
                here = (*path, _stored_name(field))
                if _ID in (field.get("metadata") or {}):
                    yield here, int(field["metadata"][_ID])
                yield from _ids(field["type"], here)
        case {"type": "array", "elementType": item}:
            yield from _ids(item, path)
