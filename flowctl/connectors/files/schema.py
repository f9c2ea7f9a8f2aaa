"""The columns of files: of each one, and of all together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from flowctl.connectors.files.formats import Format, columns_of_file
from flowctl.connectors.files.listing import FileRoot
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.position import FileStamp
from flowctl.model.table_info import Column

_PARALLEL = 16


def columns_of(root: FileRoot, format: Format, stamps: Sequence[FileStamp]) -> dict[str, tuple[Column, ...]]:
    """The columns of each file by its path, read side by side."""
    system, base = root.file_system()

    def read(stamp: FileStamp) -> tuple[Column, ...]:
        compression = "infer" if format.is_text else None
        return columns_of_file(
            format, lambda: system.open(f"{base}/{stamp.path}", "rb", compression=compression), stamp.path
        )

    with ThreadPoolExecutor(_PARALLEL) as pool:
        return dict(zip((stamp.path for stamp in stamps), pool.map(read, stamps), strict=True))


def merged(found: Mapping[str, tuple[Column, ...]]) -> tuple[Column, ...]:
    """The columns of all files, in the order in which they appear; nullable where a file does not have them. A column
    may be wider in some files; any other difference of types is an error that names both files."""
    columns: dict[str, Column] = {}
    origin: dict[str, str] = {}
    for path, of_file in found.items():
        for column in of_file:
            before = columns.get(column.name)
            columns[column.name] = column if before is None else _common(before, column, origin[column.name], path)
            origin.setdefault(column.name, path)
    everywhere = set.intersection(*({column.name for column in of_file} for of_file in found.values()))
    return tuple(column if column.name in everywhere else replace(column, nullable=True) for column in columns.values())


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
