"""Sends a relation as binary COPY, in parts of one held snapshot, or as a query for the same database.

Binary forms are those of the types' ``send`` functions, which PostgreSQL keeps across versions. Texts among them are in
the session's encoding: both sides use UTF-8, and each server converts from and to its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from flowctl.connectors.postgres.columns import quoted, text_literal
from flowctl.connectors.postgres.conditions import between
from flowctl.connectors.postgres.reading import HeldRelation
from flowctl.connectors.postgres.types import is_stored_as
from flowctl.connectors.source import ReadRequest
from flowctl.connectors.sql.conditions import Condition
from flowctl.connectors.sql.parts import nth
from flowctl.connectors.undecoded import Inside, Part, SentColumn, UndecodedRows, UndecodedSnapshot
from flowctl.errors import StoppedByPolicy
from flowctl.model.interval import Interval
from flowctl.model.table_info import TableInfo

_PIECE_BYTES = 1 << 18


def refuse_altered(planned: TableInfo, now: TableInfo | None) -> None:
    """Raises unless the relation still has the columns and the key of the plan: no value is looked at later."""
    if now is None or now.shape != planned.shape:
        altered = [one.name for one in planned.columns if now is None or now.column(one.name) != one]
        what = f"column {altered[0]} of {planned.object}" if altered else f"{planned.object}"
        raise StoppedByPolicy(f"{what} was altered since the plan was made", hint="Plan again")


@dataclass(frozen=True)
class HeldCopies(UndecodedSnapshot):
    relation: HeldRelation

    def is_empty(self, interval: Interval) -> bool:
        return self.relation.has_no_rows(ReadRequest((), interval))

    def rows(self, columns: Sequence[SentColumn], interval: Interval) -> Copies:
        for column in columns:
            self.relation.found(column.source.name)
        return Copies(self.relation, tuple(columns), interval)


@dataclass(frozen=True)
class Copies(UndecodedRows):
    relation: HeldRelation
    columns: tuple[SentColumn, ...]
    interval: Interval

    def parts(self, constants: Mapping[str, str]) -> Sequence[Part]:
        request = ReadRequest(tuple(column.source for column in self.columns), self.interval)
        condition = between(request, self.relation.info)
        cut = self.relation.cut(request, condition)
        values = [*map(_sent, self.columns), *map(_constant, constants.values())]
        listed = ", ".join([*(f"{value} AS {nth(at)}" for at, value in enumerate(values)), *cut.selected])
        rows = self.relation.rows(condition, Condition(cut.condition))
        names, assertion = ", ".join(nth(at) for at, _ in enumerate(values)), self.relation.held.assertion()
        return [
            partial(
                self._copied,
                f"SELECT {names} FROM (SELECT {listed} FROM {rows}\n) AS source WHERE ({part}) AND ({assertion})",
            )
            for part in cut.ranges
        ]

    def inside(self, constants: Mapping[str, str]) -> Inside:
        condition = between(ReadRequest((), self.interval), self.relation.info)
        values = ", ".join([*map(_sent, self.columns), *map(_constant, constants.values())])
        moment = f"SET TRANSACTION SNAPSHOT {text_literal(self.relation.held.id)}"
        return Inside(f"SELECT {values} FROM {self.relation.rows(condition)}", moment)

    @contextmanager
    def _copied(self, query: str) -> Iterator[Iterator[bytes]]:
        with self.relation.client.connect() as connection:
            connection.execute("SET client_encoding = 'UTF8'")
            self.relation.held.join(connection)
            statement = f"COPY ({query}) TO STDOUT (FORMAT binary)"
            with connection.cursor().copy(statement.encode()) as copy:
                yield _pieces(iter(copy))


def _pieces(rows: Iterator[bytes | bytearray | memoryview]) -> Iterator[bytes]:
    """One message has one row: larger pieces take fewer calls."""
    piece = bytearray()
    for row in rows:
        piece += row
        if len(piece) >= _PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


def _sent(column: SentColumn) -> str:
    source, name = column.source, quoted(column.source.name)
    return name if is_stored_as(source.native, source.portable) else f"{name}::{source.portable}"


def _constant(text: str) -> str:
    return f"{text_literal(text)}::text"
