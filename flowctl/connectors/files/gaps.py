"""What no engine can do with files, what Sail cannot do, and when it does not report the order of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flowctl.connectors.files.formats import Format, format_of
from flowctl.connectors.gaps import Gap, unreachable_root
from flowctl.engine.session import SAIL
from flowctl.errors import TableError
from flowctl.spec.spec import Connection, ObjectSource, TableSpec

GAPS: Mapping[str, str] = {
    "format": "it reads only Parquet with exact values",
    "format.csv": "pyarrow reads CSV there, with doubled quotes and a one-character delimiter",
}


def refuses(table: TableSpec) -> tuple[str, str] | None:
    """Refuses files of an unknown format, or one that this version does not support."""
    try:
        if isinstance(table.source, ObjectSource):
            format_of("/".join(table.source.parts), table.format)
    except TableError as error:
        return error.message, error.hint
    return None


def of_spec(engine: str, connection: Connection, table: TableSpec | None) -> Iterator[Gap]:
    """See :class:`flowctl.connectors.base.Capabilities`."""
    if table is None:
        yield from unreachable_root(engine, connection)
    elif engine == SAIL and _reads(table, connection) and (format := _format(table)) is not None:
        if format.name == "csv" and not format.is_common_csv:
            yield Gap("from", GAPS["format.csv"])
        elif format.name not in ("csv", "parquet"):
            yield Gap("from", GAPS["format"])


def hides_order(engine: str, table: TableSpec) -> bool:
    """Whether the order of the rows is unknown: Sail reads all but common CSV with its own readers."""
    format = _format(table) if engine == SAIL else None
    return format is not None and not format.is_common_csv


def _reads(table: TableSpec, connection: Connection) -> bool:
    return isinstance(table.source, ObjectSource) and table.source.connection == connection.name


def _format(table: TableSpec) -> Format | None:
    """None if :func:`refuses` reports an error."""
    try:
        return format_of("/".join(table.source.parts), table.format) if isinstance(table.source, ObjectSource) else None
    except TableError:
        return None
