"""CSV, JSON Lines, Parquet, ORC and Avro files on a disk or an object store: a direct source that reads each file once,
and a target whose tables are folders of files with a manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from flowctl.connectors.base import Capabilities, Connector, OpenContext
from flowctl.connectors.files.gaps import of_spec, refuses
from flowctl.connectors.source import SourceCapabilities
from flowctl.connectors.target import TargetCapabilities
from flowctl.model.table_info import ObjectName
from flowctl.spec.spec import Connection
from flowctl.storage.urls import path_place, without_scheme

CAPABILITIES = Capabilities(
    source=SourceCapabilities(position="files", refuses=refuses),
    target=TargetCapabilities(
        widens=lambda old, new: False,  # files that are written already have the old type
        refuses_names=lambda name: "a column of files must have a name" if not name.strip() else None,
        replaces_types=True,
    ),
    extra="files",
    signs=("FAILED_READ_FILE",),
    storage="path",
    places=lambda options: [without_scheme(options["path"])],
    gaps=lambda engine, connection, table, base_dir: of_spec(engine, connection, table),
    recognizes=lambda path: path.is_dir(),
)


def place(options: Mapping[str, Any], object: ObjectName, base_dir: str) -> str:
    return path_place("/".join([str(options["path"]), *object.parts]), base_dir)


def refuse_name(_options: Mapping[str, Any], object: ObjectName, _base_dir: str) -> str | None:
    folders = "/".join(object.parts).split("/")
    if not all(folders):
        return "a path has no empty names"
    if any(name.startswith(("_", ".")) for name in folders):
        return "readers of files skip folders whose names begin with _ or ."
    if any(set(name) & _NOT_IN_NAMES or not name.isprintable() for name in folders):
        return "readers of files take \\ { } [ ] * ? for patterns"
    return "file names are limited to 255 bytes" if any(len(name.encode()) > 255 for name in folders) else None


#: Characters that make a path a pattern for some reader.
_NOT_IN_NAMES = frozenset("\\{}[]*?")


@contextmanager
def connect(connection: Connection, context: OpenContext) -> Iterator[Connector]:
    """Opens nothing yet: the store is accessed only when the source is."""
    from flowctl.connectors.files.listing import file_root
    from flowctl.connectors.files.source import FilesSource
    from flowctl.connectors.files.target import FilesTarget
    from flowctl.storage.folders import look_at

    root = file_root(connection.options["path"], context)
    yield Connector(
        source=FilesSource(root, CAPABILITIES),
        target=FilesTarget(root, context, CAPABILITIES),
        greet=lambda: f"files below {look_at(root.url, context.storage)}",
    )
