"""Reads the live rows of one version of a table in this process, under the table's own column names.

Tables with column mapping have other names in their files (Delta protocol, *Column Mapping*): files are read under
these, and the rows renamed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from flowctl.connectors.arrow import arrow_schema, arrow_type
from flowctl.connectors.delta.file_reader import Unreadable, data_file, errors_of, open_file
from flowctl.connectors.delta.table import OpenTable
from flowctl.connectors.delta.types import Action, columns_of
from flowctl.connectors.refusal import PREFIX, refusal
from flowctl.connectors.refusal import error_of as refused
from flowctl.errors import TableError
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows read at a time.
_ROWS = 1 << 16
_PHYSICAL_NAME = "delta.columnMapping.physicalName"
_ABSOLUTE = re.compile(r"/|[a-z][a-z0-9+.-]*:", re.IGNORECASE)


@dataclass(frozen=True)
class Scan:
    """Reads ``columns`` of ``table``, with the types that they have here (Delta's may be narrower)."""

    table: OpenTable
    columns: tuple[Column, ...]

    def rows(self, files: Sequence[Action]) -> Iterator[pa.RecordBatch]:
        """The live rows of ``files``, which are ``add`` or ``remove`` actions of the table's log."""
        for file in files:
            yield from self._rows_of(file)

    def _rows_of(self, file: Action) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.compute as pc

        location = self.table.location
        if _ABSOLUTE.match(file["path"]):
            raise TableError(
                f"{location.url} has files of another table: it is a shallow clone",
                hint="Read the table that it is a clone of, or make a deep clone",
            )
        found, start = data_file(location, file, self._partition_by), 0
        try:
            with errors_of(location, found), open_file(location, found) as reader:
                reader.require_readable(self._stored)
                hidden = found.hidden()
                dead = pa.array(list(hidden), pa.int64()) if hidden else None
                for batch in reader.batches(self._stored, _ROWS):
                    end = start + batch.num_rows
                    if dead is not None:
                        batch = batch.filter(pc.invert(pc.is_in(pa.arange(start, end), dead)))
                    start = end
                    yield self._as_wanted(batch)
        except Unreadable as error:
            hint = "Have its writer write the table again, or leave the column out with columns.exclude"
            raise TableError(error.message, hint=hint) from error

    def _as_wanted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        values = []
        for value, wanted, here in zip(batch.columns, self.columns, self._here, strict=True):
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
        return tuple(_column(self.table, column) for column in self.columns)

    @cached_property
    def _stored(self) -> tuple[Column, ...]:
        """``columns`` as the table's files have them."""
        names = stored_columns(self.table.metadata["schemaString"])
        return tuple(names[column.name] for column in self.columns)

    @cached_property
    def _partition_by(self) -> tuple[str, ...]:
        names = stored_columns(self.table.metadata["schemaString"])
        return tuple(names[name].name for name in self.table.partition_by)


def _column(table: OpenTable, wanted: Column) -> Column:
    for column in table.columns:
        if column.name == wanted.name:
            if column.as_text:
                raise TableError(
                    f"column {column.name} of {table.location.url} cannot be read: {column.note}",
                    hint=f"Leave it out with `columns: {{exclude: [{column.name}]}}`",
                )
            return column
    raise TableError(f"{table.location.url} has no column {wanted.name} in version {table.version}", hint="Plan again")


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
    name = (field.get("metadata") or {}).get(_PHYSICAL_NAME, field["name"])
    return {**field, "name": name, "type": _stored(field["type"])}
