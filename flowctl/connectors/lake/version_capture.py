"""What sources of versions share: a capture whose rows come in parts, with the columns of changes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.lake.part import Part
from flowctl.connectors.source import DELETED_COLUMN, PLACE_COLUMN, Capture, ReadRequest
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model import types
from flowctl.model.position import VersionPosition
from flowctl.model.table_info import Column
from flowctl.storage.buffer import SegmentSink

if TYPE_CHECKING:
    import pyarrow as pa


class VersionCapture(Capture):
    own_columns = (Column(PLACE_COLUMN, types.INT64), Column(DELETED_COLUMN, types.BOOL))

    @abstractmethod
    def parts(self, request: ReadRequest, columns: tuple[Column, ...]) -> Iterator[Part]:
        """``columns`` of the rows that ``request`` wants; :attr:`own_columns` are not among them."""

    def read(self, request: ReadRequest, sink: SegmentSink, rejected: SegmentSink | None = None) -> int:
        total = 0
        for batch in self._batches(request):
            sink.write(batch)
            total += batch.num_rows
        return total

    def is_empty(self, request: ReadRequest) -> bool:
        return not any(batch.num_rows for batch in self._batches(request))

    def _batches(self, request: ReadRequest) -> Iterator[pa.RecordBatch]:
        own = {column.name for column in self.own_columns}
        columns = tuple(column for column in request.columns if column.name not in own)
        for part in self.parts(request, columns):
            yield _with_own(part, request.columns)


def is_before(position: object, upper: VersionPosition) -> bool:
    """Whether ``position`` is an older version of the same table."""
    return isinstance(position, VersionPosition) and (
        position.table in ("", upper.table) and position.version < upper.version
    )


def is_under_another_schema(position: object, upper: VersionPosition) -> bool:
    """Whether ``position`` is the version of ``upper``, read under a schema that the table had then."""
    return isinstance(position, VersionPosition) and (
        position.table in ("", upper.table)
        and position.version == upper.version
        and position.schema not in ("", upper.schema)
    )


def why_another(position: VersionPosition, stamp: str) -> str:
    """Why what follows the version of ``position`` is not what has changed since; empty if it is. ``stamp``: of what
    has its number now."""
    if not position.is_another(stamp):
        return ""
    return f"version {position.version} is another one now, as the table was restored from a copy"


def require_planned(position: VersionPosition, table: str, stamp: str, url: str) -> None:
    """Stops the read of an interval whose bound ``position`` was a version of another table, or another version of that
    number: a saved plan may be older than the table at ``url``, which now has this id and, for the number, this stamp.
    """
    if position.table not in ("", table):
        raise StoppedByPolicy(f"{url} was dropped and created again since the plan was made", hint="Plan again")
    if why := why_another(position, stamp):
        raise StoppedByPolicy(f"{url}: {why}", hint="Plan again")


def unread_column(columns: Sequence[Column], url: str) -> TableError | None:
    """The error for the first column whose type flowctl does not have; None if there is none."""
    for column in columns:
        if column.as_text and column.note:
            return TableError(
                f"column {column.name} of {url} cannot be read: {column.note}",
                hint=f"Leave it out with `columns: {{exclude: [{column.name}]}}`",
            )
    return None


def _with_own(part: Part, columns: Sequence[Column]) -> pa.RecordBatch:
    import pyarrow as pa

    count = part.rows.num_rows
    own = {
        DELETED_COLUMN: lambda: pa.repeat(part.is_deleted, count),
        PLACE_COLUMN: lambda: pa.nulls(count, pa.int64()) if part.versions is None else part.versions,
    }
    values = [own[one.name]() if one.name in own else part.rows.column(one.name) for one in columns]
    return pa.RecordBatch.from_arrays(values, schema=arrow_schema(columns))
