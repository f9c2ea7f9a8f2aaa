"""DuckDB files: a landed source (this process streams Arrow batches) and an embedded target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flowctl.connectors.base import Capabilities, Connector, OpenContext
from flowctl.connectors.source import SourceCapabilities
from flowctl.connectors.sql.file import begins_with, database_path, file_place, system_name
from flowctl.connectors.target import TargetCapabilities
from flowctl.model.table_info import ObjectName
from flowctl.model.types import is_wider
from flowctl.spec.spec import Connection
from flowctl.storage.urls import without_scheme

#: Where a name without a schema is found.
MAIN = "main"
#: Schemas of DuckDB's own, and names by which it finds other databases than the file.
_RESERVED = ("information_schema", "pg_catalog", "system", "temp")


def _refuses(name: str) -> str | None:
    if not name:
        return "DuckDB has no empty names"
    return "DuckDB's names hold no NUL character" if "\0" in name else None


CAPABILITIES = Capabilities(
    source=SourceCapabilities(position="cursor"),
    target=TargetCapabilities(
        widens=lambda old, new: is_wider(new, old), refuses_names=_refuses, folds_fields=True, atomic="database"
    ),
    extra="duckdb",
    drivers=("duckdb",),
    signs=("DuckDB", "duckdb"),
    places=lambda options: [without_scheme(options["path"])],
    recognizes=lambda path: begins_with(path, b"DUCK", at=8),
    suffixes=(".duckdb", ".ddb", ".db"),
)


def place(options: Mapping[str, Any], object: ObjectName, base_dir: str) -> str:
    """Device and inode of the file, the same for every path to it, then schema and name in lower case: DuckDB ignores
    case."""
    return file_place("duckdb", options, ".".join((MAIN, *object.parts)[-2:]).lower(), base_dir)


def refuse_name(options: Mapping[str, Any], object: ObjectName, base_dir: str) -> str | None:
    if len(object.parts) > 2:
        return "a name has at most two parts here, schema.table: the connection is one file"
    if len(object.parts) == 2:
        schema, file = object.parts[0].lower(), Path(base_dir, str(options["path"])).resolve().name
        if schema in _RESERVED:
            return f"the schema {schema} is DuckDB's own"
        if schema == file.partition(".")[0].lower():
            return f"DuckDB cannot tell the schema {object.parts[0]} from the file {file}, which has the same name"
    return next((why for part in object.parts if (why := _refuses(part))), None)


@contextmanager
def connect(connection: Connection, context: OpenContext) -> Iterator[Connector]:
    """Opens nothing yet: source and target open the file when they need it."""
    from flowctl.connectors.duckdb.database import greeting
    from flowctl.connectors.duckdb.source import DuckdbSource
    from flowctl.connectors.duckdb.target import DuckdbTarget

    path, system = database_path(connection.options, context), system_name("duckdb", connection.options, context)
    yield Connector(
        source=DuckdbSource(path, CAPABILITIES, system),
        target=DuckdbTarget(path, context, CAPABILITIES),
        greet=lambda: greeting(path),
    )
