"""PostgreSQL 14 and later: a direct source (Spark's executors read it through JDBC) and a transactional target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flowctl.connectors.base import Capabilities, Connector, OpenContext, SourceCapabilities
from flowctl.connectors.postgres.ddl import TARGET_CAPABILITIES
from flowctl.spec.spec import Connection

CAPABILITIES = Capabilities(
    source=SourceCapabilities(kind="direct", position="cursor", queries=True),
    target=TARGET_CAPABILITIES,
    extra="postgres",
    drivers=("psycopg",),
    jars=("postgresql",),
)


@contextmanager
def connect(connection: Connection, context: OpenContext) -> Iterator[Connector]:
    """Opens nothing yet: source and target connect when they are asked."""
    from flowctl.connectors.postgres.client import client
    from flowctl.connectors.postgres.source import PostgresSource
    from flowctl.connectors.postgres.target import PostgresTarget

    database = client(connection.options)
    yield Connector(
        source=PostgresSource(database, CAPABILITIES), target=PostgresTarget(database, context, CAPABILITIES)
    )
