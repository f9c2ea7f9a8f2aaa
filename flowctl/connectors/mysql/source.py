"""MySQL and MariaDB as a landed source: one connection with one consistent snapshot, streamed as Arrow batches.

All reads of a table share the snapshot, so they show one moment without any lock; only tables of engines that have no
transactions (MyISAM) show the moment of each statement.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.base import Capabilities
from flowctl.connectors.mysql import catalog
from flowctl.connectors.mysql.client import Client, MysqlConnection
from flowctl.connectors.mysql.columns import converted, selected
from flowctl.connectors.mysql.details import details, views
from flowctl.connectors.mysql.errors import NO_TABLE, REPAIR_VIEW, code_of
from flowctl.connectors.source import HighWatermark, LandedSource, Missing, Relation, WatermarkRequest
from flowctl.connectors.sql.conditions import Condition
from flowctl.connectors.sql.source import (
    SqlCapture,
    described,
    in_own_zone,
    missing_table,
    read_watermark,
    watermark_values,
)
from flowctl.connectors.survey import Details
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model.table_info import Column, ObjectName, RowEstimate, TableInfo
from flowctl.model.value import TypedValue, from_text
from flowctl.spec.spec import ReadHints

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows per Arrow batch.
_BATCH_ROWS = 50_000


@dataclass(frozen=True)
class MysqlSource(LandedSource):
    """A table's identity is the server, its database and its name: a recreated table is the same one."""

    client: Client
    capabilities: Capabilities

    def discover(self, pattern: tuple[str, ...]) -> list[ObjectName]:
        """Tables only; views must be named explicitly. A pattern without a database is one of the connection's."""
        with self.client.connect() as connection:
            found, facts = catalog.discover(connection), connection.facts
        schemas, names = map(self.fold, (facts.database, *pattern)[-2:])
        return sorted(
            ObjectName((schema, name)[-len(pattern) :])
            for schema, name in found
            if fnmatchcase(self.fold(schema), schemas) and fnmatchcase(self.fold(name), names)
        )

    def fold(self, name: str) -> str:
        """Known from the first connection on."""
        return facts.fold(name) if (facts := self.client.facts) else name

    def describe(self, relations: Sequence[Relation]) -> Mapping[Relation, TableInfo | None]:
        with self.client.connect() as connection:
            describe = partial(catalog.describe, connection)
            return described(relations, describe, partial(self._described_query, connection))

    def details(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, Details]:
        with self.client.connect() as connection:
            return details(connection, objects)

    def views(self) -> Sequence[ObjectName]:
        with self.client.connect() as connection:
            return views(connection)

    def why_missing(self, relation: Relation) -> Missing:
        place = f"the database {self.client.database} at {self.client.host}:{self.client.port}"
        return missing_table(self, relation, place, "Correct `from`, or let the connection's user see it")

    def high_watermarks(self, requests: Mapping[str, WatermarkRequest]) -> Mapping[str, HighWatermark]:
        with self.client.connect() as connection:
            requests, zones = in_own_zone(requests, lambda: connection.facts.zone)
            found = {name: self._high_watermark(connection, request) for name, request in requests.items()}
        return {name: replace(one, zone=zones.get(name, "")) for name, one in found.items()}

    def refuse_read(self, info: TableInfo, hints: ReadHints, *, reads_twice: bool) -> StoppedByPolicy | None:
        if why := info.extra.get("why_invalid"):
            return StoppedByPolicy(f"{info.object} is an invalid view: {why}", hint=REPAIR_VIEW)
        engine = info.extra.get("engine", "")
        if not reads_twice or engine in ("", "InnoDB"):
            return None
        return StoppedByPolicy(
            f"{info.object} is a table of the engine {engine}, which has no snapshot: two queries may see two moments",
            hint=f"Run ALTER TABLE {info.object} ENGINE = InnoDB",
        )

    @contextmanager
    def capture(self, relation: Relation, info: TableInfo) -> Iterator[MysqlCapture]:
        """Holds one read transaction. It keeps no writer waiting, but DDL on what is read, as any query does there; the
        server keeps old versions of rows meanwhile."""
        with self.client.connect() as connection:
            comparisons = catalog.comparisons(connection)
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            with _dropped_meanwhile(info):  # from here on, nobody alters the table
                connection.execute(f"SELECT 1 FROM {comparisons.from_clause(relation)} LIMIT 0")
            here = catalog.relation_columns(connection, relation) or ()
            by_name = {column.name: column for column in here}
            yield MysqlCapture(relation, info, by_name, comparisons, connection)

    def _described_query(self, connection: MysqlConnection, relation: Relation) -> TableInfo:
        columns = catalog.relation_columns(connection, relation) or ()
        system = catalog.system_of(connection, connection.facts.database)
        return TableInfo(ObjectName(("(query)",)), columns, f"{system}/(query)", system=system)

    def _high_watermark(self, connection: MysqlConnection, request: WatermarkRequest) -> HighWatermark:
        """A failure stops this table only."""
        comparisons, cursor = catalog.comparisons(connection), request.cursor
        try:
            with self.client.translated():
                column = _column(request, cursor.name) if cursor is not None else None
                values = watermark_values(comparisons, request, column)
                (row,) = connection.fetch(f"SELECT {values.sql}")
            return read_watermark(request, row, comparisons.now, _exact_value)
        except TableError as error:
            return HighWatermark(None, RowEstimate(), failure=error)


@dataclass(frozen=True)
class MysqlCapture(SqlCapture):
    """One read transaction. ``where`` may name columns in double quotes or in backticks."""

    connection: MysqlConnection

    def selected(self, column: Column) -> str:
        return selected(self.here[column.name])

    def batches(self, query: Condition, columns: Sequence[Column]) -> Generator[pa.RecordBatch]:
        import pyarrow as pa

        schema = arrow_schema(columns)
        with closing(self.connection.stream(query.sql, _BATCH_ROWS)) as found:
            for texts in found:
                of_columns = zip(texts, columns, strict=True)
                arrays = [converted(values, self.here[column.name], column) for values, column in of_columns]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def holds(self, condition: Condition) -> bool:
        ((is_true,),) = self.connection.fetch(f"SELECT {condition.sql}")
        return bool(is_true)


@contextmanager
def _dropped_meanwhile(info: TableInfo) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if code_of(error) != NO_TABLE:
            raise
        raise StoppedByPolicy(f"{info.object} was dropped since the plan was made", hint="Plan again") from error


def _column(request: WatermarkRequest, name: str) -> Column:
    column = request.info.column(name)
    if column is None:
        raise TableError(f"{request.info.object} has no column {name}", hint="Check `cursor.column`")
    return column


def _exact_value(cursor: Column, newest: str | bytes) -> TypedValue:
    text = newest.decode() if isinstance(newest, bytes) else str(newest)
    try:
        return from_text(cursor.type, text)
    except (ValueError, ArithmeticError):
        raise StoppedByPolicy(
            f"the greatest value of cursor column {cursor.name} is {text}: it would freeze the table",
            hint=f'Fix that row, or leave it out: `where: "{cursor.name} < ..."`',
        ) from None
