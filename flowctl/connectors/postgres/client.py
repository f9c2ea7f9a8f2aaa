"""One PostgreSQL database: how psycopg and Spark's JDBC connect to it, and its errors translated to flowctl's.

Credentials are passed to JDBC as options, never in its URL: URLs are logged. Every session uses the same text formats
(ISO dates, UTC, PostgreSQL intervals), so that values read as text are canonical.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from flowctl.connectors.sql import timeouts, waiting
from flowctl.connectors.sql.hindrances import DROP_WHAT_USES_IT, REFERRED_TO
from flowctl.connectors.sql.watch import Line, watched
from flowctl.errors import AccessDenied, FlowctlError, StatementRefused, TableError, TransientError
from flowctl.spec import urls
from flowctl.spec.suggest import did_you_mean

if TYPE_CHECKING:
    import psycopg

# What it warns of (a rollback on a lost connection) is part of an error that is raised, or of none.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

#: Both for psycopg and, as `sessionInitStatement`, for every connection of Spark's executors.
SESSION_SETTINGS: Mapping[str, str] = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "extra_float_digits": "3",  # all digits; from PostgreSQL 12 any number above 0 does this
    "standard_conforming_strings": "on",
    "bytea_output": "hex",
    "array_nulls": "on",
    "xmloption": "content",
    "quote_all_identifiers": "off",  # types are recognized by their names
    "statement_timeout": timeouts.milliseconds(timeouts.STATEMENT),
    "lock_timeout": timeouts.milliseconds(timeouts.LOCK),
    "idle_in_transaction_session_timeout": "0",  # a snapshot's holder and its readers are idle; a commit is not
}
#: PostgreSQL's error for a snapshot whose transaction has ended; the second wording since version 17.
NO_SUCH_SNAPSHOT = re.compile(r'invalid snapshot identifier|snapshot "[^"]*" does not exist')
#: Its error for a materialized view that has no rows yet, and what to do then.
NOT_POPULATED, REFRESH = "has not been populated", "Run REFRESH MATERIALIZED VIEW for it"
#: libpq's settings against network failures.
_NETWORK = {
    "keepalives_idle": timeouts.KEEPALIVE_IDLE,
    "keepalives_interval": timeouts.KEEPALIVE_INTERVAL,
    "keepalives_count": timeouts.KEEPALIVE_COUNT,
    "tcp_user_timeout": timeouts.TCP_UNACKNOWLEDGED * 1000,
}
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_OWN_OPTIONS = ("host", "port", "database", "user", "password", "sslmode")


@dataclass(frozen=True)
class Client:
    """Address and user of the database; ``parameters`` are further libpq parameters, of which the JDBC driver shares
    those for TLS (``ssl…``)."""

    host: str
    port: int
    database: str
    user: str
    password: str | None = field(repr=False)
    parameters: Mapping[str, str]

    @contextmanager
    def connect(self) -> Iterator[psycopg.Connection[Any]]:
        """A psycopg connection in autocommit mode with the session's settings; every error of the driver inside the
        block is raised as flowctl's."""
        import psycopg

        conninfo = self.conninfo()
        with (
            translated(self),
            psycopg.connect(conninfo, autocommit=True) as connection,
            watched(_line(connection, conninfo)) as watch,
        ):
            try:
                yield connection
            except Exception as error:
                if not watch.given_up:
                    raise
                raise self._given_up(watch.given_up) from error

    def greet(self) -> str:
        """As :attr:`flowctl.connectors.base.Connector.greet`."""
        with self.connect() as connection:
            row = connection.execute("SELECT current_setting('server_version'), current_user").fetchone()
            assert row is not None
            return f"PostgreSQL {row[0]}, database {self.database}, as {row[1]}"

    def _given_up(self, why: str) -> FlowctlError:
        place = f"PostgreSQL {self.host}:{self.port}/{self.database}"
        if waiting.is_interrupted():
            return TableError(f"{place}: {why}", hint="Run again to finish it")
        return TransientError(f"{place}: {why}", hint="Check that the server is up and can be reached")

    def own_time_zone(self) -> str:
        """The time zone of sessions that set none, from the server's, the database's and the user's settings."""
        import psycopg

        settings = {name: value for name, value in SESSION_SETTINGS.items() if name != "TimeZone"}
        with translated(self), psycopg.connect(self.conninfo(settings), autocommit=True) as connection:
            row = connection.execute("SHOW TimeZone").fetchone()
        assert row is not None
        return str(row[0])

    def jdbc_url(self) -> str:
        """Contains the settings whose names are not all lower case: Spark converts the names of its properties to lower
        case, and the driver ignores names that it does not know."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        settings = {
            "ApplicationName": "flowctl",
            "connectTimeout": round(timeouts.CONNECT),
            "loginTimeout": round(timeouts.CONNECT),
            "socketTimeout": round(timeouts.EXECUTOR_SILENCE),
            "tcpKeepAlive": "true",
        }
        return f"jdbc:postgresql://{host}:{self.port}/{quote(self.database, safe='')}?{urlencode(settings)}"

    def jdbc_properties(self) -> dict[str, str]:
        """Connection properties of the JDBC driver, credentials among them."""
        given = {"user": self.user, "password": self.password}
        return {
            "driver": "org.postgresql.Driver",
            **{name: value for name, value in given.items() if value is not None},
            **{name: value for name, value in self.parameters.items() if name.startswith("ssl")},
        }

    def conninfo(self, settings: Mapping[str, str] = SESSION_SETTINGS) -> str:
        from psycopg.conninfo import make_conninfo

        connect = timeouts.CONNECT_INTERRUPTED if waiting.is_interrupted() else timeouts.CONNECT
        given = {
            "connect_timeout": str(round(connect)),
            **{name: str(round(value)) for name, value in _NETWORK.items()},
            "application_name": "flowctl",
            **self.parameters,
            "host": self.host,
            "port": str(self.port),
            "dbname": self.database,
            "user": self.user,
            "password": self.password,
            "options": f"{startup_options(settings)} {self.parameters.get('options', '')}".strip(),
        }
        return make_conninfo(**{name: value for name, value in given.items() if value is not None})


def _line(connection: psycopg.Connection[Any], conninfo: str) -> Line:
    from psycopg.pq import TransactionStatus

    return Line(
        conninfo,
        is_busy=lambda: not connection.closed and connection.pgconn.transaction_status == TransactionStatus.ACTIVE,
        cancel=lambda: connection.cancel_safe(timeout=timeouts.CANCEL),
        fileno=lambda: _fileno(connection),
        answers=lambda: _answers(conninfo),
    )


def _fileno(connection: psycopg.Connection[Any]) -> int | None:
    """The driver raises if its owner has closed it meanwhile."""
    import psycopg

    try:
        return connection.fileno()
    except psycopg.Error:
        return None


def _answers(conninfo: str) -> bool:
    """Whether the server responds at all: "too many clients" and "starting up" are answers."""
    import psycopg

    try:
        psycopg.connect(conninfo).close()
    except psycopg.errors.ConnectionTimeout:
        return False
    except psycopg.Error as error:
        return "FATAL" in str(error)
    return True


def startup_options(settings: Mapping[str, str]) -> str:
    """libpq's and JDBC's ``options`` parameter: settings that apply from the first statement on."""
    return " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in settings.items())


def client(options: Mapping[str, Any]) -> Client:
    """Builds a client from a connection's options: a ``url``
    (``postgresql://user:password@host:port/database?sslmode=…``), single options, or both; a single option overrides
    its part of the URL. The option ``options`` holds more libpq parameters."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    url = str(options.get("url", ""))
    if url and (flaw := urls.flaw(url)):
        raise TableError(f"the connection's url cannot be read: {flaw}", hint=_URL_HINT)
    more = options.get("options", {})
    for _, hint in _unknown(name for name, _ in parse_qsl(urlsplit(url).query, keep_blank_values=True)):
        # Its name is not shown: it may be part of a password.
        raise TableError("the connection's url is not a PostgreSQL URL: it has an unknown parameter", hint=hint)
    for name, hint in _unknown(more):
        raise TableError(f"PostgreSQL has no connection parameter `{name}`, which is in `options`", hint=hint)
    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except psycopg.ProgrammingError:  # its text repeats what may be a password
        raise TableError("the connection's url is not a PostgreSQL URL", hint=_URL_HINT) from None
    parts["database"] = parts.pop("dbname", "")
    parts |= {name: str(value) for name, value in more.items()}
    parts |= {name: str(options[name]) for name in _OWN_OPTIONS if options.get(name) is not None}
    if (mode := parts.get("sslmode", SSL_MODES[0])) not in SSL_MODES:
        raise TableError(f"there is no sslmode {mode}", hint=did_you_mean(mode, SSL_MODES, "Use one of "))
    host = parts.pop("host", "localhost")
    if host.startswith("/") or "," in host:
        raise FlowctlError("host must be one host reached by TCP: Spark's JDBC driver knows no other", hint=_URL_HINT)
    port = parts.pop("port", "5432")
    if not re.fullmatch(r"[0-9]{1,5}", port):
        raise TableError("the connection's port is not a number from 1 to 65535", hint=_URL_HINT)
    user = parts.pop("user", "postgres")
    return Client(
        host=host,
        port=int(port),
        database=parts.pop("database") or user,
        user=user,
        password=parts.pop("password", None),
        parameters=parts,
    )


def _unknown(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Parameters that libpq does not know, each with what to do about it."""
    from psycopg.pq import Conninfo

    known = [option.keyword.decode() for option in Conninfo.get_defaults()]
    return (
        (name, did_you_mean(name, known, "Correct or remove it; there are: ")) for name in names if name not in known
    )


_URL_HINT = "Write postgresql://user:${secret:env:NAME}@host:5432/database"


@contextmanager
def translated(client: Client) -> Iterator[None]:
    """Raises psycopg's errors as flowctl's, by what the runner does with them. The server's message is kept without
    values of rows, its DETAIL (values) is not."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise from_driver(error, client) from error


def from_driver(error: psycopg.Error, client: Client) -> FlowctlError:
    from flowctl.connectors.postgres.executors import without_values

    place, told = f"{client.host}:{client.port}/{client.database}", error.diag.message_primary or str(error)
    if not error.diag.statement_position:  # otherwise, what it quotes is in the statement
        told = without_values(error.sqlstate or "", told)
    lines = told.strip().splitlines()
    words = [line for line in lines if not line.startswith("\t")]  # libpq's own advice is indented
    message = f"PostgreSQL {place}: {words[-1] if words else type(error).__name__}"
    state = error.sqlstate or ""
    if not state and any(phrase in str(error) for phrase in _TLS):
        return AccessDenied(message, hint="Set up TLS on the server, or correct `sslmode` and `sslrootcert` here")
    is_refused = not state and any(phrase in message for phrase in _REFUSED)  # libpq gives no code while connecting
    if is_refused or state.startswith(("28", "3D")):
        return AccessDenied(message, hint="Check user, password, database and pg_hba.conf of the connection")
    if state.startswith("42501") and "row-level security" in message:
        return TableError(message, hint=f"ALTER ROLE {client.user} BYPASSRLS, or let the table's owner write it")
    if state.startswith("42501"):
        return TableError(message, hint=f"GRANT what is missing to {client.user}")
    if state == "25006":  # the server gives the same error for both
        why = f"the server is a standby, or default_transaction_read_only is on for {client.user}"
        hint = f"Name the primary server, or: ALTER ROLE {client.user} RESET default_transaction_read_only"
        return TableError(f"{message}: {why}", hint=hint)
    if state == "55000" and "replica identity" in message:
        return TableError(message, hint="ALTER TABLE … REPLICA IDENTITY FULL for this table, or add a primary key")
    if state.startswith(("08", "53", "57P", "40", "55P03", "25P03")) or _is_connection_failure(error, state):
        return TransientError(message, hint="Check that the server is up and can be reached")
    if NO_SUCH_SNAPSHOT.search(message):
        return TransientError(f"{message}: it was lost with the connection that held it", hint="Wait: it starts again")
    if state == "2BP01" or (state == "0A000" and "cannot alter" in message):
        named = (error.diag.message_detail or "").partition("\n")[0]  # an object that uses a column: no value
        return TableError(f"{message} ({named})" if named else message, hint=DROP_WHAT_USES_IT)
    if state == "23503" and "update or delete" in message:
        return TableError(message, hint=REFERRED_TO)
    if state == "23514" and "no partition of relation" in message:
        return TableError(message, hint="Add a partition for such rows: CREATE TABLE … PARTITION OF …")
    if NOT_POPULATED in message:
        return TableError(message, hint=REFRESH)
    kind = StatementRefused if state.startswith(_NOT_UNDERSTOOD) else TableError
    return kind(message, hint=f"Look up SQLSTATE {state} in PostgreSQL's manual" if state else "")


def _is_connection_failure(error: psycopg.Error, state: str) -> bool:
    """Failures to connect have no SQLSTATE: libpq reports them as text only."""
    import psycopg

    return isinstance(error, psycopg.OperationalError) and not state


#: What libpq says of a server without TLS, or whose certificate it does not accept.
_TLS = ("does not support SSL", "root certificate file", "certificate verify failed", "does not match host name")
#: Syntax, names and types; literals that are no values of the type that they are compared with.
_NOT_UNDERSTOOD = ("42", "22P02", "22007")
_REFUSED = ("authentication failed", "no pg_hba.conf entry", "no password supplied", "does not exist")
