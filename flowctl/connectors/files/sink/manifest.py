"""A manifest: everything that a table is after one commit.

A table is a folder of data files with unique names. ``_flowctl/commits/<version>.json`` is created if absent: this *is*
the commit, so of racing writers one has the version, and the others look again. The highest version counts. It lists
all files of the table, the columns, and the newest commit of each ``(lineage, table)`` that has written it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flowctl.errors import TableError
from flowctl.model import codec
from flowctl.model.commit import Commit, commit_from_record
from flowctl.model.table_info import Column
from flowctl.spec.files_layout import FileFormat, FilesLayout

_FORMAT = 1
_ENDING = ".json"


@dataclass(frozen=True)
class DataFile:
    """``path`` is relative to the table's folder; ``size`` in bytes."""

    path: str
    rows: int
    size: int


@dataclass(frozen=True)
class Dialect:
    """How the table's text files are written, which a reader of one of them must know."""

    format: FileFormat = "parquet"
    header: bool = True
    delimiter: str = ","
    quote: str = '"'
    null_value: str = ""


def dialect_of(layout: FilesLayout) -> Dialect:
    if layout.format != "csv":
        return Dialect(layout.format)
    return Dialect("csv", layout.header, layout.delimiter, layout.quote, layout.null_value)


@dataclass(frozen=True)
class Manifest:
    """``id`` is empty as long as nothing but voids was committed: then there is no table yet."""

    version: int = 0
    id: str = ""
    dialect: Dialect = Dialect()
    columns: tuple[Column, ...] = ()
    files: tuple[DataFile, ...] = ()
    commits: Mapping[str, Commit] = field(default_factory=dict)

    def newest(self, lineage: str, table: str) -> Commit | None:
        return self.commits.get(_key(lineage, table))

    def with_commit(self, commit: Commit) -> Mapping[str, Commit]:
        return {**self.commits, _key(commit.lineage, commit.table): commit}

    def columns_with(self, columns: Sequence[Column]) -> tuple[Column, ...]:
        """Those of the table once ``columns`` are written without replacing its content: other flows may have more."""
        return tuple({column.name: column for column in (*self.columns, *columns)}.values())

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def to_json(self) -> bytes:
        document = {
            "flowctl_files": _FORMAT,
            "id": self.id,
            "dialect": codec.to_json(self.dialect),
            "columns": [codec.to_json(column) for column in self.columns],
            "files": [codec.to_json(file) for file in self.files],
            "commits": {key: commit.record() for key, commit in self.commits.items()},
        }
        return json.dumps(document, ensure_ascii=False, indent=1).encode()


def manifest_of(version: int, content: bytes, place: str) -> Manifest:
    """``place`` is for errors."""
    try:
        document: Mapping[str, Any] = json.loads(content)
        if document["flowctl_files"] != _FORMAT:
            raise TableError(f"{place} was written by a newer flowctl", hint="Install a newer flowctl")
        return Manifest(
            version,
            document["id"],
            codec.from_json(Dialect, document["dialect"]),
            tuple(codec.from_json(Column, column) for column in document["columns"]),
            tuple(codec.from_json(DataFile, file) for file in document["files"]),
            {key: commit_from_record(record) for key, record in document["commits"].items()},
        )
    except (ValueError, KeyError, TypeError) as error:
        raise TableError(f"{place} is no manifest of flowctl", hint="Restore it, or move the folder away") from error


def file_name(version: int) -> str:
    return f"{version:020d}{_ENDING}"


def version_of(name: str) -> int | None:
    """None for another file."""
    digits = name.removesuffix(_ENDING)
    return int(digits) if name.endswith(_ENDING) and digits.isdecimal() and digits.isascii() else None


def _key(lineage: str, table: str) -> str:
    return f"{lineage}/{table}"
