"""The databases whose changes are streamed, each as somebody else works in it: a class for each kind, chosen by URL."""

from __future__ import annotations

import re
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

import psycopg
import pymysql

#: Table, operation (as in `_op`) and the row's key `id` after the change.
KeyChange = tuple[str, str, str]


class Session(Protocol):
    """A connection with a transaction open."""

    def execute(self, statement: Any, values: Sequence[Any] = ()) -> Any: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...


class Oracle(ABC):
    """What the server's own tool says of all changes since it was made."""

    @abstractmethod
    def changes(self) -> list[KeyChange]: ...

    def end(self) -> None:
        """Removes what it has made in the server."""


class Database(ABC):
    """``prefix`` stands before a table's name in `from`; ``lost`` are the errors of a connection that is gone;
    ``secret`` is the name of its password in the environment, and the password; ``one_moment`` begins a transaction
    that shows one moment."""

    url: str
    prefix: str
    lost: tuple[type[Exception], ...]
    secret: tuple[str, str]
    one_moment: str

    @property
    @abstractmethod
    def connection(self) -> str:
        """Its entry in a spec."""

    @abstractmethod
    def session(self) -> Any:
        """A context with a :class:`Session`; commits at its end."""

    @abstractmethod
    def run(self, *statements: str) -> list[Any]:
        """In autocommit mode; the rows of the last one."""

    @abstractmethod
    def flush(self) -> None:
        """Everything that has committed is what a plan calls the end of the log."""

    @abstractmethod
    def columns(self, table: str) -> list[str]: ...

    @abstractmethod
    def oracle(self) -> Oracle: ...

    @abstractmethod
    def cut_connections(self) -> None:
        """Those of flowctl."""

    @abstractmethod
    def dw(self) -> tuple[str, str]:
        """A target in the same server: its entry in a spec, and the pattern of its tables."""

    @abstractmethod
    def within_dw(self, table: str) -> str:
        """The name of a table there, for statements."""


def database_of(url: str) -> Database:
    return PostgresDatabase(url) if url.startswith("postgres") else MysqlDatabase(url)


@dataclass(frozen=True)
class PostgresDatabase(Database):
    url: str
    prefix = "public."
    lost = (psycopg.OperationalError,)
    secret = ("PG_PASSWORD", "etl-secret")
    one_moment = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"

    @property
    def connection(self) -> str:
        return f'{{type: postgres, url: "{_without_secret(self)}"}}'

    def session(self) -> Any:
        return psycopg.connect(self.url)

    def run(self, *statements: str) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            for statement in statements:
                cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def flush(self) -> None:
        self.run("SET synchronous_commit = on", "SELECT pg_logical_emit_message(true, 'flowctl', '')")

    def columns(self, table: str) -> list[str]:
        found = self.run(
            f"SELECT attname FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0"
            " AND NOT attisdropped ORDER BY attnum"
        )
        return [name for (name,) in found]

    def oracle(self) -> Oracle:
        self.run("SELECT pg_create_logical_replication_slot('oracle', 'test_decoding')")
        return _TestDecoding(self)

    def cut_connections(self) -> None:
        self.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'flowctl' AND pid <> pg_backend_pid()"
        )

    def dw(self) -> tuple[str, str]:
        return self.connection, "dw:dw.${table}"

    def within_dw(self, table: str) -> str:
        return f'dw."{table}"'


@dataclass(frozen=True)
class _TestDecoding(Oracle):
    """A second slot, which began at the same time, and another decoder."""

    database: PostgresDatabase

    def changes(self) -> list[KeyChange]:
        query = "SELECT data FROM pg_logical_slot_peek_changes('oracle', NULL, NULL, 'skip-empty-xacts', '1')"
        return [change for (line,) in self.database.run(query) for change in _decoded(line)]

    def end(self) -> None:
        self.database.run("SELECT pg_drop_replication_slot('oracle')")


def _decoded(line: str) -> list[KeyChange]:
    found = re.match(r"table public\.([\w, .]+): (INSERT|UPDATE|DELETE|TRUNCATE): (.*)", line, re.DOTALL)
    if not found:
        return []
    if found[2] == "TRUNCATE":
        return [(name.strip().removeprefix("public."), "T", "") for name in found[1].split(",")]
    row = found[3].split("new-tuple: ")[-1]
    key = re.search(r"\bid\[[^]]+\]:(?:'((?:[^']|'')*)'|(\S+))", row)
    return [(found[1], found[2][0], key[1] or key[2])] if key else []


class MysqlSession:
    """PyMySQL's connection with psycopg's methods."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, statement: Any, values: Sequence[Any] = ()) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(statement, tuple(values) or None)
        return cursor

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()


@dataclass(frozen=True)
class MysqlDatabase(Database):
    url: str
    prefix = ""
    lost = (pymysql.err.OperationalError, pymysql.err.InterfaceError)
    secret = ("MY_PASSWORD", "my-etl-secret")
    one_moment = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"

    @property
    def connection(self) -> str:
        return f'{{type: mysql, url: "{_without_secret(self)}"}}'

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    @contextmanager
    def session(self) -> Iterator[MysqlSession]:
        connection = self._connect(autocommit=False)
        try:
            yield MysqlSession(connection)
            connection.commit()
        finally:
            connection.close()

    def run(self, *statements: str) -> list[Any]:
        connection = self._connect(autocommit=True)
        try:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())
        finally:
            connection.close()

    def flush(self) -> None:
        """A transaction is in the log before its commit returns."""

    def columns(self, table: str) -> list[str]:
        found = self.run(
            "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()"
            f" AND TABLE_NAME = '{table}' ORDER BY ORDINAL_POSITION"
        )
        return [name for (name,) in found]

    def oracle(self) -> Oracle:
        ((file, offset, *_),) = self.run("SHOW MASTER STATUS")
        return _BinlogTool(self, file, offset)

    def cut_connections(self) -> None:
        """A walk over all connections of the user but this one; the workload's are cut, too."""
        found = self.run("SELECT ID FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() AND USER = 'etl'")
        for (number,) in found:
            try:
                self.run(f"KILL {number}")
            except pymysql.err.OperationalError as error:
                if error.args[0] != 1094:  # it has ended by itself
                    raise

    def dw(self) -> tuple[str, str]:
        self.run(f"CREATE DATABASE IF NOT EXISTS `{self.name}_dw`")
        return self.connection, f"dw:{self.name}_dw.${{table}}"

    def within_dw(self, table: str) -> str:
        return f"`{self.name}_dw`.`{table}`"

    def _connect(self, *, autocommit: bool) -> Any:
        there = urlsplit(self.url)
        return pymysql.connect(
            host=there.hostname,
            port=there.port or 3306,
            user=there.username,
            password=there.password or "",
            database=self.name,
            charset="utf8mb4",
            init_command="SET sql_mode = 'ANSI_QUOTES,STRICT_ALL_TABLES', time_zone = '+00:00',"
            " tx_isolation = 'READ-COMMITTED', innodb_lock_wait_timeout = 5",
            autocommit=autocommit,
        )


@dataclass(frozen=True)
class _BinlogTool(Oracle):
    """MariaDB's `mariadb-binlog`, which decodes the log by itself, from a place on."""

    database: MysqlDatabase
    file: str
    offset: int
    _command: tuple[str, ...] = field(
        default=("mariadb-binlog", "--no-defaults", "--read-from-remote-server", "-v", "--base64-output=decode-rows")
    )

    def changes(self) -> list[KeyChange]:
        there = urlsplit(self.database.url)
        place = [f"--start-position={self.offset}", "--to-last-log", self.file]
        login = [f"--host={there.hostname}", f"--port={there.port}", f"--user={there.username}"]
        done = subprocess.run(
            [*self._command, *login, f"--password={there.password}", *place], capture_output=True, check=True
        )
        return list(self._decoded(done.stdout.decode("utf-8", "replace")))

    def _decoded(self, text: str) -> Iterator[KeyChange]:
        table, op, is_after = "", "", False
        for line in text.splitlines():
            if found := re.match(r"### (INSERT INTO|UPDATE|DELETE FROM) `([^`]+)`\.`([^`]+)`", line):
                table, op = (found[3] if found[2] == self.database.name else ""), found[1][0]
                is_after = op != "U"
            elif line == "### SET":
                is_after = True
            elif is_after and table and (found := re.match(r"###   @1='?(.*?)'?$", line)):
                yield table, op, found[1]
                is_after = False
            elif found := re.match(r"(?i)truncate (?:table )?`?(\w+)`?$", line):
                yield found[1], "T", ""


def _without_secret(database: Database) -> str:
    name, value = database.secret
    return database.url.replace(value, f"${{secret:env:{name}}}")
