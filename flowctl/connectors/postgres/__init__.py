"""PostgreSQL 14 and later: a direct source (Spark's executors read it through JDBC) and a transactional target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from flowctl.connectors.base import Capabilities, Connector, OpenContext
from flowctl.connectors.postgres.types import stored
from flowctl.connectors.source import SourceCapabilities
from flowctl.connectors.sql.address import database_place, named_places
from flowctl.connectors.target import TargetCapabilities
from flowctl.model.table_info import ObjectName
from flowctl.model.types import is_wider
from flowctl.spec.spec import Connection


def _refuses(name: str) -> str | None:
    if "\0" in name:
        return "PostgreSQL's names hold no NUL character"
    if len(name.encode()) > _NAME_BYTES:
        return f"PostgreSQL truncates names to {_NAME_BYTES} bytes"
    return None


#: The server truncates longer names without an error. Source: PostgreSQL's `NAMEDATALEN` - 1.
_NAME_BYTES = 63
#: Its binary form is the same in every version that flowctl reads; texts are converted by the servers.
UNDECODED = ("binary COPY",)
CAPABILITIES = Capabilities(
    source=SourceCapabilities(position="cursor", undecoded=UNDECODED),
    target=TargetCapabilities(
        # ALTER COLUMN … TYPE casts to every wider type exactly; int8 is stored as smallint, so it is never widened.
        widens=lambda old, new: is_wider(new, old),
        refuses_names=_refuses,
        stores=stored,
        atomic="database",
        undecoded=UNDECODED,
    ),
    extra="postgres",
    drivers=("psycopg",),
    on_executors=lambda connection, table: ("psycopg", "pyarrow"),
    jars=("postgresql",),
    signs=("org.postgresql", "PSQLException", "psycopg", "PostgreSQL "),
    places=lambda options: named_places(options, 5432),
)


def place(options: Mapping[str, Any], object: ObjectName, _base_dir: str) -> str | None:
    """None for a bare name, whose schema depends on the search path."""
    if len(object.parts) < 2:
        return None
    if (found := database_place(options, 5432)) is None:
        return None
    host, database = found
    return f"postgres {host}/{database}/{'/'.join(object.parts)}"


def refuse_name(_options: Mapping[str, Any], object: ObjectName, _base_dir: str) -> str | None:
    return next((why for part in object.parts if (why := _refuses(part))), None)


@contextmanager
def connect(connection: Connection, context: OpenContext) -> Iterator[Connector]:
    """Opens nothing yet: source and target connect when they need to."""
    from flowctl.connectors.postgres.changes.stream import PostgresStreams
    from flowctl.connectors.postgres.client import client
    from flowctl.connectors.postgres.source import PostgresSource
    from flowctl.connectors.postgres.target import PostgresTarget

    database = client(connection.options)
    yield Connector(
        source=PostgresSource(database, CAPABILITIES, context.buffer),
        target=PostgresTarget(database, context, CAPABILITIES),
        streams=PostgresStreams(database, context.buffer),
        greet=database.greet,
    )
