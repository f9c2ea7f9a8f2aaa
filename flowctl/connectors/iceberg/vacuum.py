"""Deletes files in a table's folder that none of its snapshots needs: what expired ones had, and what killed runs have
written and never committed.

No file younger than a week is deleted: a stale writer may still commit it. Nor is any of a table whose folder is in
this one's, as that of ``shop.orders.data`` is in that of ``shop.orders``. Files are distinguished by their names,
which are unique: the same path may be written in several ways (``file:``, ``s3a:``).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from time import time
from typing import TYPE_CHECKING, Any

from flowctl import text
from flowctl.connectors.at_once import at_once
from flowctl.connectors.iceberg.errors import errors_of
from flowctl.connectors.iceberg.file_io import plain
from flowctl.connectors.iceberg.own_folder import is_same_place
from flowctl.connectors.iceberg.table import OpenTable
from flowctl.connectors.lake.folder import Folder
from flowctl.connectors.lake.stored_files import LEAST_RETENTION, StoredFile, folders_of_tables, remove
from flowctl.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Container

#: Folders in which every Iceberg writer puts files, unless the table says otherwise.
_FOLDERS = ("data", "metadata")
_ELSEWHERE = ("write.data.path", "write.metadata.path", "write.folder-storage.path", "write.object-storage.path")
_METADATA = re.compile(r".*\.metadata\.json(\.gz)?", re.DOTALL)
_GZIP_SIGN = b"\x1f\x8b"
#: How zlib reads gzip, which may be cut off.
_GZIP = 31
#: Where writers put the table's UUID, so that the rest, which may be long, is not read. No text contains it: its quotes
#: are escaped there.
_HEAD = 4096
_UUID = re.compile(rb'"table-uuid"\s*:\s*"([^"]*)"')
_FILE = re.compile(r".*\.(parquet|avro|orc|puffin|stats|metadata\.json|metadata\.json\.gz)", re.DOTALL)


def due(table: OpenTable, without: Container[int] = ()) -> tuple[list[StoredFile], str]:
    """Old files that no snapshot needs, but for those in ``without``; or none, and why files are not deleted.

    :class:`TableError` if the folder does not list all files of the newest version: their names are then not
    understood."""
    if why := _why_left_out(table):
        return [], why
    files = _removable(table, without)
    with errors_of(table.place.shown):
        other = _metadata_of_another(table) if files else ""
    if other:
        why = f"{other} is of another table, whose files cannot be told from this one's"
        return [], f"{why}: no file is deleted (remove it if no catalog has that table)"
    return files, ""


def _why_left_out(table: OpenTable) -> str:
    if name := next((name for name in _ELSEWHERE if name in table.metadata.properties), None):
        return f"vacuum does not look into the folder of {name}"
    if not is_same_place(table.handle.metadata_location.rpartition("/")[0], f"{table.url}/metadata"):
        return f"its metadata is not in {table.url}, whose files may be another table's: no file is deleted"
    return ""


def _removable(table: OpenTable, without: Container[int]) -> list[StoredFile]:
    with errors_of(table.place.shown):
        stored, others = _stored(_folder(table))
        needed, newest = _needed(table, without)
    there = {_name(file.path) for file in stored}
    if missing := sorted(_name(path) for path in newest if _is_inside(table, path) and _name(path) not in there):
        raise TableError(
            f"{table.place.shown} has {text.counted(len(missing), 'file')} that its folder does not list, such as "
            f"{missing[0]}",
            hint="Restore the table, or remove its orphan files with the engine that wrote them",
        )
    end = time() - LEAST_RETENTION
    old = (file for file in stored if file.modified < end and _name(file.path) not in needed)
    return [file for file in old if not file.path.startswith(others)]


def delete(table: OpenTable, files: list[StoredFile], before_each: Callable[[], None]) -> None:
    remove(_folder(table).file_system(), files, before_each)


def _folder(table: OpenTable) -> Folder:
    return Folder(plain(table.url).rstrip("/"), table.place.storage)


def _is_inside(table: OpenTable, path: str) -> bool:
    return plain(path).startswith(plain(table.url).rstrip("/") + "/")


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _metadata_of_another(table: OpenTable) -> str:
    """Metadata of another table in this one's folder, which two may share in a catalog that lets tables choose their
    locations; empty if there is none. What cannot be read no table can be opened by."""
    folder = _folder(table)
    system = folder.file_system()
    known = {_name(table.handle.metadata_location), *(_name(one.metadata_file) for one in table.metadata.metadata_log)}

    def ask(path: str) -> str:
        with suppress(FileNotFoundError, zlib.error):  # removed since it was listed; not gzip
            for end in (_HEAD, None):
                content = system.cat_file(path, 0, end)
                if content.startswith(_GZIP_SIGN):
                    content = zlib.decompressobj(_GZIP).decompress(content)
                if found := _UUID.search(content):
                    return found[1].decode(errors="replace")
        return ""

    listed = map(str, system.ls(f"{folder.url}/metadata", detail=False))
    asked = [path for path in listed if _METADATA.fullmatch(_name(path)) and _name(path) not in known]
    uuids = at_once(ask, {path: path for path in asked})
    return next((path for path in asked if uuids[path] not in ("", table.identity)), "")


def _needed(table: OpenTable, without: Container[int]) -> tuple[set[str], set[str]]:
    """The names of all files that are needed, and the paths of the newest version's data."""
    metadata, io = table.metadata, table.handle.io
    needed = {_name(table.handle.metadata_location), *(_name(entry.metadata_file) for entry in metadata.metadata_log)}
    needed |= {_name(file.statistics_path) for file in (*metadata.statistics, *metadata.partition_statistics)}
    by_manifest: dict[str, set[str]] = {}
    newest: set[str] = set()
    for snapshot in metadata.snapshots:
        if snapshot.snapshot_id in without:
            continue
        needed.add(_name(snapshot.manifest_list))
        is_newest = table.snapshot is not None and snapshot.snapshot_id == table.snapshot.snapshot_id
        for manifest in snapshot.manifests(io):
            path = manifest.manifest_path
            if path not in by_manifest:
                by_manifest[path] = {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(io)}
            newest |= by_manifest[path] if is_newest else set()
    needed |= {_name(path) for path in by_manifest}
    needed |= {_name(path) for paths in by_manifest.values() for path in paths}
    return needed, newest


def _stored(folder: Folder) -> tuple[list[StoredFile], tuple[str, ...]]:
    """All files that may be the table's, and the folders of other tables among them."""
    system = folder.file_system()
    found: dict[str, Any] = {}
    for part in _FOLDERS:
        with suppress(FileNotFoundError):
            found |= system.find(f"{folder.url}/{part}", detail=True)
    root = str(system._strip_protocol(folder.url)).rstrip("/")
    own = f"{root}/metadata"
    others = folders_of_tables(
        (path for path in found if path.rpartition("/")[0] != own), [f"{root}/{part}" for part in _FOLDERS]
    )
    files = [path for path in found if _FILE.fullmatch(_name(path))]
    return [StoredFile.listed(found[path], path.removeprefix(f"{root}/")) for path in files], others
