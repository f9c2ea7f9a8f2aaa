"""SQLite files: a landed source (the driver streams them) and an embedded target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from flowctl.connectors.base import Capabilities, Connector, OpenContext
from flowctl.connectors.source import SourceCapabilities
from flowctl.connectors.sql.file import begins_with, database_path, file_place, system_name
from flowctl.connectors.sqlite.location import as_path, location_of
from flowctl.connectors.target import TargetCapabilities
from flowctl.errors import TableError
from flowctl.model.table_info import ObjectName
from flowctl.spec.spec import Connection
from flowctl.storage.urls import without_scheme

CAPABILITIES = Capabilities(
    source=SourceCapabilities(position="cursor"),
    target=TargetCapabilities(widens=lambda old, new: False, atomic="database"),
    extra="sqlite",
    signs=("SQLite", "sqlite3"),
    places=lambda options: [without_scheme(as_path(options)["path"])],
    recognizes=lambda path: begins_with(path, b"SQLite format 3\0"),
    suffixes=(".sqlite", ".sqlite3", ".db3", ".db"),
)


def place(options: Mapping[str, Any], object: ObjectName, base_dir: str) -> str:
    """Device and inode of the file, the same for every path to it, and the table's name in lower case: SQLite ignores
    case."""
    return file_place("sqlite", as_path(options), object.parts[-1].lower(), base_dir)


def refuse_name(options: Mapping[str, Any], object: ObjectName, _base_dir: str) -> str | None:
    if object.parts[-1].lower().startswith("sqlite_"):
        return "names that begin with sqlite_ are SQLite's own"
    with suppress(TableError):  # a malformed path, which the connection reports
        if why := location_of(str(options["path"])).why_read_only:
            return f"the connection's `path` has {why}, so that nothing can be written"
    return None


@contextmanager
def connect(connection: Connection, context: OpenContext) -> Iterator[Connector]:
    """Opens nothing yet: source and target open the file when they need it."""
    from flowctl.connectors.sqlite.database import greeting
    from flowctl.connectors.sqlite.source import SqliteSource
    from flowctl.connectors.sqlite.target import SqliteTarget

    location, options = location_of(str(connection.options["path"])), as_path(connection.options)
    path, system = database_path(options, context), system_name("sqlite", options, context)
    yield Connector(
        source=SqliteSource(path, CAPABILITIES, system, location.is_immutable),
        target=SqliteTarget(path, context, CAPABILITIES, location),
        greet=lambda: greeting(path, is_immutable=location.is_immutable),
    )
