"""A connection's options, with their defaults: where its catalog and its tables are. Loads no driver."""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flowctl.model.table_info import ObjectName
from flowctl.storage.urls import path_place, scheme

#: Catalogs whose namespaces have one level.
FLAT = ("jdbc", "glue", "hive")
#: Catalogs of which a warehouse without a scheme is a path on this machine.
_LOCAL = ("hadoop", "jdbc", "hive")


@dataclass(frozen=True)
class Address:
    """``warehouse`` is the root of new tables: a URL, an absolute path, or a name that a REST catalog knows."""

    catalog: str
    warehouse: str | None
    uri: str | None
    name: str
    namespace: tuple[str, ...]
    base_dir: str
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    properties: Mapping[str, str] = field(default_factory=dict)

    def identifier(self, object: ObjectName) -> tuple[str, ...]:
        """A name of one part is in the connection's namespace."""
        return object.parts if len(object.parts) > 1 else (*self.namespace, *object.parts)

    def place(self, object: ObjectName) -> str:
        """Equal for two names of one table."""
        identifier = self.identifier(object)
        if self.catalog == "hadoop":
            return path_place("/".join([str(self.warehouse), *identifier]), self.base_dir)
        at = self.uri or self.warehouse or ""
        found = urlsplit(at)
        address = f"{found.hostname}:{found.port or ''}{found.path.rstrip('/')}" if found.hostname else at
        return f"iceberg {self.catalog} {address} {self.name} {'.'.join(identifier)}"


def address_of(options: Mapping[str, Any], base_dir: str) -> Address:
    catalog = str(options.get("catalog", "hadoop"))
    return Address(
        catalog,
        _root(catalog, options.get("warehouse"), base_dir),
        str(options["uri"]) if options.get("uri") else None,
        str(options.get("name", "flowctl")),
        tuple(str(options.get("namespace", "default")).split(".")),
        base_dir,
        {name: str(options[name]) for name in ("credential", "token") if options.get(name)},
        {str(name): str(value) for name, value in (options.get("properties") or {}).items()},
    )


def _root(catalog: str, given: object, base_dir: str) -> str | None:
    if given is None:
        return None
    text = str(given).rstrip("/")
    if catalog in _LOCAL and scheme(text) == "file":
        return os.path.realpath(Path(base_dir, text.removeprefix("file://").removeprefix("file:")))
    return text
