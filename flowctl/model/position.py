"""How far a target has consumed a source: typed, ordered within its kind, and equal after a trip through JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from flowctl.model import value
from flowctl.model.value import TypedValue


@dataclass(frozen=True)
class NoPosition:
    """The source is always read in full."""


@dataclass(frozen=True)
class CursorPosition:
    """Everything with a cursor up to ``at`` was consumed. ``tie_hashes`` are the row hashes (hex sha256, sorted) of
    the rows whose cursor equals ``at`` that append has written: such rows may still arrive. None: nobody knows which,
    as after `flowctl state set`; append then takes all of them for written."""

    at: TypedValue
    tie_hashes: tuple[str, ...] | None = None


@dataclass(frozen=True)
class FileStamp:
    """One consumed file: path relative to the connection, bytes, and the store's own tag of its content
    (ETag, or modification time in nanoseconds on a disk)."""

    path: str
    size: int
    tag: str


@dataclass(frozen=True)
class FilesPosition:
    """The files consumed so far, sorted by path; each is read once."""

    files: tuple[FileStamp, ...]


@dataclass(frozen=True)
class VersionPosition:
    """A table format's own version number (Delta, Iceberg)."""

    version: int


@dataclass(frozen=True)
class UpstreamPosition:
    """For SQL tables: the committed sequence number of each table it reads, sorted by id."""

    sequences: tuple[tuple[str, int], ...]


Position = NoPosition | CursorPosition | FilesPosition | VersionPosition | UpstreamPosition


def to_json(position: Position) -> dict[str, Any]:
    match position:
        case NoPosition():
            return {"kind": "none"}
        case CursorPosition(at, ties):
            return {"kind": "cursor", **at.to_json(), **({"tie_hashes": list(ties)} if ties is not None else {})}
        case FilesPosition(files):
            return {"kind": "files", "files": [[stamp.path, stamp.size, stamp.tag] for stamp in files]}
        case VersionPosition(version):
            return {"kind": "version", "version": version}
        case UpstreamPosition(sequences):
            return {"kind": "upstream", "sequences": dict(sequences)}
        case _:
            assert_never(position)


def from_json(document: Mapping[str, Any]) -> Position:
    """Reads what :func:`to_json` wrote; ``ValueError`` for an unknown kind (a newer flowctl's)."""
    match document["kind"]:
        case "none":
            return NoPosition()
        case "cursor":
            ties = document.get("tie_hashes")
            return CursorPosition(value.from_json(document), tuple(ties) if ties is not None else None)
        case "files":
            return FilesPosition(tuple(FileStamp(*entry) for entry in document["files"]))
        case "version":
            return VersionPosition(document["version"])
        case "upstream":
            return UpstreamPosition(tuple(sorted(document["sequences"].items())))
        case kind:
            raise ValueError(f"unknown position kind {kind!r}; a newer flowctl wrote it")


def describe(position: Position | None) -> str:
    """For people: one short phrase."""
    match position:
        case None:
            return "the beginning"
        case NoPosition():
            return "always reads in full"
        case CursorPosition(at):
            return at.text()
        case FilesPosition(files):
            return f"{len(files)} files"
        case VersionPosition(version):
            return f"version {version}"
        case UpstreamPosition(sequences):
            return ", ".join(f"{table}#{seq}" for table, seq in sequences)
        case _:
            assert_never(position)
