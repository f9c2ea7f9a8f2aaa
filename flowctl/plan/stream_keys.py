"""The keys of tables that read a change stream: the source's own, unless the spec names others."""

from __future__ import annotations

from dataclasses import replace

from flowctl.model.table_info import TableInfo
from flowctl.observe.world import World
from flowctl.resolve.resolve import Resolved
from flowctl.spec.spec import TableSpec, stream_of


def with_keys(resolved: Resolved, world: World) -> Resolved:
    """``resolved`` with the key of each table of a stream that was observed."""
    if not world.streams:
        return resolved
    return replace(resolved, tables=tuple(_with_key(table, world) for table in resolved.tables))


def key_of(table: TableSpec, info: TableInfo) -> tuple[str, ...]:
    """The target's key by default: the primary key, or else what identifies a row in the stream. Empty where only the
    whole row does."""
    identity = tuple(info.extra.get("identity_columns", ()))
    is_primary = bool(info.primary_key) and (not identity or {*info.primary_key} <= {*identity})
    if not is_primary and info.extra.get("replica_identity") == "f":
        return ()
    names = {column.name for column in info.columns}
    key = info.primary_key if is_primary else identity
    return tuple(table.columns.rename.get(name, name) for name in key if name in names)


def source_key(table: TableSpec) -> tuple[str, ...]:
    """The source columns behind the key."""
    renamed = {new: old for old, new in table.columns.rename.items()}
    return tuple(renamed.get(name, name) for name in table.key)


def _with_key(table: TableSpec, world: World) -> TableSpec:
    seen = world.tables.get(table.id)
    if not stream_of(table) or table.key or table.mode == "append" or seen is None or seen.source is None:
        return table
    key = key_of(table, seen.source)
    statistics = tuple(dict.fromkeys((*key, *(table.layout.statistics or ()))))
    return replace(table, key=key, layout=replace(table.layout, statistics=statistics))
