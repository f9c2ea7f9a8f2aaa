"""One database of a MySQL or MariaDB server: how PyMySQL connects to it, and its errors translated to flowctl's.

Every session has the same settings, whatever the server's own are: it is in UTC, strict, reads a name in double quotes
as a name, and keeps a zero in a column that numbers rows. Values travel as text (PyMySQL converts only integers), so
that zero dates arrive as they are.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from flowctl.connectors.mysql import tls
from flowctl.connectors.mysql.errors import explained
from flowctl.connectors.mysql.facts import QUERY, Facts, facts_of
from flowctl.connectors.mysql.result_columns import RawRows, keep_raw, widen_buffer
from flowctl.connectors.sql import timeouts, waiting
from flowctl.connectors.sql.watch import Line, watched
from flowctl.errors import FlowctlError, TableError, TransientError
from flowctl.model.table_info import UNKNOWN
from flowctl.spec import urls
from flowctl.sql import dialects

if TYPE_CHECKING:
    import ssl

    import pyarrow as pa

#: Stands for a parameter: no name holds it, and unlike ``%s`` nothing else in a statement looks like it.
MARKER = "\0"
#: Bytes of a file in one packet, at most.
_PACKET_BYTES = 1 << 16
_SETTINGS = (
    "time_zone = '+00:00'",
    "sql_mode = 'ANSI_QUOTES,STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO'",
    "lc_messages = 'en_US'",
    "sql_auto_is_null = 0",
    "default_storage_engine = InnoDB",
    "sql_safe_updates = 0",
    "sql_select_limit = DEFAULT",
    "foreign_key_checks = 1",
    "unique_checks = 1",
    f"lock_wait_timeout = {round(timeouts.LOCK)}",
    f"innodb_lock_wait_timeout = {round(timeouts.COMMIT_LOCK)}",
    f"net_write_timeout = {round(timeouts.EXECUTOR_SILENCE)}",
    f"net_read_timeout = {round(timeouts.EXECUTOR_SILENCE)}",
    f"wait_timeout = {round(timeouts.STATEMENT)}",
    "SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
)
#: Without an index MariaDB compares all pairs of rows, unless it may hash one side.
_MARIADB_SETTINGS = ("join_cache_level = 8", "join_buffer_size = 67108864", "optimizer_switch = 'join_cache_hashed=on'")
_OWN_OPTIONS = ("host", "port", "database", "user", "password", "sslmode")
_URL_HINT = "Write mysql://user:${secret:env:NAME}@host:3306/database"


@dataclass
class MysqlConnection:
    """``driver`` is PyMySQL's connection; ``busy`` while a statement runs."""

    driver: Any
    facts: Facts
    busy: bool = False

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        with self._cursor(statement, parameters) as cursor:
            return max(int(cursor.rowcount), 0)

    def fetch(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Integers, texts (other numbers, dates and times too), bytes and nulls."""
        with self._cursor(statement, parameters) as cursor:
            return list(cursor.fetchall())

    def fields(self, query: str) -> list[Any]:
        """PyMySQL's descriptors of a query's columns."""
        with self._cursor(query, ()) as cursor:
            return list(cursor._result.fields)

    def stream(self, query: str, rows: int) -> Generator[list[pa.Array]]:
        """Yields the columns of at most ``rows`` at a time, all values as texts, bytes and nulls; the connection does
        nothing else meanwhile."""
        from pymysql.cursors import SSCursor

        cursor = self.driver.cursor(SSCursor)
        is_read, decoders = False, self.driver.decoders
        self.busy = True
        try:
            self.driver.decoders = {}
            cursor.execute(query)
            encodings = [encoding for encoding, _ in cursor._result.converters]
            keep_raw(cursor._result)
            while found := self._next_rows(cursor, rows):
                self.busy = False
                yield found.columns(encodings)
                self.busy = True
            is_read = True
        finally:
            self.busy, self.driver.decoders = False, decoders
            if is_read:
                cursor.close()
            else:  # the rest would be read to its end, by the destructors too
                self.driver._force_close()
                if cursor._result is not None:
                    cursor._result.unbuffered_active = False

    def _next_rows(self, cursor: Any, most: int) -> RawRows:
        """The driver reads one row at a time where nothing has arrived, so it waits for it; empty at the end."""
        found = RawRows()
        while not found.is_full(most) and (row := cursor.fetchone()) is not None:
            found.add(row)
            found.add_buffered(self.driver, most)
        return found

    def send(self, statement: str, content: Iterable[bytes]) -> int:
        """Runs a LOAD DATA LOCAL of any file: the server gets ``content``, whatever file it asks for. If ``content``
        raises, the connection is closed, so that the server does not take what it has got for all."""
        from pymysql.constants import COMMAND
        from pymysql.protocol import OKPacketWrapper

        driver = self.driver
        self.busy, is_sent = True, False
        try:
            driver._execute_command(COMMAND.COM_QUERY, statement)
            if not driver._read_packet().is_load_local_packet():
                raise TableError("the server did not ask for the rows to load", hint="Set local_infile = OFF there")
            size = min(_PACKET_BYTES, self.facts.packet_bytes // 2)
            for part in content:
                for at in range(0, len(part), size):
                    driver.write_packet(part[at : at + size])
            is_sent = True
            driver.write_packet(b"")
            return int(OKPacketWrapper(driver._read_packet()).affected_rows)
        finally:
            self.busy = False
            if not is_sent:
                driver._force_close()

    def bound(self, statement: str, parameters: Sequence[Any]) -> str:
        first, *rest = statement.split(MARKER)
        assert len(rest) == len(parameters), "a parameter is missing"
        literals = map(_literal, parameters)
        return first + "".join(literal + part for literal, part in zip(literals, rest, strict=True))

    @contextmanager
    def _cursor(self, statement: str, parameters: Sequence[Any]) -> Iterator[Any]:
        cursor = self.driver.cursor()
        self.busy = True
        try:
            cursor.execute(self.bound(statement, parameters) if parameters else statement)
            yield cursor
        finally:
            self.busy = False
            cursor.close()


def _literal(value: str | int | None) -> str:
    """As read in the sessions' sql_mode, in which a backslash escapes."""
    match value:
        case None:
            return "NULL"
        case int():
            return str(int(value))
        case str():
            return dialects.text(value, "mysql")


@dataclass(frozen=True)
class Client:
    """Address and user of the database; ``tls`` are the options for TLS. ``known`` keeps the facts of the last
    connection."""

    host: str
    port: int
    database: str
    user: str
    password: str = field(repr=False)
    sslmode: str = "prefer"
    tls: Mapping[str, str] = field(default_factory=dict)
    known: dict[str, Facts] = field(default_factory=dict, repr=False, compare=False)

    @property
    def place(self) -> str:
        return f"{self.host}:{self.port}/{self.database}"

    @property
    def facts(self) -> Facts | None:
        return self.known.get("facts")

    @contextmanager
    def connect(self, *, sends_files: bool = False) -> Iterator[MysqlConnection]:
        """A connection in autocommit mode with the session's settings; every error of the driver inside the block is
        raised as flowctl's. ``sends_files``: LOAD DATA LOCAL is possible."""
        with self.translated():
            driver = self._open(sends_files=sends_files)
            try:
                connection = MysqlConnection(driver, self._prepared(driver))
                with watched(self._line(connection)) as watch:
                    try:
                        yield connection
                    except Exception as error:
                        if not watch.given_up:
                            raise
                        raise self._given_up(watch.given_up) from error
            finally:
                driver._force_close()

    @contextmanager
    def translated(self) -> Iterator[None]:
        import pymysql

        try:
            yield
        except pymysql.err.Error as error:
            raise explained(error, self.place, self.user) from error

    def greet(self) -> str:
        """As :attr:`flowctl.connectors.base.Connector.greet`."""
        with self.connect() as connection:
            facts = connection.facts
            return f"{facts.name}, database {facts.database}, as {facts.user}"

    def _open(self, *, sends_files: bool = False) -> Any:
        import pymysql
        from pymysql.constants import CLIENT, FIELD_TYPE
        from pymysql.converters import encoders

        integers = (FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.INT24, FIELD_TYPE.LONG, FIELD_TYPE.LONGLONG)
        context, is_optional = self._tls_context, tls.is_optional(self.sslmode, self.tls)
        connect = timeouts.CONNECT_INTERRUPTED if waiting.is_interrupted() else timeouts.CONNECT
        driver = pymysql.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            database=self.database,
            charset="utf8mb4",
            conv={**encoders, **dict.fromkeys(integers, int)},
            client_flag=CLIENT.FOUND_ROWS,
            connect_timeout=round(connect),
            read_timeout=None,
            autocommit=True,
            local_infile=sends_files,
            program_name="flowctl",
            defer_connect=True,
            **({"ssl_disabled": True} if context is None or is_optional else {"ssl": context}),
        )
        if is_optional:  # the driver has no option for it, and would make a context of its own
            driver.ssl, driver.ctx = True, context
        driver.connect()
        widen_buffer(driver)
        for option, value in (
            (socket.TCP_KEEPIDLE, timeouts.KEEPALIVE_IDLE),
            (socket.TCP_KEEPINTVL, timeouts.KEEPALIVE_INTERVAL),
            (socket.TCP_KEEPCNT, timeouts.KEEPALIVE_COUNT),
            (socket.TCP_USER_TIMEOUT, timeouts.TCP_UNACKNOWLEDGED * 1000),
        ):
            driver._sock.setsockopt(socket.IPPROTO_TCP, option, round(value))
        return driver

    @cached_property
    def _tls_context(self) -> ssl.SSLContext | None:
        return tls.context(self.sslmode, self.tls)

    def _prepared(self, driver: Any) -> Facts:
        with driver.cursor() as cursor:
            cursor.execute(QUERY)
            row = cursor.fetchone()
            is_mariadb = "mariadb" in f"{row[0]} {row[1]}".lower()
            cursor.execute("SET " + ", ".join(_SETTINGS[:-1]))
            cursor.execute(f"SET {_SETTINGS[-1]}")
            cursor.execute(f"SET NAMES utf8mb4 COLLATE {'utf8mb4_nopad_bin' if is_mariadb else 'utf8mb4_0900_bin'}")
            if is_mariadb:
                cursor.execute("SET " + ", ".join(_MARIADB_SETTINGS))
            # MariaDB's server_uid is none: it follows from the hardware address and the port.
            cursor.execute("SHOW VARIABLES LIKE 'server_uuid'")
            ids = dict(cursor.fetchall())
        facts = facts_of(
            row,
            is_mariadb=is_mariadb,
            database=self.database,
            id=ids.get("server_uuid") or f"{UNKNOWN}@{self.host}:{self.port}",
        )
        self.known["facts"] = facts
        return facts

    def _line(self, connection: MysqlConnection) -> Line:
        driver = connection.driver
        return Line(
            self.place,
            is_busy=lambda: connection.busy,
            cancel=lambda: self._cancel(driver.thread_id()),
            fileno=lambda: sock.fileno() if (sock := driver._sock) is not None else None,
            answers=self._answers,
        )

    def _cancel(self, thread: int) -> None:
        driver = self._open()
        try:
            with driver.cursor() as cursor:
                cursor.execute(f"KILL QUERY {thread}")
        finally:
            driver._force_close()

    def _answers(self) -> bool:
        """Whether the server responds at all: it speaks first, if only to refuse."""
        try:
            with socket.create_connection((self.host, self.port), timeouts.CONNECT) as probe:
                probe.settimeout(timeouts.CONNECT)
                return bool(probe.recv(1))
        except ConnectionError:
            return True
        except OSError:
            return False

    def _given_up(self, why: str) -> FlowctlError:
        if waiting.is_interrupted():
            return TableError(f"MySQL {self.place}: {why}", hint="Run again to finish it")
        return TransientError(f"MySQL {self.place}: {why}", hint="Check that the server is up and can be reached")


def client(options: Mapping[str, Any]) -> Client:
    """Builds a client from a connection's options: a ``url``
    (``mysql://user:password@host:port/database?sslmode=…``), or single options."""
    parts: dict[str, str] = {}
    url = str(options.get("url", ""))
    if url:
        if flaw := urls.flaw(url):
            raise TableError(f"the connection's url cannot be read: {flaw}", hint=_URL_HINT)
        split = urlsplit(url)
        found: dict[str, Callable[[], Any]] = {
            "host": lambda: split.hostname,
            "port": lambda: split.port,
            "user": lambda: unquote(split.username or ""),
            "password": lambda: unquote(split.password or ""),
            "database": lambda: unquote(split.path.strip("/")),
        }
        parts = {name: str(value) for name, get in found.items() if (value := get())}
        parts |= {name.replace("-", "_"): value for name, value in parse_qsl(split.query)}
    parts |= {name: str(value) for name, value in options.get("options", {}).items()}
    parts |= {name: str(options[name]) for name in _OWN_OPTIONS if options.get(name) is not None}
    mode = parts.pop("sslmode", parts.pop("ssl_mode", "prefer")).lower().replace("_", "-")
    known = {name: parts.pop(name, "") for name in ("host", "port", "database", "user", "password")}
    if not re.fullmatch(r"[0-9]{0,5}", known["port"]):
        raise TableError("the connection's port is not a number from 1 to 65535", hint=_URL_HINT)
    if mode not in _MODES:
        raise TableError(f"there is no sslmode {mode}", hint=f"Use one of {', '.join(_MODES)}")
    if unknown := sorted({*parts} - {"ssl_ca", "ssl_cert", "ssl_key"}):
        raise TableError(f"there is no option {unknown[0]}", hint="Use sslmode, ssl_ca, ssl_cert and ssl_key only")
    if not known["database"]:
        raise TableError("the connection names no database", hint=_URL_HINT)
    return Client(
        host=known["host"] or "localhost",
        port=int(known["port"] or 3306),
        database=known["database"],
        user=known["user"] or "root",
        password=known["password"],
        sslmode=mode,
        tls=parts,
    )


_MODES = ("disable", "prefer", "require", "verify-ca", "verify-full")
