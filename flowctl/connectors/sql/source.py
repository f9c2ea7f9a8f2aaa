"""What sources of SQL databases share: high watermarks, missing or altered tables, and how this process reads."""

from __future__ import annotations

import datetime as dt
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.preconditions import require_unaltered
from flowctl.connectors.source import Capture, HighWatermark, Missing, ReadRequest, Relation, Source, WatermarkRequest
from flowctl.connectors.sql.conditions import EVERY_ROW, Comparisons, Condition, no_cursor
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.position import CursorPosition, NoPosition
from flowctl.model.table_info import Column, ObjectName, RowEstimate, TableInfo
from flowctl.model.value import TypedValue, is_cursor_type
from flowctl.spec.suggest import nearest
from flowctl.storage.buffer import SegmentSink

if TYPE_CHECKING:
    import pyarrow as pa


def watermark_values(comparisons: Comparisons, request: WatermarkRequest, column: Column | None) -> Condition:
    """The select list of one row, without a FROM: the greatest cursor value, whether any is null, the row count, the
    number of rows at the position, whether any row has a cursor, whether any is at or below the position; what costs
    nothing for each that the request does not need. ``column`` is the cursor column as in the database. Raises
    :class:`TableError` for a cursor that has no order of its own."""
    relation, position = request.relation, request.position
    newest, counted, there = Condition("''"), Condition("0"), Condition("0")
    has_null, any_row, older = Condition("false"), Condition("false"), Condition("true")
    if request.cursor is not None and not is_cursor_type(request.cursor.type):
        raise no_cursor(request.cursor)
    if column is not None:
        newest = comparisons.greatest(request, column)
        has_null = comparisons.exists(relation, Condition(f"{comparisons.quoted(column.name)} IS NULL"))
        if position is not None:
            there = comparisons.count(relation, comparisons.at_position(column, position))
        if position is not None and request.check_older:
            older = comparisons.exists(relation, comparisons.up_to_position(column, position, request.first))
        if request.delay is not None:
            any_row = comparisons.exists(relation, comparisons.not_null(column))
    elif relation.where is not None:
        any_row = comparisons.exists(relation, Condition("false"))  # only so that an error in `where` stops the plan
    if request.estimate == "count":
        counted = comparisons.count(relation, comparisons.wanted(request, column))
    values = (newest, has_null, counted, there, any_row, older)
    return Condition(", ".join(one.sql for one in values), tuple(value for one in values for value in one.parameters))


def read_watermark(
    request: WatermarkRequest, row: Sequence[Any], clock: dt.datetime, value_of: Callable[[Column, Any], TypedValue]
) -> HighWatermark:
    """Reads a row of :func:`watermark_values`. ``value_of`` converts the greatest cursor value, or raises the
    :class:`TableError` that stops this table."""
    newest, has_null, counted, there, any_row, older = row
    rows = _estimated_rows(request, counted)
    if request.cursor is None:
        return HighWatermark(NoPosition(), rows, clock)
    rows_there = there if request.position is not None else None
    found = HighWatermark(None, rows, clock, bool(has_null), rows_at_position=rows_there, has_older=bool(older))
    if newest is None:
        return replace(found, has_younger=bool(any_row))
    try:
        return replace(found, position=CursorPosition(value_of(request.cursor, newest)))
    except TableError as error:
        return replace(found, failure=error)


def _estimated_rows(request: WatermarkRequest, counted: int) -> RowEstimate:
    """Statistics cover whole tables only: a part of one has to be counted."""
    if request.estimate != "stats":
        return RowEstimate(counted if request.estimate == "count" else None, request.estimate)
    is_whole = request.lower is None and request.upper is None and request.relation.where is None
    return request.info.rows if is_whole else RowEstimate()


def in_own_zone(
    requests: Mapping[str, WatermarkRequest], own_zone: Callable[[], str]
) -> tuple[dict[str, WatermarkRequest], dict[str, str]]:
    """The requests, with the source's own time zone where `delay` needs one and the request names none; and that zone,
    by the names of those requests."""
    names = [name for name, request in requests.items() if request.zone is None and _counts_in_zone(request)]
    if not names:
        return dict(requests), {}
    own = own_zone()
    zoned = {name: replace(requests[name], zone=own) for name in names}
    return {**requests, **zoned}, dict.fromkeys(names, own)


def _counts_in_zone(request: WatermarkRequest) -> bool:
    kind = request.cursor.type if request.cursor else None
    return request.delay is not None and kind in (types.TIMESTAMP_NTZ, types.DATE)


def described(
    relations: Sequence[Relation],
    describe: Callable[[Sequence[ObjectName]], Mapping[ObjectName, TableInfo | None]],
    describe_query: Callable[[Relation], TableInfo],
) -> dict[Relation, TableInfo | None]:
    """See :meth:`Source.describe`: all objects by one call, each query by one of its own."""
    objects = list(dict.fromkeys(relation.object for relation in relations if relation.object is not None))
    infos = describe(objects) if objects else {}
    return {
        relation: infos[relation.object] if relation.object is not None else describe_query(relation)
        for relation in relations
    }


def missing_table(source: Source, relation: Relation, place: str, hint: str) -> Missing:
    """See :meth:`Source.why_missing`; ``place`` is for people."""
    wanted = relation.object or ObjectName(("",))
    there = source.discover(("*",) * len(wanted.parts))
    return Missing(f"{place} has no table {wanted}", nearest(str(wanted), map(str, there), hint))


@dataclass(frozen=True)
class SqlCapture(Capture):
    """One moment of a relation that only this process reads. ``here`` are the columns of that moment, by name; ``info``
    has those described for the plan, or none."""

    relation: Relation
    info: TableInfo
    here: Mapping[str, Column]
    comparisons: Comparisons

    @abstractmethod
    def batches(self, query: Condition, columns: Sequence[Column]) -> Generator[pa.RecordBatch]:
        """The rows of ``query``, which selects ``columns`` by :meth:`selected`, with the types of ``columns``; each
        batch as large as this process may hold; closed if they are not all read. Raises :class:`TableError` for a value
        that is not exactly of its column's type."""

    @abstractmethod
    def holds(self, condition: Condition) -> bool:
        """Whether ``condition``, which is about no particular row, is true."""

    def selected(self, column: Column) -> str:
        """The expression that selects ``column``."""
        return self.comparisons.quoted(column.name)

    def prepare(self, cursor: Column) -> None:
        """Called before a query whose conditions compare ``cursor``."""

    def read(self, request: ReadRequest, sink: SegmentSink, rejected: SegmentSink | None = None) -> int:
        condition, total = self._condition(request), 0
        listed = ", ".join(self.selected(column) for column in request.columns)
        query = f"SELECT {listed} FROM {self.comparisons.from_clause(self.relation, condition)}"
        with closing(self.batches(Condition(query, condition.parameters), request.columns)) as batches:
            for batch in batches:
                sink.write(batch)
                total += batch.num_rows
        return total

    def is_empty(self, request: ReadRequest) -> bool:
        return not self.holds(self.comparisons.exists(self.relation, self._condition(request)))

    def _condition(self, request: ReadRequest) -> Condition:
        """The condition for the interval's rows. Requires that columns are as they were described: those that are read,
        and those that ``where`` may name."""
        interval, where = request.interval, self.relation.where or ""
        cursor = interval.cursor_column if interval else None
        names = [*(column.name for column in request.columns), *((cursor,) if cursor else ())]
        for name in [*names, *(column.name for column in self.info.columns if f'"{column.name}"' in where)]:
            now = self.here.get(name)
            require_unaltered(self.info.object, name, self.info.column(name), now)
        if interval is None or cursor is None:
            return EVERY_ROW
        bound = interval.read_from or interval.read_to
        column = replace(self.here[cursor], type=bound.type if bound is not None else types.STRING)
        self.prepare(column)
        return self.comparisons.between(request, column)


class RowsCapture(SqlCapture):
    """For a driver that returns rows of Python values."""

    @abstractmethod
    def rows(self, query: Condition) -> Iterator[Sequence[Sequence[Any]]]:
        """Yields batches of rows, each as large as this process may hold."""

    @abstractmethod
    def to_arrow(self, values: Sequence[Any], column: Column) -> pa.Array:
        """Raises :class:`TableError` for a value that is not exactly of the column's type."""

    def batches(self, query: Condition, columns: Sequence[Column]) -> Generator[pa.RecordBatch]:
        import pyarrow as pa

        schema = arrow_schema(columns)
        for rows in self.rows(query):
            of_columns = zip(zip(*rows, strict=True), columns, strict=True)
            yield pa.RecordBatch.from_arrays(
                [self.to_arrow(values, column) for values, column in of_columns], schema=schema
            )

    def holds(self, condition: Condition) -> bool:
        ((is_true,),) = next(iter(self.rows(Condition(f"SELECT {condition.sql}", condition.parameters))))
        return bool(is_true)
