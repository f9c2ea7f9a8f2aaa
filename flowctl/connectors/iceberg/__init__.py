"""Apache Iceberg, as source and target: PyIceberg reads and commits metadata, flowctl's own process reads and writes
the files, on every engine and without a JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from flowctl.connectors.base import Capabilities, Connector, OpenContext
from flowctl.connectors.iceberg.address import FLAT, address_of
from flowctl.connectors.iceberg.types import refused_name, stored, widens
from flowctl.connectors.source import SourceCapabilities
from flowctl.connectors.target import TargetCapabilities
from flowctl.model.table_info import ObjectName
from flowctl.spec.spec import Connection
from flowctl.storage.urls import without_scheme

CAPABILITIES = Capabilities(
    source=SourceCapabilities(position="version"),
    target=TargetCapabilities(widens=widens, refuses_names=refused_name, stores=stored, replaces_types=True),
    extra="iceberg",
    drivers=("pyiceberg",),
    signs=("pyiceberg", "Iceberg"),
    storage="warehouse",
    places=lambda options: [without_scheme(str(options[name])) for name in ("warehouse", "uri") if options.get(name)],
)


def place(options: Mapping[str, Any], object: ObjectName, base_dir: str) -> str:
    return address_of(options, base_dir).place(object)


def refuse_name(options: Mapping[str, Any], object: ObjectName, base_dir: str) -> str | None:
    catalog = address_of(options, base_dir).catalog
    if len(object.parts) > 2 and catalog in FLAT:
        return f"a name has at most two parts in a {catalog} catalog, namespace.table"
    for part in object.parts:
        if not part or part in (".", ".."):
            return "Iceberg has no table or namespace with an empty name or one of dots"
        if "/" in part or "\\" in part or any(ord(letter) < 32 or ord(letter) == 127 for letter in part):
            return "names of tables and namespaces are parts of paths: they have no slashes or control characters"
        if part.startswith("_flowctl"):
            return "names that begin with _flowctl are flowctl's own"
        if len(part.encode()) > 200:
            return "names of tables and namespaces are limited to 200 bytes"
    return None


@contextmanager
def connect(connection: Connection, context: OpenContext) -> Iterator[Connector]:
    from flowctl.connectors.iceberg.catalogs import open_catalog
    from flowctl.connectors.iceberg.errors import errors_of
    from flowctl.connectors.iceberg.source import IcebergSource
    from flowctl.connectors.iceberg.tables import Tables
    from flowctl.connectors.iceberg.target import IcebergTarget

    address = address_of(connection.options, context.base_dir)
    with open_catalog(address, context.storage) as catalog:

        def greet() -> str:
            with errors_of("the catalog"):
                count = len(catalog.list_namespaces())
            return f"a {address.catalog} catalog of Iceberg tables, {count} namespaces"

        tables = Tables(catalog, address, context.storage)
        yield Connector(
            source=IcebergSource(tables, CAPABILITIES),
            target=IcebergTarget(tables, context, CAPABILITIES),
            greet=greet,
        )
