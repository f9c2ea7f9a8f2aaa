"""What no engine can do with files, and what Sail cannot do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from flowctl.connectors.files.formats import Format, format_of, own_only, require_types
from flowctl.connectors.gaps import Gap
from flowctl.engine.session import SAIL
from flowctl.errors import TableError
from flowctl.spec.spec import Connection, ObjectSource, TableSpec

GAPS: Mapping[str, str] = {
    "format.csv": "pyarrow reads CSV there, with doubled quotes and a one-character delimiter",
}


def refuses(table: TableSpec) -> tuple[str, str] | None:
    """Refuses files of an unknown format, and keys and types that the format does not have."""
    if not isinstance(table.source, ObjectSource):
        return None
    if refused := misplaced_folders("/".join(table.source.parts)):
        return refused
    try:
        format = format_of("/".join(table.source.parts), table.format)
        require_types(format)
    except TableError as error:
        return error.message, error.hint
    if format.keeps_bad_rows and not format.is_text:
        what = f"`format.on_fail: quarantine` is for rows of csv and jsonl: a bad {format.name} file is bad as a whole"
        return what, "Remove `format.on_fail`"
    if format.keeps_bad_rows and table.columns.mask:
        what = "`format.on_fail: quarantine` keeps the text of whole rows: with the values that `columns.mask` hides"
        return what, "Remove one of the two; without `format.on_fail`, the first bad row stops the table"
    if format.name == "csv" and not format.is_common_csv and (key := own_only(format)):
        what = f"{key} cannot be combined with `format.escape` or a delimiter of more than one character"
        return what, "Remove one of the two"
    return None


def misplaced_folders(pattern: str) -> tuple[str, str] | None:
    """Refuses ``**`` beside other characters in one part of a path."""
    names = pattern.split("/")
    at = next((at for at, name in enumerate(names) if "**" in name and name != "**"), None)
    if at is None:
        return None
    meant = [*names[:at], *(["**"] if names[at - 1 : at] != ["**"] else []), re.sub("[*]+", "*", names[at])]
    what = f"`**` stands for folders, so nothing else can be in its part of the path: {names[at]}"
    return what, f"Write {'/'.join([*meant, *names[at + 1 :]])}"


def of_spec(engine: str, connection: Connection, table: TableSpec) -> Iterator[Gap]:
    """See :class:`flowctl.connectors.base.Capabilities`."""
    if engine == SAIL and _reads(table, connection) and (format := _format(table)) is not None:
        yield from [Gap("from", GAPS["format.csv"])] if format.name == "csv" and not format.is_common_csv else []


def _reads(table: TableSpec, connection: Connection) -> bool:
    return isinstance(table.source, ObjectSource) and table.source.connection == connection.name


def _format(table: TableSpec) -> Format | None:
    """None if :func:`refuses` reports an error."""
    try:
        return format_of("/".join(table.source.parts), table.format) if isinstance(table.source, ObjectSource) else None
    except TableError:
        return None
