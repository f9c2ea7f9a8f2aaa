"""SQLite as a landed source: one read transaction, streamed as Arrow batches by the driver.

Frames and high watermarks are compared in the cursor's declared type, not in SQLite's storage order.
Views and queries have no rowid, so their misfits are named by column alone.
"""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from flowctl.connectors.source import HighWatermark, Relation, WatermarkRequest
from flowctl.connectors.sql.conditions import Condition, unsorted_text
from flowctl.connectors.sql.file_source import FileSource
from flowctl.connectors.sql.source import (
    RowsCapture,
    read_watermark,
    watermark_values,
)
from flowctl.connectors.sql.values import Misfit, to_arrow
from flowctl.connectors.sqlite import catalog
from flowctl.connectors.sqlite.conditions import OWN_ZONE, SqliteComparisons, is_sortable, prepare
from flowctl.connectors.sqlite.database import open_database, quoted, readers_of, translated
from flowctl.connectors.sqlite.problems import NOT_UTF8, not_utf8, undecoded_column
from flowctl.connectors.survey import Details
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column, ObjectName, RowEstimate, TableInfo
from flowctl.model.value import TypedValue

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows per Arrow batch: few enough that their Python values stay in the processor's cache.
_BATCH_ROWS = 10_000
#: What SQLite says of an error of ``flowctl_order``, whatever it was.
_ORDER_REFUSED = "user-defined function raised exception"


@dataclass(frozen=True)
class SqliteSource(FileSource[sqlite3.Connection]):
    """``is_immutable``: as in :class:`.location.Location`."""

    is_immutable: bool = False
    identity = "sqlite"
    own_zone = OWN_ZONE

    def discover(self, pattern: tuple[str, ...]) -> list[ObjectName]:
        """Tables only; views must be named explicitly. Names are case-insensitive, as in SQLite."""
        glob = self.fold(pattern[-1])
        with self.reading() as connection:
            names = catalog.table_names(connection)
        return sorted(ObjectName((name,)) for name in names if fnmatchcase(self.fold(name), glob))

    def details(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, Details]:
        with self.reading() as connection:
            return {object: catalog.details(connection, object) for object in objects}

    def views(self) -> Sequence[ObjectName]:
        with self.reading() as connection:
            return sorted(ObjectName((name,)) for name in catalog.view_names(connection))

    @contextmanager
    def capture(self, relation: Relation, info: TableInfo) -> Iterator[SqliteCapture]:
        """Holds one read transaction. In WAL mode writers continue meanwhile; otherwise their commits wait for it
        (flowctl's own too, so the runner ends it before it writes)."""
        with readers_of(self.path).reading(), self.reading() as connection:
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # the first read takes the snapshot
            here = self.columns_now(connection, relation, info)
            yield SqliteCapture(relation, info, here, SqliteComparisons(), connection)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with open_database(self.path, "ro", is_immutable=self.is_immutable) as connection, translated(self.path):
            yield connection

    @contextmanager
    def reading_high_watermarks(self) -> Iterator[sqlite3.Connection]:
        with self.reading() as connection:
            connection.execute("BEGIN")
            yield connection

    def describe_table(self, connection: sqlite3.Connection, object: ObjectName) -> TableInfo | None:
        return catalog.describe(connection, object, self.identity, dt.datetime.now(dt.UTC), self.system)

    def columns(self, connection: sqlite3.Connection, relation: Relation) -> tuple[Column, ...] | None:
        return catalog.relation_columns(connection, relation)

    def high_watermark(self, connection: sqlite3.Connection, request: WatermarkRequest) -> HighWatermark:
        """A failure stops this table only."""
        try:
            with translated(self.path):
                return _watermark(connection, request)
        except TableError as error:
            return HighWatermark(None, RowEstimate(), failure=error)


@dataclass(frozen=True)
class SqliteCapture(RowsCapture):
    """One read transaction."""

    connection: sqlite3.Connection

    def prepare(self, cursor: Column) -> None:
        prepare(self.connection, cursor)

    def rows(self, query: Condition) -> Iterator[list[tuple[Any, ...]]]:
        cursor = self.connection.execute(query.sql, query.parameters)
        try:
            while rows := cursor.fetchmany(_BATCH_ROWS):
                yield rows
        except sqlite3.OperationalError as error:
            if name := undecoded_column(error):
                at = _first_undecoded(self.connection, self.relation, name) if self.info.column(name) else ""
                raise TableError(not_utf8(name) + at, hint=NOT_UTF8) from None  # its own text holds the value
            raise

    def to_arrow(self, values: Sequence[Any], column: Column) -> pa.Array:
        try:
            return to_arrow(values, column.type)
        except Misfit as error:
            raise _misfit(self.connection, self.relation, column) from error


def _watermark(connection: sqlite3.Connection, request: WatermarkRequest) -> HighWatermark:
    comparisons, cursor = SqliteComparisons(), request.cursor
    if cursor is not None:
        prepare(connection, cursor)
    try:
        values = watermark_values(comparisons, request, cursor)
        row = connection.execute(f"SELECT {values.sql}", values.parameters).fetchone()
        return read_watermark(request, row, comparisons.now, _exact_value)
    except (sqlite3.OperationalError, Misfit) as error:
        if cursor is None or not (isinstance(error, Misfit) or _ORDER_REFUSED in str(error)):
            raise
        raise _misfit(connection, request.relation, cursor) from error


def _exact_value(cursor: Column, stored: Any) -> TypedValue:
    if cursor.type == types.STRING and isinstance(stored, int | float):
        raise unsorted_text(cursor)
    if not is_sortable(stored, cursor.type):
        raise Misfit(str(cursor.type))
    at = to_arrow([stored], cursor.type)[0].as_py()
    return TypedValue(cursor.type, at.astimezone(dt.UTC) if isinstance(at, dt.datetime) and at.tzinfo else at)


def _misfit(connection: sqlite3.Connection, relation: Relation, column: Column) -> TableError:
    """Looks for the first row whose value is not of the column's type: only after a failure, to keep reads fast."""
    text = f"read the column as text with `columns: {{types: {{{column.name}: string}}}}`"
    if column.type == types.STRING:  # all but blobs are
        text = "read the table by a query in which hex() makes text of it"
    return TableError(
        f"column {column.name} holds a value that is not exactly {types.short(column.type)}"
        + _first_misfit(connection, relation, column),
        hint=f"Fix the value, or {text}",
    )


def _first_misfit(connection: sqlite3.Connection, relation: Relation, column: Column) -> str:
    return _first(connection, relation, quoted(column.name), lambda value: to_arrow([value], column.type))


def _first_undecoded(connection: sqlite3.Connection, relation: Relation, name: str) -> str:
    text = f"CASE typeof({quoted(name)}) WHEN 'text' THEN CAST({quoted(name)} AS BLOB) END"
    return _first(connection, relation, text, lambda value: value and value.decode())


def _first(connection: sqlite3.Connection, relation: Relation, expression: str, read: Callable[[Any], object]) -> str:
    """Names the first row whose value ``read`` refuses."""
    found = catalog.find(connection, relation.object) if relation.object else None
    if found is None or not found.has_rowid:
        return ""
    query = f"SELECT rowid, {expression} FROM {SqliteComparisons().from_clause(relation)} ORDER BY rowid"
    for rowid, value in connection.execute(query):
        try:
            read(value)
        except ValueError:
            return f", first in rowid {rowid}"
    return ""
