"""Iceberg's Hadoop catalog: a table is a folder, and its newest version the greatest number of ``vN.metadata.json``.

PyIceberg has none. A commit creates the file of the next number, which only one of racing writers can; Java's catalog
renames a file to that name, which is as safe on a local disk and HDFS. Source: Iceberg's HadoopTableOperations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, CreateTableTransaction, StagedTable, Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import Identifier, Properties

from flowctl.connectors.iceberg.own_folder import require_own_folder
from flowctl.connectors.lake.folder import Folder
from flowctl.errors import FlowctlError

_VERSION = re.compile(r"v(\d+)(?:\.gz)?\.metadata\.json(?:\.gz)?")
_NEWEST_NAME = "version-hint.text"


@dataclass(frozen=True)
class HadoopCatalog:
    """What flowctl uses of :class:`pyiceberg.catalog.Catalog`. ``root`` is the warehouse. A namespace is a folder, and
    exists with its first table."""

    root: Folder
    properties: Mapping[str, str]

    def load_table(self, identifier: Identifier) -> Table:
        found = self._newest(identifier)
        if found is None:
            raise NoSuchTableError(f"Table does not exist: {'.'.join(identifier)}")
        folder = self._folder(identifier).url
        location = f"{folder}/metadata/{found[1]}"
        metadata = FromInputFile.table_metadata(self._file_io.new_input(location))
        require_own_folder(".".join(identifier), metadata.location, folder)
        return Table(identifier, metadata, location, self._file_io, cast(Catalog, self))

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        names = table.name()
        there: Table | None = None
        with suppress(NoSuchTableError):
            there = self.load_table(names)
        for requirement in requirements:
            requirement.validate(there.metadata if there is not None else None)
        metadata = update_table_metadata(
            there.metadata if there is not None else MetastoreCatalog._empty_table_metadata(),
            updates,
            enforce_validation=there is None,
            metadata_location=there.metadata_location if there is not None else None,
        )
        version = _number(there.metadata_location) + 1 if there is not None else 1
        folder, name = self._folder(names), f"v{version}.metadata.json"
        if not folder.create_file(f"metadata/{name}", metadata.model_dump_json().encode()):
            failed = CommitFailedException if there is not None else TableAlreadyExistsError
            raise failed(f"version {version} of {folder.url} was created by another writer")
        self._write_hint(folder, version)
        location = {"metadata-location": f"{folder.url}/metadata/{name}"}
        return CommitTableResponse(metadata=metadata, **location)

    def list_tables(self, namespace: Identifier) -> list[Identifier]:
        return [(*namespace, name) for name in self._folders(namespace) if self._newest((*namespace, name))]

    def list_namespaces(self, namespace: Identifier = ()) -> list[Identifier]:
        return [(*namespace, name) for name in self._folders(namespace) if not self._newest((*namespace, name))]

    def supports_server_side_planning(self) -> bool:
        return False

    def create_namespace_if_not_exists(self, namespace: Identifier) -> None:
        """A namespace needs nothing of its own."""

    def create_table_transaction(
        self, identifier: Identifier, schema: Schema, *, partition_spec: PartitionSpec, properties: Properties
    ) -> CreateTableTransaction:
        url = self._folder(identifier).url
        metadata = new_table_metadata(schema, partition_spec, UNSORTED_SORT_ORDER, url, dict(properties))
        place = load_location_provider(url, properties).new_table_metadata_file_location()
        return CreateTableTransaction(StagedTable(identifier, metadata, place, self._file_io, cast(Catalog, self)))

    @property
    def _file_io(self) -> FileIO:
        return load_file_io(dict(self.properties))

    def _folder(self, names: Identifier) -> Folder:
        return Folder("/".join([self.root.url, *names]), self.root.storage)

    def _folders(self, names: Identifier) -> list[str]:
        url = self._folder(names).url
        try:
            entries = self.root.file_system().ls(url, detail=True)
        except FileNotFoundError:
            return []
        found = (str(one["name"]).rstrip("/").rpartition("/")[2] for one in entries if one["type"] == "directory")
        return sorted(name for name in found if not name.startswith((".", "_")))

    def _newest(self, names: Identifier) -> tuple[int, str] | None:
        """Number and name of the newest metadata file. The hint may be old: it is written after the commit."""
        folder = self._folder(names)
        hinted = self._hinted(folder)
        if hinted is None:
            return max(self._listed(folder), default=None)
        newest = hinted
        while (following := self._existing(folder, newest[0] + 1)) is not None:
            newest = following
        return newest

    def _hinted(self, folder: Folder) -> tuple[int, str] | None:
        try:
            number = int(folder.read_file(f"metadata/{_NEWEST_NAME}"))
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        return self._existing(folder, number)

    def _existing(self, folder: Folder, number: int) -> tuple[int, str] | None:
        files = folder.file_system()
        for name in (f"v{number}.metadata.json", f"v{number}.gz.metadata.json", f"v{number}.metadata.json.gz"):
            if files.exists(f"{folder.url}/metadata/{name}"):
                return number, name
        return None

    def _listed(self, folder: Folder) -> Iterator[tuple[int, str]]:
        try:
            paths = folder.file_system().ls(f"{folder.url}/metadata", detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return
        for path in paths:
            name = str(path).rpartition("/")[2]
            if match := _VERSION.fullmatch(name):
                yield int(match[1]), name

    def _write_hint(self, folder: Folder, version: int) -> None:
        """It only makes reading faster: a failure is no failure of the commit."""
        with suppress(OSError, FlowctlError):
            folder.replace_file(f"metadata/{_NEWEST_NAME}", str(version).encode())


def _number(location: str) -> int:
    found = _VERSION.fullmatch(location.rpartition("/")[2])
    assert found is not None, location
    return int(found[1])
