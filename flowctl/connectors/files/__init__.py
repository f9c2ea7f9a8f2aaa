"""CSV, JSON Lines, Parquet and ORC files on a disk or an object store: a direct source that reads each file once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from flowctl.connectors.base import Capabilities, Connector, OpenContext
from flowctl.connectors.files.gaps import hides_order, of_spec, refuses
from flowctl.connectors.source import SourceCapabilities
from flowctl.model.table_info import ObjectName
from flowctl.spec.spec import Connection
from flowctl.storage.urls import path_place, without_scheme

CAPABILITIES = Capabilities(
    source=SourceCapabilities(position="files", hides_order=hides_order, refuses=refuses),
    target=None,
    extra="files",
    signs=("FAILED_READ_FILE",),
    storage="path",
    places=lambda options: [without_scheme(options["path"])],
    gaps=of_spec,
    recognizes=lambda path: path.is_dir(),
)


def place(options: Mapping[str, Any], object: ObjectName, base_dir: str) -> str:
    return path_place("/".join([str(options["path"]), *object.parts]), base_dir)


@contextmanager
def connect(connection: Connection, context: OpenContext) -> Iterator[Connector]:
    """Opens nothing yet: the store is accessed only when the source is."""
    from flowctl.connectors.files.listing import file_root
    from flowctl.connectors.files.source import FilesSource
    from flowctl.storage.folders import look_at

    root = file_root(connection.options["path"], context)
    yield Connector(
        source=FilesSource(root, CAPABILITIES),
        greet=lambda: f"files below {look_at(root.url, context.storage)}",
    )
