"""DuckDB as a landed source: one read transaction, whose results DuckDB returns as Arrow batches.

A file is identified by its path alone, as it may be replaced by a new copy every night; a file at another path is
another source.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from flowctl.connectors.arrow import CALENDAR_DAYS, CALENDAR_MICROSECONDS, arrow_schema
from flowctl.connectors.base import Capabilities
from flowctl.connectors.duckdb import MAIN, catalog
from flowctl.connectors.duckdb.columns import exact
from flowctl.connectors.duckdb.conditions import OWN_ZONE
from flowctl.connectors.duckdb.database import open_database, translated
from flowctl.connectors.refusal import refusal, refused
from flowctl.connectors.source import HighWatermark, LandedSource, Missing, Relation, WatermarkRequest
from flowctl.connectors.sql.conditions import Condition
from flowctl.connectors.sql.source import (
    SqlCapture,
    in_own_zone,
    missing_table,
    read_watermark,
    watermark_values,
)
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model.table_info import Column, ObjectName, RowEstimate, TableInfo
from flowctl.model.value import TypedValue, from_text

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

#: Rows per Arrow batch.
_BATCH_ROWS = 100_000

#: The identity of every source table: only its rows reveal that a table was recreated.
IDENTITY = "duckdb"


@dataclass(frozen=True)
class DuckdbSource(LandedSource):
    """One file. ``system`` identifies the file in state."""

    path: Path
    capabilities: Capabilities
    system: str = ""

    def discover(self, pattern: tuple[str, ...]) -> list[ObjectName]:
        """Tables only; views must be named explicitly. A pattern without a schema is one of tables in ``main``."""
        schemas, names = (part.lower() for part in (MAIN, *pattern)[-2:])
        with self._reading() as connection:
            found = catalog.table_names(connection)
        return sorted(
            ObjectName((schema, name)[-len(pattern) :])
            for schema, name in found
            if fnmatchcase(schema.lower(), schemas) and fnmatchcase(name.lower(), names)
        )

    def describe(self, relations: Sequence[Relation]) -> Mapping[Relation, TableInfo | None]:
        with self._reading() as connection:
            return {relation: self._describe(connection, relation) for relation in relations}

    def high_watermarks(self, requests: Mapping[str, WatermarkRequest]) -> Mapping[str, HighWatermark]:
        requests, own_zone = in_own_zone(requests, lambda: OWN_ZONE)
        with self._reading() as connection:
            found = {name: self._watermark(connection, request) for name, request in requests.items()}
        return {name: replace(one, zone=own_zone.get(name, "")) for name, one in found.items()}

    def why_missing(self, relation: Relation) -> Missing:
        return missing_table(self, relation, str(self.path), "Correct `from`, or `path` of the connection")

    @contextmanager
    def capture(self, relation: Relation, info: TableInfo) -> Iterator[DuckdbCapture]:
        """Holds one read transaction. Until it ends, no other process can write the file."""
        with self._reading() as connection:
            connection.execute("BEGIN TRANSACTION READ ONLY")
            here = catalog.relation_columns(connection, relation)
            if here is None:
                raise StoppedByPolicy(f"{info.object} was dropped since the plan was made", hint="Plan again")
            columns = {column.name: column for column in here}
            yield DuckdbCapture(relation, info, columns, catalog.comparisons(connection), connection)

    @contextmanager
    def _reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with open_database(self.path, "ro") as connection:
            yield connection

    def _describe(self, connection: duckdb.DuckDBPyConnection, relation: Relation) -> TableInfo | None:
        if relation.object is None:
            name = ObjectName(("(query)",))
            return TableInfo(name, catalog.query_columns(connection, relation), IDENTITY, system=self.system)
        return catalog.describe(connection, relation.object, IDENTITY, self.system)

    def _watermark(self, connection: duckdb.DuckDBPyConnection, request: WatermarkRequest) -> HighWatermark:
        """A failure stops this table only."""
        comparisons, cursor = catalog.comparisons(connection), request.cursor
        try:
            with translated(self.path):
                column = _column(request, cursor.name) if cursor is not None else None
                values = watermark_values(comparisons, request, column)
                (row,) = connection.execute(f"SELECT {values.sql}").fetchall()
            return read_watermark(request, row, comparisons.now, _exact_value)
        except TableError as error:
            return HighWatermark(None, RowEstimate(), failure=error)


@dataclass(frozen=True)
class DuckdbCapture(SqlCapture):
    """One read transaction."""

    connection: duckdb.DuckDBPyConnection

    def selected(self, column: Column) -> str:
        return exact(self.here[column.name], column.type)

    def batches(self, query: Condition, columns: Sequence[Column]) -> Generator[pa.RecordBatch]:
        """An unread result would keep the instance open, and DuckDB would wait for ever to open another one."""
        schema = arrow_schema(columns)
        with self.connection.execute(query.sql).to_arrow_reader(_BATCH_ROWS) as reader:
            for batch in reader:
                for column, values in zip(columns, batch.columns, strict=True):
                    self._require_calendar(values, column)
                yield batch.rename_columns(schema.names).cast(schema)

    def holds(self, condition: Condition) -> bool:
        ((is_true,),) = self.connection.execute(f"SELECT {condition.sql}").fetchall()
        return bool(is_true)

    def _require_calendar(self, values: pa.Array, column: Column) -> None:
        """Refuses infinity and years outside 1 to 9999, which Arrow reads as other days than its readers do."""
        if not _is_in_calendar(values):
            because = ": infinity and years outside 1 to 9999 have no counterpart"
            raise refused_value(self.here[column.name], column, because)


def refused_value(here: Column, wanted: Column, because: str) -> TableError:
    found = refused(refusal(here.name, here.native, wanted.type, because))
    assert found is not None
    return found


def _is_in_calendar(values: pa.Array) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if pa.types.is_list(kind):
        return _is_in_calendar(values.flatten())
    if pa.types.is_struct(kind):
        return all(map(_is_in_calendar, values.flatten()))
    if pa.types.is_date32(kind):
        (low, high), numbers = CALENDAR_DAYS, values.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        (low, high), numbers = CALENDAR_MICROSECONDS, values.cast(pa.int64())
    else:
        return True
    bounds = pc.min_max(numbers).as_py()
    return bounds["min"] is None or bool(low <= bounds["min"] and bounds["max"] <= high)


def _column(request: WatermarkRequest, name: str) -> Column:
    column = request.info.column(name)
    if column is None:
        raise TableError(f"{request.info.object} has no column {name}", hint="Check `cursor.column`")
    return column


def _exact_value(cursor: Column, newest: str) -> TypedValue:
    unusable = StoppedByPolicy(
        f"the greatest value of cursor column {cursor.name} is {newest}: it would freeze the table",
        hint=f'Fix that row, or leave it out: `where: "{cursor.name} < ..."`',
    )
    if newest in ("infinity", "-infinity", "inf", "-inf", "nan"):
        raise unusable
    try:
        return from_text(cursor.type, newest)
    except (ValueError, ArithmeticError):
        raise unusable from None
