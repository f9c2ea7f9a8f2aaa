"""SQLite files: a landed source (the driver streams them) and an embedded target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flowctl.connectors.base import Capabilities, Connector, OpenContext, SourceCapabilities
from flowctl.connectors.sqlite.ddl import TARGET_CAPABILITIES
from flowctl.spec.spec import Connection

CAPABILITIES = Capabilities(
    source=SourceCapabilities(kind="landed", position="cursor", queries=True),
    target=TARGET_CAPABILITIES,
    extra="sqlite",
)


@contextmanager
def connect(connection: Connection, context: OpenContext) -> Iterator[Connector]:
    """Opens nothing yet: source and target open the file when they are asked."""
    from flowctl.connectors.sqlite.database import database_path
    from flowctl.connectors.sqlite.source import SqliteSource
    from flowctl.connectors.sqlite.target import SqliteTarget

    path = database_path(connection.options, context)
    yield Connector(source=SqliteSource(path, CAPABILITIES), target=SqliteTarget(path, context, CAPABILITIES))
