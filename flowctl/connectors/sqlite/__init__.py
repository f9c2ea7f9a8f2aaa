"""SQLite files: a landed source (the driver streams them) and an embedded target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flowctl.connectors.base import Capabilities, Connector, OpenContext, SourceCapabilities
from flowctl.spec.spec import Connection

CAPABILITIES = Capabilities(
    source=SourceCapabilities(kind="landed", position="cursor", queries=True),
    target=None,
    extra="sqlite",
)


@contextmanager
def connect(connection: Connection, context: OpenContext) -> Iterator[Connector]:
    """Opens nothing yet: source and target open the file when they are asked."""
    from flowctl.connectors.sqlite.database import database_path
    from flowctl.connectors.sqlite.source import SqliteSource

    path = database_path(connection.options, context)
    yield Connector(source=SqliteSource(path, CAPABILITIES))
