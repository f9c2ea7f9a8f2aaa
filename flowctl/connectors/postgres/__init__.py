"""PostgreSQL 14 and later: a direct source (Spark's executors read it through JDBC) and a transactional target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flowctl.connectors.base import Capabilities, Connector, OpenContext, SourceCapabilities
from flowctl.spec.spec import Connection

CAPABILITIES = Capabilities(
    source=SourceCapabilities(kind="direct", position="cursor", queries=True),
    target=None,
    extra="postgres",
    drivers=("psycopg",),
    jars=("postgresql",),
)


@contextmanager
def connect(connection: Connection, context: OpenContext) -> Iterator[Connector]:
    """Opens nothing yet: source and target connect when they are asked."""
    from flowctl.connectors.postgres.client import client
    from flowctl.connectors.postgres.source import PostgresSource

    yield Connector(source=PostgresSource(client(connection.options), CAPABILITIES))
