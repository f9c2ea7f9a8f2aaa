"""Deletes files in a table's folder that no version within its retention needs.

``deltalake`` 1.6.6 is not used: its full vacuum also removes the deletion vectors of the newest version (tested). Files
that a killed run has written and never committed are deleted too, once they are old enough: a stale writer may still
commit younger ones. So no file younger than a week is deleted, however short the table's own retention.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from time import time
from urllib.parse import unquote

from flowctl import text
from flowctl.connectors.delta import deletion_vectors, log
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.table import OpenTable
from flowctl.connectors.delta.types import Action
from flowctl.connectors.lake.stored_files import LEAST_RETENTION, StoredFile
from flowctl.errors import TableError

RETENTION = "delta.deletedFileRetentionDuration"
_SECONDS = {"week": 7 * 86400.0, "day": 86400.0, "hour": 3600.0, "minute": 60.0, "second": 1.0}
_PART = re.compile(r"(\d+)\s+(week|day|hour|minute|second)s?")
_LOG = f"/{log.FOLDER}/"
_DATA = re.compile(r".*\.parquet|deletion_vector_.*\.bin", re.DOTALL)


def retention_seconds(properties: Mapping[str, str]) -> float | None:
    """How long files are kept after no version needs them, at least a week; None for an interval in another format."""
    written = properties.get(RETENTION, "interval 1 week").lower().removeprefix("interval").strip()
    parts = _PART.findall(written)
    if not parts or _PART.sub("", written).strip():
        return None
    return max(sum(int(count) * _SECONDS[unit] for count, unit in parts), LEAST_RETENTION)


def removable(table: OpenTable, retention: float) -> list[StoredFile]:
    """Old files of neither the opened version nor one that was current within the last ``retention`` seconds.

    :class:`TableError` if the folder does not list all files of the opened version: their names are then not
    understood."""
    end = time() - retention
    removed = [
        file
        for file in log.read_removed_files(table.location, table.version)
        if file.get("deletionTimestamp") is None or file["deletionTimestamp"] / 1000 > end
    ]
    live, kept = (
        {name for file in files for name in file_names(table.location, file)} for files in (table.files, removed)
    )
    stored = list(_stored(table.location))
    if missing := {name for name in live if "://" not in name} - {file.name for file in stored}:
        raise TableError(
            f"{table.location.url} has {text.counted(len(missing), 'file')} that its folder does not list, such as "
            f"{min(missing)}",
            hint="Restore the table, or vacuum it with the engine that wrote them",
        )
    return [file for file in stored if file.modified < end and file.name not in live | kept]


def file_names(location: TableLocation, file: Action) -> Iterable[str]:
    """The file of an ``add`` and that of its deletion vector, relative to the table's folder."""
    yield unquote(file["path"])
    vector = file.get("deletionVector")
    if vector and vector["storageType"] != "i":
        yield deletion_vectors.path_of(location, vector).removeprefix(f"{location.url}/")


def _stored(location: TableLocation) -> Iterator[StoredFile]:
    """Data files and deletion vectors, by the names that Delta writers use, except those of tables in subfolders. What
    begins with a dot or an underscore is the log, flowctl's own file or change data, unless it is a partition."""
    system = location.file_system()
    root = str(system.info(location.url)["name"]).rstrip("/")
    for entry in system.ls(location.url, detail=True):
        name = str(entry["name"]).rstrip("/").rpartition("/")[2]
        if (name.startswith((".", "_")) and "=" not in name) or str(entry["name"]).rstrip("/") == root:
            continue
        below = list(system.find(entry["name"], detail=True).values()) if entry["type"] == "directory" else [entry]
        paths = [str(file["name"]) for file in below]
        others = tuple({path.partition(_LOG)[0] + "/" for path in paths if _LOG in path})
        for path, file in zip(paths, below, strict=True):
            if _DATA.fullmatch(path.rpartition("/")[2]) and not path.startswith(others):
                yield StoredFile.listed(file, path.removeprefix(f"{root}/"))
