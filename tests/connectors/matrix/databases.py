"""Databases as sources of the matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import duckdb

from flowctl.connectors.duckdb.database import SETTINGS
from tests.connectors.matrix.contents import EXTRA, MANY, Columns, Content, Kind, Row
from tests.connectors.matrix.source import MILLION, Source
from tests.e2e.flows import sqlite_script
from tests.e2e.target_place import quoted
from tests.e2e.targets import Databases, sql_place


class DatabaseSource(Source):
    """Changed by statements, as its other users would."""

    types: ClassVar[Mapping[Kind, str]]
    numbers: ClassVar[str]
    retype: ClassVar[str] = "ALTER TABLE {table} ALTER COLUMN small TYPE bigint"

    def _open(self, databases: Databases) -> None:
        self._place = sql_place(self.kind, self.folder, databases)

    @property
    def connection(self) -> Mapping[str, Any]:
        return self._place.options

    def reference(self, table: str) -> str:
        return f"src:{self._place.named(table).object}"

    def million(self, table: str) -> None:
        self.content[table] = Content(dict(MANY))
        self._create(table, MANY)
        self._run(table, f"INSERT INTO {{table}} {self.numbers}")

    def _create(self, table: str, columns: Columns) -> None:
        listed = ", ".join(
            f"{quoted(name)} {self.types[kind]}{' PRIMARY KEY' if name == 'id' else ''}"
            for name, kind in columns.items()
        )
        self._run(table, f"CREATE TABLE {{table}} ({listed})")

    def _put(self, table: str, rows: Sequence[Row], ended: Sequence[Row]) -> None:
        columns = self.content[table].columns
        listed = ", ".join(map(quoted, columns))
        changed = ", ".join(str(row["id"]) for row in (*rows, *ended))
        if changed:
            self._run(table, f"DELETE FROM {{table}} WHERE id IN ({changed})")
        if rows:
            values = ", ".join(
                "(" + ", ".join(self._literal(row.get(name), kind) for name, kind in columns.items()) + ")"
                for row in rows
            )
            self._run(table, f"INSERT INTO {{table}} ({listed}) VALUES {values}")

    def _add_column(self, table: str) -> None:
        self._run(table, f"ALTER TABLE {{table}} ADD COLUMN {EXTRA} {self.types['text']}")

    def _widen(self, table: str) -> None:
        self._run(table, self.retype)

    def _run(self, table: str, script: str) -> None:
        self._place.named(table).run(script)

    def _literal(self, value: Any, kind: Kind) -> str:
        match kind:
            case _ if value is None:
                return "NULL"
            case "bigint" | "int" | "decimal" | "boolean":
                return str(value)
            case "double":
                return repr(value)
            case "binary":
                return self._bytes(value)
            case _:
                return "'" + str(value).replace("'", "''") + "'"

    def _bytes(self, value: bytes) -> str:
        return f"x'{value.hex()}'"


class PostgresSource(DatabaseSource):
    kind = "postgres"
    types = {
        "bigint": "bigint",
        "int": "int",
        "text": "text",
        "decimal": "numeric(18,4)",
        "date": "date",
        "timestamp": "timestamp",
        "boolean": "boolean",
        "double": "double precision",
        "binary": "bytea",
    }
    numbers = f"SELECT i, i * 2, 'note ' || i FROM generate_series(1, {MILLION}) AS n(i)"

    def _bytes(self, value: bytes) -> str:
        return f"'\\x{value.hex()}'"


class MysqlSource(DatabaseSource):
    kind = "mysql"
    types = {
        **PostgresSource.types,
        "text": "text",
        "decimal": "decimal(18,4)",
        "timestamp": "datetime(6)",
        "boolean": "tinyint(1)",
        "binary": "longblob",
    }
    numbers = f"SELECT seq, seq * 2, concat('note ', seq) FROM seq_1_to_{MILLION}"
    retype = "ALTER TABLE {table} MODIFY small bigint"


class SqliteSource(DatabaseSource):
    """Numbers are as wide as they need to be: a table with wider ones is another one under its name."""

    kind = "sqlite"
    types = {**PostgresSource.types, "decimal": "decimal(18,4)", "binary": "blob"}
    numbers = (
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {MILLION}) "
        "SELECT i, i * 2, 'note ' || i FROM n"
    )

    def _widen(self, table: str) -> None:
        columns = self.content[table].columns
        self._run(table, f"ALTER TABLE {{table}} RENAME TO {quoted('narrow ' + table)}")
        self._create(table, columns)
        listed = ", ".join(map(quoted, columns))
        self._run(table, f"INSERT INTO {{table}} ({listed}) SELECT {listed} FROM {quoted('narrow ' + table)}")

    def _run(self, table: str, script: str) -> None:
        path = self.folder / "source.db"
        sqlite_script(path, script.replace("{table}", quoted(table)))

    @property
    def connection(self) -> Mapping[str, Any]:
        return {"type": "sqlite", "path": "source.db"}


class DuckdbSource(DatabaseSource):
    kind = "duckdb"
    types = {**PostgresSource.types, "decimal": "decimal(18,4)", "double": "double", "binary": "blob"}
    numbers = f"SELECT i, i * 2, 'note ' || i FROM range(1, {MILLION + 1}) AS n(i)"

    @property
    def connection(self) -> Mapping[str, Any]:
        return {"type": "duckdb", "path": "source.duckdb"}

    def _run(self, table: str, script: str) -> None:
        with duckdb.connect(self.folder / "source.duckdb", config=SETTINGS) as connection:
            connection.execute(script.replace("{table}", quoted(table)))

    def _bytes(self, value: bytes) -> str:
        return f"unhex('{value.hex()}')"
