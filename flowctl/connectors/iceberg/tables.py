"""The tables of one connection, by the names that the spec has for them."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from flowctl.connectors.iceberg.address import Address
from flowctl.connectors.iceberg.catalogs import TableCatalog
from flowctl.connectors.iceberg.errors import errors_of
from flowctl.connectors.iceberg.table import Identifier, OpenTable, TablePlace, open_existing
from flowctl.model.table_info import ObjectName
from flowctl.storage.options import Storage


@dataclass(frozen=True)
class Tables:
    catalog: TableCatalog
    address: Address
    storage: Storage

    def place(self, object: ObjectName) -> TablePlace:
        return TablePlace(self.catalog, self.address.identifier(object), self.storage)

    def open_existing(self, object: ObjectName) -> OpenTable:
        return open_existing(self.place(object))

    def lease_folder(self, object: ObjectName) -> str | None:
        """Beside the tables, if their root is known. A catalog that is a service serializes commits, but not runs."""
        root = self.address.warehouse
        if root is None or (self.address.catalog == "rest" and "://" not in root):
            return None
        *namespace, name = self.address.identifier(object)
        return "/".join([root, "_flowctl", "lease", *namespace, name])

    def find(self, pattern: tuple[str, ...]) -> list[ObjectName]:
        """The tables whose names match ``pattern``, part by part, sorted."""
        *namespaces, name = self.address.identifier(ObjectName(pattern))
        found: list[Identifier] = [()]
        with errors_of("the catalog"):
            for part in namespaces:
                below = (inner for outer in found for inner in self.catalog.list_namespaces(outer))
                found = [one for one in below if fnmatchcase(one[-1], part)]
            tables = [one for namespace in found for one in self.catalog.list_tables(namespace)]
        matching = (tuple(one) for one in tables if fnmatchcase(one[-1], name))
        return sorted(ObjectName(one[-1:] if len(pattern) == 1 else one) for one in matching)
