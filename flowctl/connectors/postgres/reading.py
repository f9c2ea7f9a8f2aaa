"""Frames of a held snapshot: what is read and in which parts, for every reader."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, assert_never

from flowctl.connectors.postgres import copy_reading
from flowctl.connectors.postgres.client import NO_SUCH_SNAPSHOT, NOT_POPULATED, REFRESH, Client
from flowctl.connectors.postgres.columns import quoted, transfer
from flowctl.connectors.postgres.conditions import COMPARISONS, between
from flowctl.connectors.postgres.jdbc_reading import jdbc_frame
from flowctl.connectors.postgres.planner import Planned, planned
from flowctl.connectors.postgres.snapshot import SNAPSHOT_LOST, HeldSnapshot
from flowctl.connectors.preconditions import require_unaltered
from flowctl.connectors.refusal import no_counterpart, refusal, refused
from flowctl.connectors.source import ReadRequest, Relation, Snapshot
from flowctl.connectors.sql.conditions import Condition
from flowctl.connectors.sql.parts import INTEGERS, Cut, Parts, number_ranges, ranges_between, splitting
from flowctl.engine.cost import IN_MEMORY_BYTES, LARGE_RANGE_BYTES, SMALL_RANGE_BYTES
from flowctl.errors import FlowctlError, TableError, TransientError
from flowctl.model import types
from flowctl.model.table_info import Column, TableInfo
from flowctl.model.types import Decimal
from flowctl.spec.spec import ReadHints
from flowctl.storage.buffer import Buffer

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Way = Literal["jdbc", "copy", "here"]


def way_of_reading(*, has_jvm: bool, is_foreign: bool) -> Way:
    """``jdbc`` for executors in a JVM, where rows from Python take a quarter more CPU time; ``copy`` for executors
    without a JVM; ``here``, in this process over one connection, for relations with rows on other servers. In all cases
    small results are first read by this process (:meth:`PostgresSnapshot.rows_in_memory`)."""
    if is_foreign:
        return "here"
    return "jdbc" if has_jvm else "copy"


@dataclass(frozen=True)
class HeldRelation:
    """A relation at the moment of ``held``, and the parts in which it is read. ``info`` is the description for the
    plan, ``native`` the types of the columns at this moment."""

    client: Client
    held: HeldSnapshot
    relation: Relation
    info: TableInfo
    hints: ReadHints
    native: Mapping[str, str]
    _plans: dict[str, Mapping[str, Planned]] = field(default_factory=dict, repr=False, compare=False, kw_only=True)

    def has_no_rows(self, request: ReadRequest, joined: psycopg.Connection[Any] | None = None) -> bool:
        """``joined`` is a connection that sees the snapshot, for a relation that only one may read."""
        query = f"SELECT FROM {self.rows(between(request, self.info))} LIMIT 1"
        if joined is not None:
            return joined.execute(query.encode()).fetchone() is None
        with self.client.connect() as connection:
            self.held.join(connection)
            return connection.execute(query.encode()).fetchone() is None

    def rows(self, *conditions: Condition) -> str:
        return COMPARISONS.from_clause(self.relation, *conditions)

    def found(self, name: str) -> Column:
        found = self.info.column(name)
        native = self.native.get(name)
        now = replace(found, native=native) if found is not None and native is not None else None
        require_unaltered(self.info.object, name, found, now)
        assert found is not None
        return found

    def _is_small(self, request: ReadRequest, condition: Condition) -> bool:
        """Judges by the current pages; a part of a larger table is small only if an index finds it."""
        pages, is_all = self._pages()
        if is_all and sum(pages) * self.held.block_size <= SMALL_RANGE_BYTES:
            return True
        return bool(condition.sql) and self._is_found_by_index(request, condition, SMALL_RANGE_BYTES)

    def _pages(self) -> tuple[list[int], bool]:
        """The pages of each leaf that has any, and whether these make up the whole relation."""
        leaves = self.held.leaves
        pages = [leaf.pages for leaf in leaves if leaf.pages is not None]
        return pages, bool(leaves) and len(pages) == len(leaves)

    def cut(self, request: ReadRequest, condition: Condition) -> Cut:
        leaves = self.held.leaves
        pages, has_pages = self._pages()
        size = sum(pages) * self.held.block_size or self.info.rows.bytes or 0
        chosen = splitting(self.info, self.hints, size, has_pages=has_pages)
        match chosen.by:
            case "pages":
                has_choice = condition.sql and chosen.count > 1 and not self.hints.splits
                if has_choice and self._is_found_by_index(request, condition, LARGE_RANGE_BYTES):
                    return Cut()
                oids = ",".join(str(leaf.oid) for leaf in leaves)
                now = f"tableoid = ANY ('{{{oids}}}'::oid[])" if len(leaves) > 1 else ""
                return Cut(page_ranges(pages, chosen.count), ("ctid AS _flowctl_ctid",), now)
            case "values":
                return self._cut_by(self.found(chosen.column), chosen.count)
            case "nothing":
                return Cut()
            case _:
                assert_never(chosen.by)

    def _is_found_by_index(self, request: ReadRequest, condition: Condition, most_bytes: int) -> bool:
        """Whether PostgreSQL would find these rows without reading all pages, and expects at most ``most_bytes``. Split
        by pages, each part would still read all of its pages, or scan the index again."""
        import psycopg

        columns = ", ".join(quoted(column.name) for column in request.columns)
        queries = {
            "all": f"SELECT {columns} FROM {self.rows()}",
            "wanted": f"SELECT {columns} FROM {self.rows(condition)}",
        }
        if queries["wanted"] not in self._plans:
            try:
                with self.held.asking() as connection:
                    self._plans[queries["wanted"]] = planned(connection, queries)
            except psycopg.Error:  # an estimate is not worth failing a run
                self._plans[queries["wanted"]] = {}
        found = self._plans[queries["wanted"]]
        return bool(found) and found["wanted"].cost < found["all"].cost and found["wanted"].bytes <= most_bytes

    def _cut_by(self, column: Column, splits: int) -> Cut:
        """The bounds need not come from the snapshot: the outer ranges are open."""
        if column.type not in INTEGERS:
            raise TableError(
                f"{self.info.object} cannot be split by {column.name} ({column.native}): only integers can",
                hint="Name an integer column, or remove read.split_by",
            )
        name = quoted(column.name)
        with self.held.asking() as connection:
            asked = connection.execute(f"SELECT min({name}), max({name}) FROM {self.rows()}".encode())
            row = asked.fetchone()
        if row is None or row[0] is None:
            return Cut()
        return Cut(number_ranges("_flowctl_split", row[0], row[1], splits), (f"{name} AS _flowctl_split",))


@dataclass(frozen=True)
class PostgresSnapshot(HeldRelation, Snapshot):
    """Readable while ``held`` exists. ``joined`` is the one connection that reads it ``here``, into a folder of
    ``buffer``."""

    spark: SparkSession
    way: Way
    joined: psycopg.Connection[Any] | None = None
    buffer: Buffer | None = None

    def frame(self, request: ReadRequest) -> DataFrame:
        condition = between(request, self.info)
        cut = Cut() if self.way == "here" else self.cut(request, condition)
        parts = self._parts(request, condition, cut)
        match self.way:
            case "jdbc":
                return jdbc_frame(self.spark, self.client, self.held, parts, self.hints, self.info.rows)
            case "copy":
                return copy_reading.copy_frame(self.spark, self.client, self.held, parts)
            case "here":
                assert self.joined is not None
                if self.buffer is None:
                    raise FlowctlError("a foreign table was opened without a buffer", hint="Use `flowctl apply`")
                return copy_reading.buffered_frame(self.spark, self.joined, parts, self.buffer.folder("foreign"))
            case _:
                assert_never(self.way)

    def rows_in_memory(self, request: ReadRequest) -> pa.Table | None:
        """Reads a small result in one part; whether it is small is estimated from statistics."""
        condition = between(request, self.info)
        if self.way == "here" or not request.columns or self.hints != ReadHints():
            return None
        if not self._is_small(request, condition):
            return None
        with self.client.connect() as connection:
            self.held.join(connection)
            return copy_reading.rows_in_memory(connection, self._parts(request, condition, Cut()), IN_MEMORY_BYTES)

    def _parts(self, request: ReadRequest, condition: Condition, cut: Cut) -> Parts:
        return Parts(
            transfers=tuple(transfer(column, self.found(column.name)) for column in request.columns),
            rows=self.rows(condition, Condition(cut.condition)),
            cut=cut,
            assertion=self.held.assertion(),
        )

    def is_empty(self, request: ReadRequest) -> bool:
        return self.has_no_rows(request, self.joined)


def page_ranges(pages: Sequence[int], splits: int) -> list[str]:
    """Ranges of ``_flowctl_ctid`` with about as many pages each. ``pages`` has one number per partition: each range is
    read from all of them, so the cuts balance the sum. The last range is open: tables grow."""
    cuts = [f"'({cut},0)'::tid" for cut in _even_cuts(pages, splits)]
    return ranges_between("_flowctl_ctid", cuts)


def _even_cuts(pages: Sequence[int], splits: int) -> list[int]:
    """Page numbers below which 1/n, 2/n, … of all pages lie."""
    total = sum(pages)
    cuts: set[int] = set()
    for part in range(1, splits):
        low, high = 0, max(pages, default=0)
        while low < high:
            middle = (low + high) // 2
            if sum(min(middle, size) for size in pages) * splits < total * part:
                low = middle + 1
            else:
                high = middle
        cuts.add(low)
    return sorted(cuts - {0})


def error_of_read(
    text: str, client: Client, held: HeldSnapshot, relation: Relation, info: TableInfo
) -> FlowctlError | None:
    """Translates an error of Spark by its text; None if the text is not recognized here."""
    if "canceling statement due to lock timeout" in text:
        return TransientError(
            f"another session waits to change {info.object} (TRUNCATE, ALTER TABLE) and blocks the read",
            hint="Wait until that session is done: the read then starts again",
        )
    if SNAPSHOT_LOST in text or NO_SUCH_SNAPSHOT.search(text):
        return TransientError(
            f"the snapshot of {info.object} was lost with its connection", hint="Wait: it starts again"
        )
    if own := refused(text):
        return own
    if unpopulated := re.search(f'materialized view "[^\n]+" {NOT_POPULATED}', text):
        return TableError(unpopulated[0], hint=REFRESH)
    if any(sign in text for sign in _SIGNS_OF_INFINITY) and (found := _not_finite(client, held, relation, info)):
        return found
    if re.search(_SIGNS_OF_A_BAD_CAST, text):
        return TableError(
            f"a value of {info.object} does not fit the type that `columns.types` gives its column",
            hint="Fix the value, or give another type",
        )
    return None


_SIGNS_OF_INFINITY = ("Bad value for type BigDecimal", "cannot subtract infinite dates", "bigint out of range")
_SIGNS_OF_A_BAD_CAST = r"ERROR: (invalid input syntax for type|numeric field overflow|[^\n]{0,80} out of range)"


def _not_finite(client: Client, held: HeldSnapshot, relation: Relation, info: TableInfo) -> FlowctlError | None:
    """Looks for the column, in the same snapshot: only after a failure, to keep reads fast."""
    suspects = [(column, test) for column in info.columns if (test := _is_not_finite(column))]
    if not suspects:
        return None
    with client.connect() as connection:
        held.join(connection)
        tests = ", ".join(f"bool_or({test})" for _, test in suspects)
        row = connection.execute(f"SELECT {tests} FROM {COMPARISONS.from_clause(relation)}").fetchone()
    found = [column for (column, _), hit in zip(suspects, row or (), strict=True) if hit]
    if not found:
        return None
    first = found[0]
    return refused(refusal(first.name, first.native, first.type, no_counterpart(first.type)))


def _is_not_finite(column: Column) -> str:
    name = quoted(column.name)
    match column.type:
        case Decimal():
            return f"{name} = 'NaN'"
        case types.DATE | types.TIMESTAMP | types.TIMESTAMP_NTZ:
            return f"NOT isfinite({name})"
        case _:
            return ""
