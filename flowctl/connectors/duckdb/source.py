"""DuckDB as a landed source: one read transaction, whose results DuckDB returns as Arrow batches."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from flowctl.connectors.arrow import CALENDAR_DAYS, CALENDAR_MICROSECONDS, arrow_schema
from flowctl.connectors.duckdb import MAIN, catalog
from flowctl.connectors.duckdb.columns import exact
from flowctl.connectors.duckdb.conditions import OWN_ZONE
from flowctl.connectors.duckdb.database import open_database, translated
from flowctl.connectors.refusal import no_counterpart, refusal, refused
from flowctl.connectors.source import HighWatermark, Relation, WatermarkRequest
from flowctl.connectors.sql.conditions import Condition
from flowctl.connectors.sql.file_source import FileSource
from flowctl.connectors.sql.source import (
    SqlCapture,
    read_watermark,
    watermark_values,
)
from flowctl.connectors.survey import Details, Survey, Wanted, survey_tables
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model import types
from flowctl.model.table_info import Column, ObjectName, RowEstimate, TableInfo
from flowctl.model.value import TypedValue, from_text

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

#: Rows per Arrow batch.
_BATCH_ROWS = 100_000


@dataclass(frozen=True)
class DuckdbSource(FileSource["duckdb.DuckDBPyConnection"]):
    identity = "duckdb"
    own_zone = OWN_ZONE
    everything = ("*", "*")

    def discover(self, pattern: tuple[str, ...]) -> list[ObjectName]:
        """Tables only; views must be named explicitly. A pattern without a schema is one of tables in ``main``."""
        schemas, names = map(self.fold, (MAIN, *pattern)[-2:])
        with self.reading() as connection:
            found = catalog.table_names(connection)
        return sorted(
            ObjectName((schema, name)[-len(pattern) :])
            for schema, name in found
            if fnmatchcase(self.fold(schema), schemas) and fnmatchcase(self.fold(name), names)
        )

    def survey(self, wanted: Wanted) -> Survey:
        """Tables in ``main`` are named without a schema."""
        named = {object: _short(object) for object in self.discover(self.everything)}
        objects = [short for object, short in named.items() if wanted(object) or wanted(short)]
        return survey_tables(
            self, objects, [_short(view) for view in self.views() if wanted(view) or wanted(_short(view))]
        )

    def details(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, Details]:
        with self.reading() as connection:
            return catalog.details(connection, objects)

    def views(self) -> Sequence[ObjectName]:
        with self.reading() as connection:
            return sorted(map(ObjectName, catalog.view_names(connection)))

    def discover_views(self, pattern: tuple[str, ...]) -> list[ObjectName]:
        found = super().discover_views((MAIN, *pattern)[-2:])
        return [ObjectName(view.parts[-len(pattern) :]) for view in found]

    @contextmanager
    def capture(self, relation: Relation, info: TableInfo) -> Iterator[DuckdbCapture]:
        """Holds one read transaction. Until it ends, no other process can write the file."""
        with self.reading() as connection:
            connection.execute("BEGIN TRANSACTION READ ONLY")
            here = self.columns_now(connection, relation, info)
            yield DuckdbCapture(relation, info, here, catalog.comparisons(connection), connection)

    def reading(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        return open_database(self.path, "ro")

    def describe_table(self, connection: duckdb.DuckDBPyConnection, object: ObjectName) -> TableInfo | None:
        return catalog.describe(connection, object, self.identity, self.system)

    def columns(self, connection: duckdb.DuckDBPyConnection, relation: Relation) -> tuple[Column, ...] | None:
        return catalog.relation_columns(connection, relation)

    def high_watermark(self, connection: duckdb.DuckDBPyConnection, request: WatermarkRequest) -> HighWatermark:
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


def _short(object: ObjectName) -> ObjectName:
    """The name as a spec has it."""
    schema, name = object.parts
    return ObjectName((name,)) if schema == MAIN else object


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
            raise refused_value(self.here[column.name], column, no_counterpart(types.DATE))


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
