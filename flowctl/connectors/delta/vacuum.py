"""Deletes files in a table's folder that no version within its retention needs.

``deltalake`` 1.6.6 is not used: its full vacuum also removes the deletion vectors of the newest version (tested). Files
that a killed run has written and never committed are deleted too, once they are old enough: a stale writer may still
commit younger ones. So no file younger than a week is deleted, however short the table's own retention.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from time import time
from typing import Any
from urllib.parse import unquote

from flowctl import text
from flowctl.connectors.delta import deletion_vectors, log
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.table import OpenTable
from flowctl.connectors.delta.types import Action
from flowctl.connectors.lake.stored_files import LEAST_RETENTION, StoredFile, folders_of_tables
from flowctl.errors import TableError

RETENTION = "delta.deletedFileRetentionDuration"
_SECONDS = {"week": 7 * 86400.0, "day": 86400.0, "hour": 3600.0, "minute": 60.0, "second": 1.0}
_PART = re.compile(r"(\d+)\s+(week|day|hour|minute|second)s?")
_DATA = re.compile(r".*\.parquet|deletion_vector_.*\.bin", re.DOTALL)


def retention_seconds(properties: Mapping[str, str]) -> float | None:
    """How long files are kept after no version needs them, at least a week; None for an interval in another format."""
    own = _own_retention(properties)
    return None if own is None else max(own, LEAST_RETENTION)


def _own_retention(properties: Mapping[str, str]) -> float | None:
    written = properties.get(RETENTION, "interval 1 week").lower().removeprefix("interval").strip()
    parts = _PART.findall(written)
    if not parts or _PART.sub("", written).strip():
        return None
    return sum(int(count) * _SECONDS[unit] for count, unit in parts)


def removable(table: OpenTable, retention: float) -> list[StoredFile]:
    """Old files of neither the opened version nor one that was current within the last ``retention`` seconds.

    :class:`TableError` if the folder does not list all files of the opened version: their names are then not
    understood."""
    end = time() - retention
    own = _own_retention(table.properties)
    removed = list(log.read_removed_files(table.location, table.version))
    if own is None or own < retention:  # a checkpoint omits some that are needed
        removed += log.read_removed_files_since(table.location, table.version, end)
    removed = [
        file for file in removed if file.get("deletionTimestamp") is None or file["deletionTimestamp"] / 1000 > end
    ]
    live, kept = (
        {name for file in files for name in file_names(table.location, file)} for files in (table.files, removed)
    )
    stored, others = _stored(table.location)
    if missing := {name for name in live if "://" not in name} - {file.name for file in stored}:
        raise TableError(
            f"{table.location.url} has {text.counted(len(missing), 'file')} that its folder does not list, such as "
            f"{min(missing)}",
            hint="Restore the table, or vacuum it with the engine that wrote them",
        )
    old = (file for file in stored if file.modified < end and file.name not in live | kept)
    return [file for file in old if not file.path.startswith(others)]


def file_names(location: TableLocation, file: Action) -> Iterable[str]:
    """The file of an ``add`` and that of its deletion vector, relative to the table's folder."""
    yield unquote(file["path"])
    vector = file.get("deletionVector")
    if vector and vector["storageType"] != "i":
        yield deletion_vectors.path_of(location, vector).removeprefix(f"{location.url}/")


def _stored(location: TableLocation) -> tuple[list[StoredFile], tuple[str, ...]]:
    """Data files and deletion vectors, by the names that Delta writers use, and the folders of other tables among them.
    What begins with a dot or an underscore is the log, flowctl's own file or change data, unless it is a partition."""
    system = location.file_system()
    root = str(system.info(location.url)["name"]).rstrip("/")
    found: list[Mapping[str, Any]] = []
    for entry in system.ls(location.url, detail=True):
        name = str(entry["name"]).rstrip("/").rpartition("/")[2]
        if (name.startswith((".", "_")) and "=" not in name) or str(entry["name"]).rstrip("/") == root:
            continue
        found += system.find(entry["name"], detail=True).values() if entry["type"] == "directory" else [entry]
    by_path = {str(entry["name"]): entry for entry in found}
    files = [path for path in by_path if _DATA.fullmatch(path.rpartition("/")[2])]
    stored = [StoredFile.listed(by_path[path], path.removeprefix(f"{root}/")) for path in files]
    return stored, folders_of_tables(by_path, [root])
