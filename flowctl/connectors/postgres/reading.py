"""Frames of a held snapshot through Spark's JDBC source: one task per range, each on the same moment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowctl.connectors.base import ReadRequest, Relation
from flowctl.connectors.postgres.client import Client, startup_options
from flowctl.connectors.postgres.columns import Transfer, quoted, rebuilt, transfer
from flowctl.connectors.postgres.conditions import between, from_clause
from flowctl.connectors.postgres.snapshot import READER_SETTINGS, HeldSnapshot
from flowctl.connectors.postgres.splits import default_splits, number_ranges, page_ranges
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column, TableInfo
from flowctl.spec.spec import ReadHints

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_INTEGERS = (types.INT16, types.INT32, types.INT64)
#: Rows that a reading connection holds at a time: bounded by bytes where the average row is known.
_FETCH_BYTES = 32 << 20


@dataclass(frozen=True)
class PostgresSnapshot:
    """A :class:`flowctl.connectors.base.Snapshot` while ``held`` lives."""

    spark: SparkSession
    client: Client
    held: HeldSnapshot
    relation: Relation
    info: TableInfo
    hints: ReadHints

    def frame(self, request: ReadRequest) -> DataFrame:
        transfers = [transfer(column, self._found(column.name)) for column in request.columns]
        cut = self._cut()
        selected = [f"{one.sql} AS {quoted(one.column.name)}" for one in transfers] + list(cut.selected)
        rows = from_clause(self.relation, between(request.interval, self.info), cut.condition)
        assertion = self.held.assertion()
        arrived = self.spark.read.jdbc(
            self.client.jdbc_url(),
            jdbc_text(f"(SELECT {', '.join(selected)} FROM {rows}\n) AS source"),
            predicates=[f"({part}) AND ({assertion})" for part in cut.ranges],
            properties={**self.client.jdbc_properties(), **self._options(transfers)},
        )
        return arrived.select(*[rebuilt(one) for one in transfers])

    def _found(self, name: str) -> Column:
        found = self.info.column(name)
        if found is None:
            raise TableError(f"{self.info.object} has no column {name} any more", hint="Plan again")
        return found

    def _cut(self) -> Cut:
        leaves, name = self.held.leaves, self.hints.split_by
        pages = [leaf.pages for leaf in leaves if leaf.pages is not None]
        size = sum(pages) * self.held.block_size or self.info.rows.bytes or 0
        splits = self.hints.splits or default_splits(size)
        if name != "auto":
            return self._cut_by(self._found(name), splits)
        if leaves and len(pages) == len(leaves):
            oids = ",".join(str(leaf.oid) for leaf in leaves)
            now = f"tableoid = ANY ('{{{oids}}}'::oid[])" if len(leaves) > 1 else ""
            return Cut(page_ranges(pages, splits), ("ctid AS _flowctl_ctid",), now)
        key = [self._found(name) for name in self.info.primary_key]
        return self._cut_by(key[0], splits) if len(key) == 1 and key[0].type in _INTEGERS else Cut(["true"])

    def _cut_by(self, column: Column, splits: int) -> Cut:
        """Bounds need not be of the snapshot: the outer ranges are open."""
        if column.type not in _INTEGERS:
            raise TableError(
                f"{self.info.object} cannot be split by {column.name} ({column.native}): only integers can",
                hint="Name an integer column, or remove read.split_by",
            )
        name = quoted(column.name)
        with self.client.connect() as connection:
            row = connection.execute(f"SELECT min({name}), max({name}) FROM {from_clause(self.relation)}").fetchone()
        if row is None or row[0] is None:
            return Cut(["true"])
        return Cut(number_ranges("_flowctl_split", row[0], row[1], splits), (f"{name} AS _flowctl_split",))

    def _options(self, transfers: Sequence[Transfer]) -> dict[str, str]:
        schema = [f"`{one.column.name.replace('`', '``')}` {one.jdbc_type}" for one in transfers]
        return {
            "fetchsize": str(self._fetch_size()),
            "sessionInitStatement": self.held.init_statement(),
            "customSchema": ", ".join(schema),
            # Spark asks for the schema on a connection of its own that runs no init statement.
            "options": startup_options(READER_SETTINGS),
            # Comparisons mean something else in PostgreSQL's collations and zones than in Spark.
            "pushDownPredicate": "false",
        }

    def _fetch_size(self) -> int:
        if self.hints.fetch_size < 1:
            raise TableError(
                "read.fetch_size 0 would read without the snapshot, all rows at once", hint="Set it to 1 or more"
            )
        rows = self.info.rows
        if not rows.value or not rows.bytes:
            return self.hints.fetch_size
        return max(1, min(self.hints.fetch_size, _FETCH_BYTES * rows.value // rows.bytes))


@dataclass(frozen=True)
class Cut:
    """``ranges`` are conditions on the extra ``selected`` columns, one task each; ``condition`` holds for all."""

    ranges: list[str]
    selected: tuple[str, ...] = ()
    condition: str = ""


def jdbc_text(sql: str) -> str:
    """``sql`` with question marks doubled outside of quotes and comments: PostgreSQL's operators, JDBC's parameters."""
    return _QUOTED_OR_MARK.sub(lambda found: "??" if found[0] == "?" else found[0], sql)


_QUOTED_OR_MARK = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\w*)\$.*?\$\1\$|--[^\n]*|/\*.*?\*/|\?""", re.DOTALL)
