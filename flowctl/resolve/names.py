"""Invalid names of tables and columns: those that the target refuses, and those that flowctl reserves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from flowctl.connectors import registry
from flowctl.diagnostics import Diagnostic
from flowctl.model import reserved, types
from flowctl.model.sidecars import QUARANTINE
from flowctl.model.table_info import Column, ObjectName
from flowctl.resolve.places import SIDECARS, sidecars_of
from flowctl.spec.spec import Spec, TableSpec

#: Columns that scd2 adds to the source's, in this order. Event times of other types are cast to TIMESTAMP.
_VERSION_COLUMNS = (
    Column("valid_from", types.TIMESTAMP),
    Column("valid_to", types.TIMESTAMP),
    Column("is_current", types.BOOL),
    Column("row_hash", types.STRING),
)
_DELETED_AT = Column("_deleted_at", types.TIMESTAMP)
_SOURCE_ORDER = Column("_source_order", types.STRING)
#: Names of flowctl's own columns, in any mode.
OWN_NAMES = frozenset({column.name for column in (*_VERSION_COLUMNS, _DELETED_AT, _SOURCE_ORDER)})


def own_columns(table: TableSpec) -> Mapping[str, Column]:
    """flowctl's own columns in this table's target, by name, in order."""
    own: tuple[Column, ...] = ()
    if table.mode == "scd2":
        own = _VERSION_COLUMNS
    elif table.mode == "merge" and table.deletes is not None and table.deletes.action == "soft":
        own = (_DELETED_AT,)
    return {column.name: column for column in (*own, *((_SOURCE_ORDER,) if table.has_source_order else ()))}


def reserved_names(table: TableSpec) -> frozenset[str]:
    """Names of flowctl's own columns in this table's target and in its quarantine, in lower case."""
    own = frozenset(own_columns(table))
    if QUARANTINE not in sidecars_of(table):
        return own
    return own | reserved.QUARANTINE | (reserved.BAD_ROWS if table.keeps_bad_rows else frozenset())


def refused_name(table: TableSpec, spec: Spec) -> tuple[str, str] | None:
    """Checks the names of the table and its sidecars. For a name that the target would truncate or reserves for itself,
    returns what is wrong and what to do."""
    connection = spec.connections[table.target.connection]
    *above, name = table.target.parts
    for suffix in ("", *sidecars_of(table)):
        if why := registry.refuse_name(connection, ObjectName((*above, name + suffix)), spec.base_dir):
            what = f'"{name}" is not a valid name there'
            if suffix:
                what = f"its {SIDECARS[suffix]} would be kept in {name}{suffix}"
            return f"{table.target}: {what}: {why}", "Give it another `to`"
    return None


def _refused_letters(table: TableSpec, spec: Spec) -> tuple[str, str] | None:
    """As :func:`refused_name`, of the place for its dead letters."""
    to = table.dead_letters.to if table.dead_letters is not None else None
    why = registry.refuse_name(spec.connections[to.connection], to.object, spec.base_dir) if to is not None else None
    if to is None or not why:
        return None
    return f'{to}: "{to.parts[-1]}" is not a valid name there: {why}', "Give its dead letters another `to`"


def check(spec: Spec, tables: Sequence[TableSpec]) -> Iterator[Diagnostic]:
    """Checks the names of ``tables`` that do not come from a pattern (a pattern's table is stopped on its own, in the
    plan), and of columns in ``columns.add`` (the source's own are known only once it is observed)."""
    written = {table.id for table in spec.tables}
    for table in tables:
        if table.id in written and (refused := refused_name(table, spec)):
            yield Diagnostic(*refused, table.mark_of("to"), "reserved-name")
        if table.id in written and (refused := _refused_letters(table, spec)):
            yield Diagnostic(*refused, table.mark_of("dead_letters.to"), "reserved-name")
    for table in spec.tables:
        own = reserved_names(table)
        for name in table.columns.add:
            if reserved.is_taken(name, own):
                what = f'{table.id}: columns.add creates a column "{name}", a name reserved for flowctl'
                yield Diagnostic(what, "Give it another name", table.mark_of("columns.add"), "reserved-name")
