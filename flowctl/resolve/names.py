"""Names of tables and columns that cannot be: what the target refuses, and what flowctl needs itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from flowctl.connectors import registry
from flowctl.diagnostics import Diagnostic
from flowctl.model import reserved, types
from flowctl.model.table_info import Column, ObjectName
from flowctl.resolve.places import SIDECARS, sidecars_of
from flowctl.spec.spec import Spec, TableSpec

#: Columns that scd2 adds to the source's, in this order. Event times of other types are cast to the instant.
_VERSION_COLUMNS = (
    Column("valid_from", types.TIMESTAMP),
    Column("valid_to", types.TIMESTAMP),
    Column("is_current", types.BOOL),
    Column("row_hash", types.STRING),
)
_DELETED_AT = Column("_deleted_at", types.TIMESTAMP)
#: Names that flowctl gives its own columns, in whatever mode.
OWN_NAMES = frozenset({column.name for column in (*_VERSION_COLUMNS, _DELETED_AT)})


def own_columns(table: TableSpec) -> Mapping[str, Column]:
    """flowctl's own columns in this table's target, by name, in order."""
    if table.mode == "scd2":
        return {column.name: column for column in _VERSION_COLUMNS}
    if table.mode == "merge" and table.deletes is not None and table.deletes.action == "soft":
        return {_DELETED_AT.name: _DELETED_AT}
    return {}


def reserved_names(table: TableSpec) -> frozenset[str]:
    """Names of flowctl's own columns in this table's target and in its quarantine, in lower case."""
    quarantines = any(check.on_fail == "quarantine" for check in table.expect)
    return frozenset(own_columns(table)) | (reserved.QUARANTINE if quarantines else frozenset())


def refused_name(table: TableSpec, spec: Spec) -> tuple[str, str] | None:
    """What is wrong with a name that the target would cut, or keeps for itself, and what to do; of the table or of one
    of its sidecars."""
    connection = spec.connections[table.target.connection]
    *above, name = table.target.parts
    for suffix in ("", *sidecars_of(table)):
        if why := registry.refuse_name(connection, ObjectName((*above, name + suffix)), spec.base_dir):
            what = f"its {SIDECARS[suffix]} would be kept in {name}{suffix}" if suffix else f'"{name}" is no name there'
            return f"{table.target}: {what}: {why}", "Give it another `to`"
    return None


def check(spec: Spec, tables: Sequence[TableSpec]) -> Iterator[Diagnostic]:
    """Names of the ``tables`` that are no pattern's (a pattern's table stops alone, in the plan), and of columns that
    ``columns.add`` makes (the source's own are known once it is looked at)."""
    written = {table.id for table in spec.tables}
    for table in tables:
        if table.id in written and (refused := refused_name(table, spec)):
            yield Diagnostic(*refused, table.mark_of("to"), "reserved-name")
    for table in spec.tables:
        own = reserved_names(table)
        for name in table.columns.add:
            if reserved.is_taken(name, own):
                what = f'{table.id}: columns.add makes a column "{name}", a name that flowctl needs itself'
                yield Diagnostic(what, "Give it another name", table.mark_of("columns.add"), "reserved-name")
