"""What the matrix asks of a source: tables that change, written by another client than flowctl."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from tests.connectors.matrix.contents import EXTRA, Columns, Content, Kind, Row
from tests.e2e.targets import Databases

MILLION = 1_000_000
_ARROW: Mapping[Kind, pa.DataType] = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "text": pa.string(),
    "decimal": pa.decimal128(18, 4),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "boolean": pa.bool_(),
    "double": pa.float64(),
    "binary": pa.binary(),
}


class Source(ABC):
    """Tables by name. ``keeps_all``: a row that is changed is there in each of its versions; one that ends is there
    with a flag. ``takes_cursor``: later rows are found by a column; others by what was read."""

    kind: ClassVar[str]
    keeps_all: ClassVar[bool] = False
    takes_cursor: ClassVar[bool] = True
    #: Why a column never changes its type here; empty if it can.
    never_widens: ClassVar[str] = ""

    def __init__(self, folder: Path, databases: Databases) -> None:
        self.folder = folder
        self.content: dict[str, Content] = {}
        self._open(databases)

    @property
    @abstractmethod
    def connection(self) -> Mapping[str, Any]:
        """In the spec."""

    def reference(self, table: str) -> str:
        return f"src:{table}"

    def entry(self, table: str, mode: str) -> dict[str, Any]:
        """What a table of a spec that reads ``table`` has besides modes and keys."""
        made: dict[str, Any] = {"from": self.reference(table)}
        if self.takes_cursor and mode != "truncate" and "at" in self.content[table].columns:
            made["cursor"] = {"column": "at"}
        elif self.takes_cursor and mode == "append":
            made["cursor"] = "none"
        return made

    def carried(self, columns: Columns) -> Columns:
        """Without those that nothing here can hold."""
        return columns

    def deletes(self) -> dict[str, Any]:
        """How a run finds out about rows that have ended."""
        return {"detect": "missing_keys"}

    def create(self, table: str, columns: Columns, rows: Sequence[Row]) -> None:
        self.content[table] = Content(dict(columns))
        self._create(table, columns)
        self.put(table, rows)

    def put(self, table: str, rows: Sequence[Row], ended: Sequence[Row] = ()) -> None:
        """In place of earlier versions; ``ended`` are gone from now on."""
        self.content[table].end(ended, keeps_all=self.keeps_all)
        self.content[table].put(rows)
        self._put(table, rows, ended)

    def add_column(self, table: str) -> None:
        self.content[table].columns[EXTRA] = "text"
        self._add_column(table)

    def widen(self, table: str) -> None:
        self.content[table].columns["small"] = "bigint"
        self._widen(table)

    @abstractmethod
    def million(self, table: str) -> None:
        """Makes a table of ``MANY`` with a million rows, which only the test that counts them looks at."""

    @abstractmethod
    def _open(self, databases: Databases) -> None: ...

    @abstractmethod
    def _create(self, table: str, columns: Columns) -> None: ...

    @abstractmethod
    def _put(self, table: str, rows: Sequence[Row], ended: Sequence[Row]) -> None: ...

    @abstractmethod
    def _add_column(self, table: str) -> None: ...

    @abstractmethod
    def _widen(self, table: str) -> None: ...


def arrow(rows: Sequence[Row], columns: Columns) -> pa.Table:
    schema = pa.schema([(name, _ARROW[kind]) for name, kind in columns.items()])
    return pa.Table.from_pylist([{name: row.get(name) for name in columns} for row in rows], schema)


def million_rows() -> pa.Table:
    ids = range(1, MILLION + 1)
    return pa.table({"id": ids, "twice": [2 * id for id in ids], "note": [f"note {id}" for id in ids]})
