"""The kinds of targets that tests of whole flows know: one class each, and nothing else in a test knows which it has.

A place is a table of one kind: its connection in the spec, and its content as somebody else sees it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self, get_args

from flowctl.engine.session import reachable
from flowctl.model.mode import Mode
from flowctl.spec.schema import target_modes
from tests import engines
from tests.conftest import EMBEDDED
from tests.e2e.flows import (
    Row,
    delta_query,
    duckdb_rows,
    files_query,
    iceberg_query,
    mysql_rows,
    newest_manifest,
    postgres_rows,
    sqlite_rows,
    sqlite_script,
)
from tests.e2e.target_place import TargetPlace, quoted

Kind = str
#: Gives the URL of an empty database by the name of its fixture, whose server starts with the first question.
Databases = Callable[[str], str]


@dataclass(frozen=True)
class DeltaPlace(TargetPlace):
    kind = "delta"
    #: The table is there, empty, once its commit begins.
    before_table = "after_intent"
    lake: str = "lake"

    @property
    def options(self) -> dict[str, str]:
        return {"type": "delta", "path": self.lake}

    @property
    def path(self) -> Path:
        return self.folder / self.lake / self.name

    @property
    def reference(self) -> str:
        return self.name

    def apart(self) -> Self:
        return replace(self, lake="pond")

    def fetch(self, query: str) -> list[Row]:
        return delta_query(self.path, query.replace("{table}", "t"))

    def columns(self) -> list[str]:
        from deltalake import DeltaTable

        return [field.name for field in DeltaTable(str(self.path)).schema().fields]

    def refuses_column(self, name: str) -> bool:
        return any(letter in name for letter in " ,;{}()\n\t=")

    def refuses_table(self, name: str) -> bool:
        """deltalake takes a backslash for a slash, and decodes what looks encoded."""
        return any(sign in name for sign in ("\\", "\n", "\r", "\t", "%25"))

    def is_one_name(self, name: str, *, has_jvm: bool) -> bool:
        """Patterns and folders are refused, or meant, in a path, which has no blanks at its ends; Sail refuses what it
        would encode."""
        return not set(name) & set("*?/") and name == name.strip() and (has_jvm or reachable(name))


class SqlPlace(TargetPlace):
    """``given`` is the one option by which a connection opens it without a spec."""

    @property
    @abstractmethod
    def given(self) -> dict[str, str]: ...

    @abstractmethod
    def run(self, script: str) -> None:
        """Statements of somebody else about ``{table}``."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The table's name as a connector gets it."""
        return (self.name,)

    @property
    def sql(self) -> str:
        """The table's name in SQL."""
        return ".".join(map(quoted, self.parts))


@dataclass(frozen=True)
class FilePlace(SqlPlace):
    """``prefix`` stands before the file's name."""

    file: ClassVar[str]
    prefix: str = ""

    @property
    def options(self) -> dict[str, str]:
        return {"type": self.kind, "path": self.prefix + self.file}

    def apart(self) -> Self:
        return replace(self, prefix="another-")

    @property
    def given(self) -> dict[str, str]:
        return {"path": str(self.path)}

    @property
    def path(self) -> Path:
        return self.folder / (self.prefix + self.file)


class SqlitePlace(FilePlace):
    kind, file = "sqlite", "target.db"

    def fetch(self, query: str) -> list[Row]:
        return sqlite_rows(self.path, query.replace("{table}", self.sql))

    def run(self, script: str) -> None:
        sqlite_script(self.path, script.replace("{table}", self.sql))

    def columns(self) -> list[str]:
        return [str(name) for _, name in self.fetch(f"SELECT cid, name FROM pragma_table_info('{self.name}')")]

    def joined(self, text: str, column: str) -> str:
        return f"'{text}' || {quoted(column)}"


class DuckdbPlace(FilePlace):
    kind, file = "duckdb", "target.duckdb"

    def fetch(self, query: str) -> list[Row]:
        return duckdb_rows(self.path, query.replace("{table}", self.sql))

    def run(self, script: str) -> None:
        self.fetch(script)

    def columns(self) -> list[str]:
        query = f"SELECT column_index, column_name FROM duckdb_columns() WHERE table_name = '{self.name}'"
        return [str(name) for _, name in self.fetch(query)]


@dataclass(frozen=True)
class PostgresPlace(SqlPlace):
    kind, fixture = "postgres", "postgres_database"
    env: ClassVar[Mapping[str, str]] = {"PG_PASSWORD": "etl-secret"}
    schema: str = "public"

    @property
    def options(self) -> dict[str, str]:
        return {"type": "postgres", "url": self.database.replace("etl-secret", "${secret:env:PG_PASSWORD}")}

    @property
    def given(self) -> dict[str, str]:
        return {"url": self.database}

    @property
    def object(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def reference(self) -> str:
        return f"{self.schema}.{quoted(self.name)}"

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.schema, self.name)

    def apart(self) -> Self:
        return replace(self, schema="copies")

    def fetch(self, query: str) -> list[Row]:
        return postgres_rows(self.database, query.replace("{table}", self.sql))

    def run(self, script: str) -> None:
        import psycopg

        with psycopg.connect(self.database, autocommit=True) as connection:
            connection.execute(script.replace("{table}", self.sql).encode())

    def columns(self) -> list[str]:
        query = f"SELECT attnum, attname FROM pg_attribute WHERE attrelid = '{self.sql}'::regclass AND attnum > 0"
        return [str(name) for _, name in self.fetch(f"{query} AND NOT attisdropped")]

    def everything(self) -> list[Row]:
        return self.fetch(
            "SELECT nspname, relname, relfilenode FROM pg_namespace AS n LEFT JOIN pg_class ON relnamespace = n.oid "
            "WHERE nspname !~ '^pg_'"
        )

    def refuses_column(self, name: str) -> bool:
        return len(name.encode()) > 63

    def refuses_table(self, name: str) -> bool:
        return self.refuses_column(name)


class MysqlPlace(SqlPlace):
    kind, fixture = "mysql", "mysql_database"
    #: The table is there, empty, before its commit begins.
    before_table = "after_intent"
    env: ClassVar[Mapping[str, str]] = {"MYSQL_PASSWORD": "my-etl-secret"}

    @property
    def options(self) -> dict[str, str]:
        return {"type": "mysql", "url": self.database.replace("my-etl-secret", "${secret:env:MYSQL_PASSWORD}")}

    @property
    def given(self) -> dict[str, str]:
        return {"url": self.database}

    def fetch(self, query: str) -> list[Row]:
        return mysql_rows(self.database, query.replace("{table}", self.sql))

    def run(self, script: str) -> None:
        mysql_rows(self.database, script.replace("{table}", self.sql))

    def joined(self, text: str, column: str) -> str:
        return f"concat('{text}', {quoted(column)})"

    def columns(self) -> list[str]:
        query = "SELECT ORDINAL_POSITION, COLUMN_NAME FROM information_schema.COLUMNS"
        rows = self.fetch(f"{query} WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{self.name}'")
        return [str(name) for _, name in sorted(rows)]

    def everything(self) -> list[Row]:
        return self.fetch(
            "SELECT TABLE_NAME, CREATE_TIME, UPDATE_TIME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()"
        )

    def refuses_column(self, name: str) -> bool:
        return len(name) > 64 or any(ord(letter) > 0xFFFF for letter in name) or name.endswith(" ")

    def refuses_table(self, name: str) -> bool:
        is_long = sum(1 if letter.isascii() and letter.isalnum() else 5 for letter in name) > 250
        return is_long or self.refuses_column(name)


class FolderPlace(TargetPlace):
    """A folder of Parquet files, read as its manifest says."""

    kind = "files"

    @property
    def options(self) -> dict[str, str]:
        return {"type": "files", "path": "files"}

    @property
    def path(self) -> Path:
        return self.folder / "files" / self.name

    @property
    def reference(self) -> str:
        return self.name

    def fetch(self, query: str) -> list[Row]:
        return files_query(self.path, query.replace("{table}", "t"))

    def columns(self) -> list[str]:
        return [str(column["name"]) for column in newest_manifest(self.path)["columns"]]

    def refuses_table(self, name: str) -> bool:
        return name[0] in "_." or bool(set(name) & set("\\{}[]")) or not name.isprintable()

    def is_one_name(self, name: str, *, has_jvm: bool) -> bool:
        """As a path in a spec."""
        return not set(name) & set("*?/") and name == name.strip()


@dataclass(frozen=True)
class IcebergPlace(TargetPlace):
    """A table of a Hadoop catalog, read by DuckDB from its newest metadata."""

    kind = "iceberg"
    warehouse: str = "warehouse"

    @property
    def options(self) -> dict[str, str]:
        return {"type": "iceberg", "warehouse": self.warehouse}

    @property
    def path(self) -> Path:
        return self.folder / self.warehouse / "default" / self.name

    def apart(self) -> Self:
        return replace(self, warehouse="pond")

    def fetch(self, query: str) -> list[Row]:
        return iceberg_query(self.path, query)

    def columns(self) -> list[str]:
        return [str(column[0]) for column in self.fetch("DESCRIBE SELECT * FROM {table}")]

    def refuses_column(self, name: str) -> bool:
        return "." in name

    def refuses_table(self, name: str) -> bool:
        has_others = any(sign in "/\\" or ord(sign) < 32 or ord(sign) == 127 for sign in name)
        return has_others or name in (".", "..") or len(name.encode()) > 200 or name.startswith("_flowctl")


_PLACES: tuple[type[TargetPlace], ...] = (
    DeltaPlace,
    FolderPlace,
    IcebergPlace,
    SqlitePlace,
    DuckdbPlace,
    PostgresPlace,
    MysqlPlace,
)
_BY_KIND = {place.kind: place for place in _PLACES}
KINDS: tuple[Kind, ...] = tuple(_BY_KIND)


def kinds_with(*modes: str) -> tuple[Kind, ...]:
    """Those that can take all of ``modes``."""
    return tuple(kind for kind in KINDS if set(modes) <= set(target_modes(kind)))


#: Those that the engine writes. This process writes all others, whatever the engine is.
BY_ENGINE: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind not in EMBEDDED)
#: Targets of what runs on each engine and takes hours: all on one of them, and on Spark those that it writes.
OF_ENGINE: tuple[Kind, ...] = KINDS if engines.UNDER_TEST == "sail" else BY_ENGINE


def in_turn(variants: Iterable[str], kinds: Sequence[Kind] = KINDS, turn: int = 0) -> list[tuple[Kind, str]]:
    """For what takes long: pairs of each kind with one of ``variants``, in turn, and of what the engine writes with all
    of them. Of variants that are modes, those that the target can take."""
    pairs = []
    for number, kind in enumerate(kinds, turn):
        able = [one for one in variants if one not in get_args(Mode) or one in target_modes(kind)]
        pairs += [(kind, one) for one in (able if kind in BY_ENGINE else [able[number % len(able)]])]
    return pairs


#: Databases: each of their tables is read and changed by SQL.
SQL_KINDS: tuple[Kind, ...] = tuple(place.kind for place in _PLACES if issubclass(place, SqlPlace))
#: What the connections of all kinds refer to.
ENV = {name: value for place in _PLACES for name, value in place.env.items()}


def place(kind: Kind, folder: Path, databases: Databases | None = None) -> TargetPlace:
    """``databases`` may be left out for what is in the folder."""
    made = _BY_KIND[kind]
    return made(folder, databases(made.fixture) if made.fixture and databases else "")


def sql_place(kind: Kind, folder: Path, databases: Databases | None = None) -> SqlPlace:
    made = place(kind, folder, databases)
    assert isinstance(made, SqlPlace)
    return made
