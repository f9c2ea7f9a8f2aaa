"""One table whose columns have hostile names, in each source; its rows over time; and what a target must then hold."""

from __future__ import annotations

import csv
import datetime as dt
import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from psycopg import sql

from tests import engines
from tests.connectors.hostile import TEXTS
from tests.connectors.iceberg import foreign_tables
from tests.e2e.targets import Databases, place, quoted, sql_place

#: Roles need these, and every target takes them, but for dots in Iceberg: text, text, an integer, a timestamp.
KEY = (TEXTS["dots"], TEXTS["backtick"])
CURSOR, EVENT = TEXTS["single quote"], TEXTS["backslash"]
#: Two names that are one to SQLite and to Spark are a test of their own.
NAMES = [name for label, name in TEXTS.items() if label != "upper case"]
PLAIN = [name for name in NAMES if name not in (*KEY, CURSOR, EVENT)]

Row = dict[str, Any]


def row(number: int, version: int, names: Sequence[str]) -> Row:
    """The row ``number`` in its ``version``: each value names its column."""
    texts = {name: f"{name} of {number} in version {version}" for name in PLAIN if name in names}
    keys = {name: f"{name} of {number}" for name in KEY}
    return {**keys, CURSOR: 10 * version + number, EVENT: dt.datetime(2026, 1, version, number), **texts}


def before(names: Sequence[str]) -> list[Row]:
    return [row(1, 1, names), row(2, 1, names)]


def came(names: Sequence[str]) -> list[Row]:
    """A row in its next version, and a new one."""
    return [row(2, 2, names), row(3, 2, names)]


def expected(mode: str, names: Sequence[str], *, keeps_all: bool) -> list[Row]:
    """``keeps_all``: the source has each version of a row (files), not only the last."""
    first, second = before(names), came(names)
    if mode in ("append", "scd2") or (mode == "truncate" and keeps_all):
        return first + second
    return [first[0], *second]


def plain(rows: Sequence[Sequence[Any]]) -> list[tuple[str, ...]]:
    """As texts, in one order: SQLite has no timestamps, and no order is asked for."""
    return sorted(tuple(str(value).replace("T", " ").removesuffix(".000000") for value in row) for row in rows)


class PostgresSource:
    """``many`` or few rows is the test's business; names may be 63 bytes long. ``address`` is what `flowctl init`
    takes."""

    names = [name for name in NAMES if len(name.encode()) <= 63]
    kinds: Mapping[str, str] = {}
    hints: Mapping[str, Any] = {}
    keeps_all = False
    takes_cursor = True

    def __init__(self, databases: Databases, folder: Path) -> None:
        there = place("postgres", folder, databases).named("odd")
        self.connection, self.reference, self._url = there.options, f"src:{there.object}", there.database
        self.address = there.database
        listed = sql.SQL(", ").join(sql.SQL("{} " + _type(name, "bigint")).format(_name(name)) for name in self.names)  # type: ignore[arg-type]
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE TABLE odd ({})").format(listed))
        self.put(before(self.names))

    def put(self, rows: Sequence[Row], *, adds: bool = False) -> None:
        """In place of earlier versions, unless it ``adds``."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            for one in () if adds else rows:
                number = sql.Literal(one[KEY[0]])
                connection.execute(sql.SQL("DELETE FROM odd WHERE {} = {}").format(_name(KEY[0]), number))
            with connection.cursor().copy("COPY odd FROM STDIN") as copy:
                for one in rows:
                    copy.write_row([one[name] for name in self.names])


class PartsOfPostgresSource(PostgresSource):
    """Few rows too, but the engine reads them."""

    hints = {"splits": 2, "split_by": CURSOR}


class SqliteSource:
    type = "sqlite"
    moments_are_texts = True
    names = NAMES
    kinds: Mapping[str, str] = {}
    hints: Mapping[str, Any] = {}
    keeps_all = False
    takes_cursor = True

    def __init__(self, _databases: Databases, folder: Path) -> None:
        self.address = f"source.{self.type}"
        self.connection = {"type": self.type, "path": self.address}
        self.reference = "src:odd"
        self._path = folder / f"source.{self.type}"
        listed = ", ".join(f"{quoted(name)} {_type(name, 'BIGINT')}" for name in self.names)
        self._run(f"CREATE TABLE odd ({listed})")
        self.put(before(self.names))

    def put(self, rows: Sequence[Row], *, adds: bool = False) -> None:
        for one in rows:
            if not adds:
                self._run(f"DELETE FROM odd WHERE {quoted(KEY[0])} = ?", [one[KEY[0]]])
            are_texts = {EVENT} if self.moments_are_texts else ()
            values = [str(one[name]) if name in are_texts else one[name] for name in self.names]
            self._run(f"INSERT INTO odd VALUES ({', '.join('?' * len(values))})", values)

    def _run(self, statement: str, values: Sequence[Any] = ()) -> None:
        connection = sqlite3.connect(self._path)
        with connection:
            connection.execute(statement, values)
        connection.close()


class DuckdbSource(SqliteSource):
    type = "duckdb"
    moments_are_texts = False

    def _run(self, statement: str, values: Sequence[Any] = ()) -> None:
        with duckdb.connect(self._path) as connection:
            connection.execute(statement, list(values))


class MysqlSource:
    """Names have 64 characters at most."""

    kinds: Mapping[str, str] = {}
    hints: Mapping[str, Any] = {}
    keeps_all = False
    takes_cursor = True

    def __init__(self, databases: Databases, folder: Path) -> None:
        self._there = sql_place("mysql", folder, databases).named("odd")
        self.connection, self.reference = self._there.options, f"src:{self._there.object}"
        self.address = self._there.database
        self.names = [name for name in NAMES if not self._there.refuses_column(name)]
        listed = ", ".join(f"{quoted(name)} {_type(name, 'bigint', 'datetime(6)')}" for name in self.names)
        self._there.run(f"CREATE TABLE {{table}} ({listed})")
        self.put(before(self.names))

    def put(self, rows: Sequence[Row], *, adds: bool = False) -> None:
        for one in rows:
            if not adds:
                self._there.run(f"DELETE FROM {{table}} WHERE {quoted(KEY[0])} = {_literal(one[KEY[0]])}")
            values = ", ".join(_literal(str(one[name])) for name in self.names)
            self._there.run(f"INSERT INTO {{table}} VALUES ({values})")


class FilesSource:
    """One file for each batch, the first under one hostile name, the second under another; and beside them, empty but
    for a header, one of every name that a file can have."""

    names = NAMES
    hints: Mapping[str, Any] = {}
    kinds: Mapping[str, str] = {CURSOR: "bigint", EVENT: "timestamp_ntz"}
    keeps_all = True
    takes_cursor = False

    def __init__(self, _databases: Databases, folder: Path) -> None:
        self.address = "in"
        self.connection = {"type": "files", "path": "."}
        self.reference = "src:in/*.csv"
        self._folder = folder / "in"
        self._folder.mkdir()
        for name in NAMES:
            if "/" not in name and len(name.encode()) < 200 and not _is_refused_on_connect(name):
                self._write(f"{name} empty", [])
        self.put(before(self.names))

    def put(self, rows: Sequence[Row], *, adds: bool = True) -> None:
        """A file replaces no other."""
        del adds
        for one in rows:
            label = (TEXTS["percent"], TEXTS["newline"], TEXTS["pattern"], TEXTS["emoji"])[one[CURSOR] % 4]
            self._write(f"{label} {one[CURSOR]}", [one])

    def _write(self, name: str, rows: Sequence[Row]) -> None:
        with (self._folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")  # Spark Connect refuses others
            writer.writerow(self.names)
            writer.writerows([[one[name] for name in self.names] for one in rows])


class DeltaSource:
    """Without column mapping, Delta's names have no blanks, nor some other signs. Rows are replaced with their file, as
    many writers do: the difference of both versions is read."""

    kinds: Mapping[str, str] = {}
    hints: Mapping[str, Any] = {}
    keeps_all = False
    takes_cursor = False

    def __init__(self, _databases: Databases, folder: Path) -> None:
        self.names = [name for name in NAMES if not place("delta", folder).refuses_column(name)]
        self.connection, self.reference, self.address = {"type": "delta", "path": "source"}, "src:odd", "delta:source"
        self._path = folder / "source" / "odd"
        self.put(before(self.names), adds=True)

    def put(self, rows: Sequence[Row], *, adds: bool = False) -> None:
        new = pa.table({name: [one[name] for one in rows] for name in self.names}, self._schema())
        if adds or not rows:
            write_deltalake(str(self._path), new, mode="append")
            return
        there = DeltaTable(str(self._path)).to_pyarrow_table().cast(self._schema())
        keys = new.column(KEY[0])
        kept = there.filter(pc.invert(pc.is_in(there.column(KEY[0]), keys.combine_chunks())))
        write_deltalake(str(self._path), pa.concat_tables([kept, new]), mode="overwrite")

    def _schema(self) -> pa.Schema:
        kinds = {CURSOR: pa.int64(), EVENT: pa.timestamp("us")}
        return pa.schema([(name, kinds.get(name, pa.string())) for name in self.names])


class IcebergSource:
    """Rows are replaced with their file, as by an engine that copies on write: both versions' files are compared."""

    kinds: Mapping[str, str] = {}
    hints: Mapping[str, Any] = {}
    keeps_all = False
    takes_cursor = False

    def __init__(self, _databases: Databases, folder: Path) -> None:
        self.names = NAMES
        self.connection = {"type": "iceberg", **foreign_tables.connection(folder)}
        self.reference, self.address = "src:odd", json.dumps(self.connection)
        catalog = foreign_tables.catalog_in(folder)
        self._table = catalog.create_table(f"{foreign_tables.NAMESPACE}.odd", schema=self._schema())
        self.put(before(self.names), adds=True)

    def put(self, rows: Sequence[Row], *, adds: bool = False) -> None:
        new = pa.table({name: [one[name] for one in rows] for name in self.names}, self._schema())
        if adds or not rows:
            self._table.append(new)
            return
        there = self._table.scan().to_arrow().cast(self._schema())
        kept = there.filter(pc.invert(pc.is_in(there.column(KEY[0]), new.column(KEY[0]).combine_chunks())))
        self._table.overwrite(pa.concat_tables([kept, new]))

    def _schema(self) -> pa.Schema:
        kinds = {CURSOR: pa.int64(), EVENT: pa.timestamp("us")}
        return pa.schema([(name, kinds.get(name, pa.string())) for name in self.names])


def _is_refused_on_connect(name: str) -> bool:
    """A colon beside signs of a pattern; files/test_source.py has the refusal."""
    return engines.UNDER_TEST == "connect" and ":" in name and any(sign in name for sign in "\\{}[]*?")


SOURCES = {
    "postgres": PostgresSource,
    "parts": PartsOfPostgresSource,
    "sqlite": SqliteSource,
    "duckdb": DuckdbSource,
    "mysql": MysqlSource,
    "files": FilesSource,
    "delta": DeltaSource,
    "iceberg": IcebergSource,
}


def _name(name: str) -> sql.Identifier:
    return sql.Identifier(name)


def _type(name: str, integer: str, timestamp: str = "timestamp") -> str:
    return {CURSOR: integer, EVENT: timestamp}.get(name, "text")


def _literal(text: str) -> str:
    return "x'" + text.encode().hex() + "'"
