"""Columns that a file's path has: partitions (folders named ``name=value``, as Hive has them) and the path itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from urllib.parse import unquote

from flowctl.connectors.files.formats import Format
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column

#: What Hive and Spark write for null.
_NULL = "__HIVE_DEFAULT_PARTITION__"


def path_columns(format: Format) -> tuple[Column, ...]:
    """The columns that each file's path has, in order."""
    own = (Column(SOURCE_FILE, types.STRING, nullable=False),) if format.has_source_file else ()
    return (*format.partitions, *own)


def path_texts(format: Format, path: str) -> tuple[str | None, ...]:
    """The texts of these columns. Raises ``TableError`` for a path that lacks a partition, has others, or a value
    that is not of its type."""
    own = (path,) if format.has_source_file else ()
    if not format.partitions:
        return own
    found = levels_of(path)
    for column in format.partitions:
        if column.name not in found:
            has = f"only {_listed(list(found))}" if found else "no folder of that form"
            raise TableError(
                f"{path} is in no folder {column.name}=…, which format.partitions names: its path has {has}",
                hint="Move the file, or leave it out of the pattern in `from`",
            )
        _require_fitting(column, found[column.name], path)
    names = {column.name for column in format.partitions}
    if others := [name for name in found if name not in names]:
        raise TableError(
            f"{path} is in a folder {others[0]}=…, which format.partitions does not name",
            hint=f"Add {others[0]} with its type to `format.partitions`, or correct the pattern in `from`",
        )
    return (*(found[column.name] for column in format.partitions), *own)


def with_path_columns(format: Format, path: str, columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """A file's own ``columns`` and those of its path. Raises ``TableError`` if both have one of the same name."""
    path_texts(format, path)
    own = path_columns(format)
    names = {column.name.lower() for column in own}
    if twice := next((column.name for column in columns if column.name.lower() in names), None):
        if twice.lower() == SOURCE_FILE:
            raise TableError(
                f"{path} has a column {twice}, the name that format.source_file gives to its path",
                hint="Remove `format.source_file`, or rename the column in the files",
            )
        raise TableError(
            f"{path} has a column {twice}, and a folder {twice}=… in its path",
            hint=f"Leave {twice} out of `format.partitions` by removing that key, or the column out of the files",
        )
    return (*columns, *own)


def levels_of(path: str) -> Mapping[str, str | None]:
    """The folders of a path that are named ``name=value``, decoded."""
    found: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        name, sign, value = folder.partition("=")
        if not sign or not name:
            continue
        name, text = unquote(name), None if value == _NULL else _decoded(value, path)
        if name in found:
            raise TableError(f"{path} is in two folders {name}=…", hint="Correct the pattern in `from`")
        found[name] = text
    return found


def _decoded(value: str, path: str) -> str:
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise TableError(f"{path}: the folder {value} is not encoded as UTF-8", hint="Rename the folder") from None


def _require_fitting(column: Column, text: str | None, path: str) -> None:
    if not _fits(column, text):
        raise TableError(
            f"{path}: the folder of {column.name} has a value that is not exactly {types.short(column.type)}",
            hint=f"Rename the folder, or set {column.name} to string in `format.partitions`",
        )


@lru_cache(maxsize=10_000)
def _fits(column: Column, text: str | None) -> bool:
    import pyarrow as pa

    from flowctl.connectors.csv_text import Misfit, converted
    from flowctl.connectors.files.own_reading import field_of

    try:
        converted(pa.array([text], pa.string()), field_of(column))
    except Misfit:
        return False
    return True


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"{name}=…" for name in names)


#: The column of ``format.source_file``.
SOURCE_FILE = "_source_file"
