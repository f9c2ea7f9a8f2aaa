"""What `flowctl init` proposes for the files below one root: which of them are one table, and how they are read."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from flowctl.connectors.files.compressed import open_bytes
from flowctl.connectors.files.formats import by_extension
from flowctl.connectors.files.grouping import Group, groups_of, merged
from flowctl.connectors.files.listing import FileRoot, all_paths, shown_path
from flowctl.connectors.files.path_columns import levels_of
from flowctl.connectors.files.samples import CSV_BYTES, FILES, csv_format, csv_types, json_schema
from flowctl.connectors.lake.stored_files import folders_of_tables
from flowctl.connectors.source import Relation
from flowctl.connectors.survey import Details, Survey, Surveyed, Wanted
from flowctl.errors import FlowctlError
from flowctl.model.table_info import ObjectName, TableInfo
from flowctl.spec.node import flow_text

if TYPE_CHECKING:
    from flowctl.connectors.files.source import FilesSource

#: Of how many single files in a folder the columns are compared.
_COMPARED = 200


def survey_files(source: FilesSource, wanted: Wanted) -> Survey:
    everything, visible = all_paths(source.root)
    of_tables = folders_of_tables((f"/{path}" for path in everything), [""])  # which of their files count, logs say
    paths = [path for path in visible if not f"/{path}".startswith(of_tables)]
    known = [path for path in paths if by_extension(path) and wanted(ObjectName((shown_path(path),)))]
    unnamed = [path for path in known if shown_path(path) != path]
    groups = groups_of(path for path in known if shown_path(path) == path)
    tables = [_surveyed(source, group) for group in groups]
    return Survey((*_together(source, tables), *map(_unnamed, unnamed)))


def _unnamed(path: str) -> Surveyed:
    """A file whose name is no text, which stops every table that it belongs to."""
    object = ObjectName((shown_path(path),))
    refused = "its name is not UTF-8. Rename it"
    return Surveyed(object, None, Details(refused=refused), {}, False, object.parts)


def _surveyed(source: FilesSource, group: Group) -> Surveyed:
    format, notes = _format(source.root, group)
    object = ObjectName((group.pattern,))
    if partitions := _partitions(group.paths):
        with_them = {**format, "partitions": partitions}
        with suppress(FlowctlError):  # files have these columns themselves, or cannot be read
            info = _described(source, object, with_them)
            return Surveyed(object, info, Details(), with_them, group.is_many, group.name, notes)
    try:
        info, refused = _described(source, object, format), ""
    except FlowctlError as error:
        info, refused = None, f"{error.message}. {error.hint}" if error.hint else error.message
    return Surveyed(object, info, Details(refused=refused), format, group.is_many, group.name, notes)


def _partitions(paths: Sequence[str]) -> dict[str, str]:
    """The columns that all paths have, with types that fit; empty if some lack one."""
    try:
        levels = [levels_of(path) for path in paths]
    except FlowctlError:
        return {}
    names = list(levels[0])
    if any(set(level) != set(names) for level in levels):
        return {}
    rows = [[level[name] or "" for name in names] for level in levels]
    return {name: csv_types([names, *rows]).get(name, "string") for name in names}


def _described(source: FilesSource, object: ObjectName, format: Mapping[str, Any]) -> TableInfo | None:
    relation = Relation(object, format=format)
    return source.describe([relation])[relation]


def _format(root: FileRoot, group: Group) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The keys of `format`, and what is to be decided about them."""
    system, base = root.file_system()
    looked_at = [group.paths[0], *group.paths[-(FILES - 1) :]] if len(group.paths) > 1 else list(group.paths)
    opened = [partial(open_bytes, system, f"{base}/{path}", CSV_BYTES) for path in dict.fromkeys(looked_at)]
    try:
        match by_extension(group.paths[0]):
            case "csv":
                found = [csv_format(one) for one in opened]
                format = {key: value for one, _ in reversed(found) for key, value in one.items()}
                return format, tuple(_about_csv(format, csv_types(found[0][1])))
            case "jsonl":
                schema, is_whole = json_schema(opened)
                return ({"schema": schema} if schema else {}), tuple(_about_json(group, is_whole, len(opened)))
            case _:
                return {}, ()
    except (OSError, EOFError, ValueError, zlib.error):
        return {}, ()  # describing the file fails with the reason


def _about_csv(format: Mapping[str, Any], kinds: Mapping[str, str]) -> Sequence[str]:
    notes = []
    if "encoding" in format:
        notes.append(f"the file is no UTF-8, so it is read as {format['encoding']}")
    if kinds:
        notes.append(f"all columns are text; the first rows fit format: {flow_text({'schema': dict(kinds)})}")
    return notes


def _about_json(group: Group, is_whole: bool, looked_at: int) -> Sequence[str]:
    if is_whole and looked_at == len(group.paths):
        return ()
    return ("format.schema has the columns and types of the first lines; columns that it lacks are not read",)


def _together(source: FilesSource, tables: Sequence[Surveyed]) -> list[Surveyed]:
    """Single files of one folder below the root that have the same columns become one table."""
    by_folder: dict[tuple[str, str], list[Surveyed]] = {}
    for table in tables:
        path = table.object.parts[-1]
        folder, _, name = path.rpartition("/")
        is_single = not table.is_many and folder
        by_folder.setdefault((folder, name.partition(".")[2]) if is_single else (path, ""), []).append(table)
    found: list[Surveyed] = []
    for same in by_folder.values():
        if 1 < len(same) <= _COMPARED and _are_alike(same):
            singles = [Group(one.object.parts[-1], (_path(one),), False, one.name) for one in same]
            found.append(_surveyed(source, merged(singles)))
        else:
            found += same
    return found


def _are_alike(tables: Sequence[Surveyed]) -> bool:
    infos = [table.info for table in tables]
    shapes = {tuple(column.name for column in info.columns) for info in infos if info is not None}
    return None not in infos and len(shapes) == 1


def _path(table: Surveyed) -> str:
    """Of a single file: its pattern without escapes."""
    path = table.object.parts[-1]
    for sign in "*?[":
        path = path.replace(f"[{sign}]", sign)
    return path
