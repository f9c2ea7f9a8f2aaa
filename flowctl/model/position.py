"""How far a target has consumed a source: typed, ordered within its kind, unchanged by JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from flowctl.model import binlog, codec, types, value
from flowctl.model.table_info import Column
from flowctl.model.value import TypedValue
from flowctl.text import counted

#: Partitions of a topic whose offsets are written out.
_LISTED = 4
_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
#: The greatest number that table formats, topics and file systems have.
_GREATEST = 2**63 - 1


@dataclass(frozen=True)
class NoPosition:
    """The source is always read in full."""


@dataclass(frozen=True)
class Ties:
    """The rows at a cursor position that append has written. More rows with this cursor may still arrive.

    ``counts`` maps each row hash (hex sha256, sorted) to its number of rows; None: any number, from an older flowctl
    that did not count. ``columns`` are the hashed columns (name, type and ``as_text`` only); None: that older flowctl
    did not record them. ``may_be_gone``: another definition was accepted since, so the source may no longer hold these
    rows.
    """

    counts: tuple[tuple[str, int | None], ...]
    columns: tuple[Column, ...] | None = None
    may_be_gone: bool = False

    @property
    def rows(self) -> int | None:
        """The total number of rows; None if they were not counted."""
        numbers = [number for _, number in self.counts if number is not None]
        return sum(numbers) if len(numbers) == len(self.counts) else None


@dataclass(frozen=True)
class CursorPosition:
    """Everything with a cursor up to ``at`` was consumed. ``ties`` are the rows at ``at`` that append has written;
    None: unknown, as after `flowctl state set`, or too many. Append then treats all of them as written. ``rows`` is the
    number of too many: no more may come."""

    at: TypedValue
    ties: Ties | None = None
    rows: int | None = None


@dataclass(frozen=True)
class FileStamp:
    """One consumed file: path relative to the connection, size in bytes, and the store's tag of its content (ETag, the
    generation in Google Cloud Storage, or modification time in nanoseconds on a disk)."""

    path: str
    size: int
    tag: str


@dataclass(frozen=True)
class FilesPosition:
    """A list of files, sorted by path: the files that exist now, or those that an older flowctl recorded as consumed.
    Consumed files are now recorded as a :class:`FileLogPosition`."""

    files: tuple[FileStamp, ...]


@dataclass(frozen=True)
class FileLogPosition:
    """The files consumed so far, as the newest entry of their log (`flowctl.model.file_log`). ``entry`` is the digest
    of that entry, ``count`` the number of files in the log."""

    entry: str
    count: int


@dataclass(frozen=True)
class VersionPosition:
    """A table format's own version number (Delta, Iceberg). ``table`` is the table's own id: a number means nothing for
    another table. ``stamp`` tells it from another version of that number, in a table that was restored from a copy and
    written again. ``schema`` is the id of the schema under which it was read, in a format whose versions do not have
    one of their own (Iceberg). Each is empty if it is unknown, as after `flowctl state set`."""

    version: int
    table: str = ""
    stamp: str = ""
    schema: str = ""

    def is_another(self, stamp: str) -> bool:
        """Whether ``stamp``, of what has this number now, shows that it is not the version that was recorded."""
        return "" not in (stamp, self.stamp) and stamp != self.stamp


@dataclass(frozen=True)
class UpstreamPosition:
    """For SQL tables: the committed sequence number of each upstream table, sorted by id."""

    sequences: tuple[tuple[str, int], ...]


@dataclass(frozen=True, order=True)
class LsnPosition:
    """A place in PostgreSQL's log: everything that committed before ``lsn``."""

    lsn: int

    def __str__(self) -> str:
        """``16/B374D848``, as PostgreSQL writes it."""
        return f"{self.lsn >> 32:X}/{self.lsn & 0xFFFFFFFF:X}"


@dataclass(frozen=True)
class BinlogPosition:
    """A place in the binary log of MySQL or MariaDB, as :mod:`flowctl.model.binlog` describes it. ``log`` identifies
    the file in which it was reached, because after `RESET MASTER` the same place means something else; empty if it is
    unknown."""

    place: str
    log: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.place

    @property
    def order(self) -> int:
        return binlog.order_of(self.place)

    def __gt__(self, other: BinlogPosition) -> bool:
        return self.order > other.order


@dataclass(frozen=True)
class LandedPosition:
    """How far a table has applied a change stream: everything up to captured batch ``batch``. ``since`` is the moment
    of the table's snapshot, which has what committed before it; ``at`` is where the batch ends. Both are positions of
    the source, as text."""

    batch: int
    at: str = ""
    since: str = ""


@dataclass(frozen=True)
class OffsetsPosition:
    """For a topic: the offset of the next message of each partition, sorted by partition. ``truncated`` is the place in
    the source's log of the newest truncate that was applied: older changes may still come, from other partitions, or
    because they are sent again. Empty: none, or changes have no such order."""

    offsets: tuple[tuple[int, int], ...]
    truncated: str = ""

    def of(self, partition: int) -> int | None:
        """None for a partition that did not exist."""
        return dict(self.offsets).get(partition)

    def or_else(self, other: OffsetsPosition) -> OffsetsPosition:
        """This position, and that of ``other`` for the partitions that it lacks."""
        return replace(self, offsets=tuple(sorted({**dict(other.offsets), **dict(self.offsets)}.items())))

    def messages_since(self, lower: OffsetsPosition | None) -> int:
        """How many offsets lie between ``lower`` and this position: at least as many as there are messages."""
        since = dict(lower.offsets) if lower is not None else {}
        return sum(max(0, offset - since.get(partition, 0)) for partition, offset in self.offsets)


Position = (
    NoPosition
    | CursorPosition
    | FilesPosition
    | FileLogPosition
    | VersionPosition
    | UpstreamPosition
    | LsnPosition
    | BinlogPosition
    | LandedPosition
    | OffsetsPosition
)


def lsn_from_text(text: str) -> LsnPosition:
    """``ValueError`` for anything but ``16/B374D848``."""
    match = _LSN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no place in PostgreSQL's log")
    return LsnPosition(int(match[1], 16) << 32 | int(match[2], 16))


def comparable(one: Position, other: Position) -> bool:
    """Whether one of them is further in the log than the other, or both are equal."""
    if isinstance(one, BinlogPosition) and isinstance(other, BinlogPosition):
        return binlog.comparable(one.place, other.place)
    return type(one) is type(other)


def order_of(position: Position) -> int:
    """Where a place in a log is among the ``lsn`` of captured rows: those below committed before it."""
    match position:
        case LsnPosition(lsn):
            return lsn
        case BinlogPosition():
            return position.order
        case _:
            raise ValueError(f"{position} is no place in a log")


def order_of_moment(since: str) -> int:
    """As :func:`order_of`, of :attr:`LandedPosition.since`; 0 if there was no moment."""
    if not since:
        return 0
    return order_of(lsn_from_text(since) if _LSN.fullmatch(since) else place_from_text(since))


def place_from_text(text: str) -> BinlogPosition:
    """``ValueError`` for anything but a place in a binary log."""
    binlog.order_of(text)
    return BinlogPosition(text)


def to_json(position: Position) -> dict[str, Any]:
    match position:
        case NoPosition():
            return {"kind": "none"}
        case CursorPosition(at, ties, rows):
            written = _ties_to_json(ties) if ties is not None else {} if rows is None else {"rows": rows}
            return {"kind": "cursor", **codec.to_json(at), **written}
        case FilesPosition(files):
            return {"kind": "files", "files": codec.to_json(files)}
        case FileLogPosition(entry, count):
            return {"kind": "files", "log": entry, "count": count}
        case VersionPosition(version, table, stamp, schema):
            named = {"table": table, "stamp": stamp, "schema": schema}
            return {"kind": "version", "version": version, **{key: text for key, text in named.items() if text}}
        case UpstreamPosition(sequences):
            return {"kind": "upstream", "sequences": dict(sequences)}
        case LsnPosition():
            return {"kind": "lsn", "lsn": str(position)}
        case BinlogPosition(place, log):
            return {"kind": "binlog", "at": place, **({"log": log} if log else {})}
        case LandedPosition(batch, at, since):
            return {"kind": "landed", "batch": batch, "at": at, "since": since}
        case OffsetsPosition(offsets, truncated):
            listed = {str(partition): offset for partition, offset in offsets}
            return {"kind": "offsets", "offsets": listed, **({"truncated": truncated} if truncated else {})}
        case _:
            assert_never(position)


def from_json(document: Mapping[str, Any]) -> Position:
    """Reads what :func:`to_json` wrote. Raises ``ValueError`` for an unknown kind (written by a newer flowctl) and for
    values that no source has; ``KeyError``, ``TypeError`` or ``ArithmeticError`` for other documents: people write
    positions, too."""
    match document["kind"]:
        case "none":
            return NoPosition()
        case "cursor":
            rows = document.get("rows")
            number = None if rows is None else _number(rows)
            return CursorPosition(value.from_json(document), _ties_from_json(document), number)
        case "files" if "log" in document:
            return FileLogPosition(_text(document["log"]), _number(document["count"]))
        case "files":
            return codec.from_json(FilesPosition, document)
        case "version":
            named = (_text(document.get(key, "")) for key in ("table", "stamp", "schema"))
            return VersionPosition(_number(document["version"]), *named)
        case "upstream":
            sequences = _object(document["sequences"]).items()
            return UpstreamPosition(tuple(sorted((table, _number(seq)) for table, seq in sequences)))
        case "lsn":
            return lsn_from_text(_text(document["lsn"]))
        case "binlog":
            return replace(place_from_text(_text(document["at"])), log=_text(document.get("log", "")))
        case "landed":
            return LandedPosition(_number(document["batch"]), _text(document["at"]), _text(document["since"]))
        case "offsets":
            listed = _object(document["offsets"]).items()
            offsets = sorted((_number(int(partition)), _number(offset)) for partition, offset in listed)
            return OffsetsPosition(tuple(offsets), _text(document.get("truncated", "")))
        case kind:
            raise ValueError(f"unknown position kind {kind!r}; a newer flowctl wrote it")


def _number(given: object) -> int:
    """``bool`` is an ``int`` of Python, and ``3`` is not ``"3"`` when it is compared."""
    if type(given) is not int or not 0 <= given <= _GREATEST:
        raise ValueError(f"{given!r} is no number from 0 to {_GREATEST}")
    return given


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise ValueError(f"{given!r} is no text")
    return given


def _object(given: object) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ValueError(f"{given!r} is no object")
    return given


def _stamp_from_json(document: Sequence[Any]) -> FileStamp:
    path, size, tag = document
    return FileStamp(_text(path), _number(size), _text(tag))


codec.has_form(FileStamp, lambda stamp: [stamp.path, stamp.size, stamp.tag], _stamp_from_json)
codec.has_form(Position, to_json, from_json)


def _ties_to_json(ties: Ties) -> dict[str, Any]:
    """``tie_hashes`` is the older form, without columns and counts."""
    gone = {"ties_may_be_gone": True} if ties.may_be_gone else {}
    if ties.columns is None:
        return {"tie_hashes": [row_hash for row_hash, _ in ties.counts], **gone}
    columns = [[column.name, str(column.type), *(["text"] if column.as_text else [])] for column in ties.columns]
    return {"ties": {"columns": columns, "rows": dict(ties.counts)}, **gone}


def _ties_from_json(document: Mapping[str, Any]) -> Ties | None:
    gone = bool(document.get("ties_may_be_gone", False))
    match document:
        case {"ties": {"columns": columns, "rows": rows}}:
            read = (Column(_text(name), types.parse(_text(kind)), as_text=bool(more)) for name, kind, *more in columns)
            counts = (
                (row_hash, None if count is None else _number(count)) for row_hash, count in _object(rows).items()
            )
            return Ties(tuple(sorted(counts)), tuple(read), gone)
        case {"tie_hashes": hashes} if hashes is not None:
            return Ties(tuple((row_hash, None) for row_hash in sorted(map(_text, hashes))), may_be_gone=gone)
        case _:
            return None


def readable(position: Position | None) -> str:
    """Returns one short phrase for display, with times in a readable form."""
    return position.at.readable() if isinstance(position, CursorPosition) else describe(position)


def describe(position: Position | None) -> str:
    """Returns one short phrase for display, with exact bounds."""
    match position:
        case None:
            return "the beginning"
        case NoPosition():
            return "always reads in full"
        case CursorPosition(at):
            return at.text()
        case FilesPosition(files):
            return counted(len(files), "file")
        case FileLogPosition(_, count):
            return counted(count, "file")
        case VersionPosition(version):
            return f"version {version}"
        case UpstreamPosition(sequences):
            return ", ".join(f"{table}#{seq}" for table, seq in sequences)
        case LsnPosition() | BinlogPosition():
            return str(position)
        case LandedPosition(batch, at):
            return f"{at} (batch {batch})" if at else f"batch {batch}"
        case OffsetsPosition(offsets):
            return _offsets_text(offsets)
        case _:
            assert_never(position)


def _offsets_text(offsets: tuple[tuple[int, int], ...]) -> str:
    """``offset 120``, ``offsets 0:120 1:98``, or, of many partitions, their sum."""
    match offsets:
        case ((0, offset),):
            return f"offset {offset}"
        case _ if len(offsets) <= _LISTED:
            return " ".join(["offsets", *(f"{partition}:{offset}" for partition, offset in offsets)])
        case _:
            return f"{len(offsets)} offsets, {sum(offset for _, offset in offsets):,} in all"
