"""The columns of each file, and of all files together."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from flowctl.connectors.files.compressed import is_compressed, open_bytes
from flowctl.connectors.files.formats import (
    Format,
    check_delimiters,
    columns_of_file,
    marked_encoding,
    require_known_codec,
    without_mark,
)
from flowctl.connectors.files.listing import FileRoot
from flowctl.connectors.files.path_columns import with_path_columns
from flowctl.errors import AccessDenied, FlowctlError, TableError, TransientError
from flowctl.model import types
from flowctl.model.position import FileStamp
from flowctl.model.table_info import Column
from flowctl.storage import access

_PARALLEL = 16
#: What a store is asked for beyond the bytes that are read: s3fs would fetch the next 50 MiB for a header.
_HEADER_BYTES = 1 << 16


def columns_of(root: FileRoot, format: Format, stamps: Sequence[FileStamp]) -> dict[str, tuple[Column, ...]]:
    """The columns of each file by its path, read in parallel. The error for a file that cannot be read names it."""
    return columns_where_open(root, format, stamps, ())[0]


def columns_where_open(
    root: FileRoot, format: Format, stamps: Sequence[FileStamp], may_be_closed: Collection[FileStamp]
) -> tuple[dict[str, tuple[Column, ...]], dict[str, FlowctlError]]:
    """As :func:`columns_of`, without those of ``may_be_closed`` that cannot be read, and why they cannot: a store has
    archived them, say. A store that does not answer is still an error."""
    system, base = root.file_system()

    def read(stamp: FileStamp) -> tuple[Column, ...] | FlowctlError:
        if format.is_text:
            require_known_codec(stamp.path)
        opening = open_bytes if format.is_text else _open_file
        opened = partial(opening, system, f"{base}/{stamp.path}", _HEADER_BYTES)
        try:
            columns = columns_of_file(format, opened, stamp.path)
            return with_path_columns(format, stamp.path, columns)
        except FlowctlError:
            raise
        except Exception as error:  # whatever a codec, a reader or a store raises
            why = _unreadable(root, format, stamp.path, error)
            if stamp not in may_be_closed or isinstance(why, TransientError):
                raise why from error
            return why

    with ThreadPoolExecutor(_PARALLEL) as pool:
        results = dict(zip((stamp.path for stamp in stamps), pool.map(read, stamps), strict=True))
    found = {path: columns for path, columns in results.items() if not isinstance(columns, FlowctlError)}
    check_delimiters(format, found)
    return found, {path: why for path, why in results.items() if isinstance(why, FlowctlError)}


def _open_file(system: Any, path: str, block_bytes: int) -> Any:
    return system.open(path, "rb", block_size=block_bytes)


def require_line_feeds(root: FileRoot, format: Format, paths: Sequence[str]) -> None:
    """``TableError`` for a CSV whose first row ends in a carriage return: if values may have line breaks, Spark's own
    reader takes the first one in a file as its line ending and replaces it with line feeds, also in values."""
    import csv

    system, base = root.file_system()

    def ends_in_return(path: str) -> bool:
        with open_bytes(system, f"{base}/{path}", _HEADER_BYTES) as raw:
            text = io.TextIOWrapper(raw, encoding=format.csv.encoding, newline="")
            lines: list[str] = []
            next(csv.reader(_kept(without_mark(text), lines), quotechar=format.csv.quote), None)
            return any(line.endswith(("\r", "\r\n")) for line in (*lines[:1], *lines[-1:]))

    with ThreadPoolExecutor(_PARALLEL) as pool:
        for path, found in zip(paths, pool.map(ends_in_return, paths), strict=True):
            if found:
                raise TableError(
                    f"{path} has lines that end in a carriage return, so Spark would change line breaks within values",
                    hint="Write it with line feeds alone; without format.escape, spark.url local[*] reads it as it is",
                )


def _kept(lines: Iterable[str], taken: list[str]) -> Iterator[str]:
    for line in lines:
        taken.append(line)
        yield line


def _unreadable(root: FileRoot, format: Format, path: str, error: Exception) -> FlowctlError:
    """The error for one file, without the file's content. Only errors of the store itself are transient."""
    import csv

    match error:
        case FileNotFoundError():
            return TableError(f"{path} was removed after it was listed", hint="Plan again")
        case OSError() if not root.is_local and (refusal := access.refused_access(error)):
            return AccessDenied(f"{root.url}/{path} refuses access: {refusal}", hint=access.HINT)
        case OSError() if not root.is_local and (error.errno is not None or isinstance(error, ConnectionError)):
            return TransientError(f"{root.url}/{path} cannot be read: {error}", hint="Check the store")
        case PermissionError():
            return TableError(f"{path} cannot be read: permission denied", hint="Let this user read the file")
        case OSError(strerror=str(reason)):
            return TableError(f"{path} cannot be read: {reason}", hint="Check the disk and the file")
        case UnicodeError():
            system, base = root.file_system()
            with open_bytes(system, f"{base}/{path}", _HEADER_BYTES) as stream:
                marked = marked_encoding(stream.read(4))
            hint = "Fix it, or set its encoding with `format.encoding`"
            hint = f"Set `format.encoding: {marked}`, whose mark it begins with" if marked else hint
            return TableError(f"{path} is not {format.csv.encoding} text", hint=hint)
        case csv.Error():
            hint = "Fix the file, or set format: delimiter, quote, escape or header"
            return TableError(f"{path}: its header cannot be read: {error}", hint=hint)
        case _ if format.is_text and is_compressed(path):
            hint = "Replace it, or leave it out of the pattern in `from`"
            return TableError(f"{path} is not compressed as its name indicates, or is incomplete", hint=hint)
        case _:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            hint = "Replace it, or leave it out of the pattern in `from`"
            return TableError(f"{path} cannot be read as {format.name}: {reason}", hint=hint)


def merged(found: Mapping[str, tuple[Column, ...]]) -> tuple[Column, ...]:
    """The columns of all files, in order of appearance; nullable if a file does not have them. A column may be wider in
    some files; any other difference of types is an error that names both files."""
    columns: dict[str, Column] = {}
    origin: dict[str, str] = {}
    for path, of_file in found.items():
        for column in of_file:
            before = columns.get(column.name)
            common = column if before is None else _common(before, column, origin[column.name], path)
            if before is None or common.type != before.type:
                origin[column.name] = path  # the first file of that type
            columns[column.name] = common
    everywhere = set.intersection(*({column.name for column in of_file} for of_file in found.values()))
    return tuple(column if column.name in everywhere else replace(column, nullable=True) for column in columns.values())


def with_recorded(
    found: Mapping[str, tuple[Column, ...]], recorded: Sequence[Column]
) -> Mapping[str, tuple[Column, ...]]:
    """With the columns that were ``recorded`` of files that cannot be opened, as one more file. Their types are those
    that other files have now."""
    if not recorded:
        return found
    now = {column.name: column for column in merged(found)} if found else {}
    return {"": tuple(now.get(column.name, column) for column in recorded), **found}


def only_without(found: Mapping[str, tuple[Column, ...]]) -> dict[str, tuple[str, ...]]:
    """For each column that some files lack, the columns that only such files have: one of them may be its new name."""
    headers = {tuple(column.name for column in of_file) for of_file in found.values()}
    if len(headers) < 2:
        return {}
    everywhere = set.intersection(*map(set, headers))
    others: dict[str, tuple[str, ...]] = {}
    for name in set().union(*headers) - everywhere:
        beside = set().union(*(header for header in headers if name in header))
        others[name] = tuple(sorted(set().union(*(header for header in headers if name not in header)) - beside))
    return {name: those for name, those in others.items() if those}


def lacking(found: Mapping[str, tuple[Column, ...]], columns: Iterable[Column]) -> dict[str, str]:
    """For each of ``columns`` that a file in ``found`` lacks, the first such file."""
    wanted = [column.name for column in columns]
    first: dict[str, str] = {}
    for path, of_file in found.items():
        for name in set(wanted).difference(column.name for column in of_file):
            first.setdefault(name, path)
    return {name: first[name] for name in wanted if name in first}


def _common(one: Column, other: Column, path: str, other_path: str) -> Column:
    nullable = one.nullable or other.nullable
    if one.type == other.type or types.is_wider(one.type, other.type):
        return replace(one, nullable=nullable)
    if types.is_wider(other.type, one.type):
        return replace(other, nullable=nullable)
    raise TableError(
        f"column {one.name} is {types.short(one.type)} in {path} and {types.short(other.type)} in {other_path}",
        hint="Read them as two tables, or rewrite one",
    )
