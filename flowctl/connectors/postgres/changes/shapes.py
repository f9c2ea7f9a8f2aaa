"""What a relation message means: its columns with the types that a description of the table has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flowctl.changes.shape import Shape
from flowctl.connectors.postgres import catalog
from flowctl.connectors.postgres.changes.messages import Relation
from flowctl.connectors.postgres.changes.partitions import below
from flowctl.model.table_info import ObjectName

if TYPE_CHECKING:
    import psycopg


def shape_of(connection: psycopg.Connection[Any], relation: Relation, object: ObjectName) -> Shape:
    """The message has each column's type and modifier as of the change, and the catalog what they mean now: a type that
    was dropped since is read as text. Only the catalog knows the declared dimensions of an array, the numbers of
    columns, and by which replica identity a partition's rows are logged: the message has that of the whole table."""
    system = catalog.system_identity(connection)
    names = [column.name for column in relation.columns]
    types = [(column.type_oid, column.modifier) for column in relation.columns]
    now = connection.execute(_NOW, [relation.oid]).fetchall()
    described = catalog.columns_of_types(connection, names, types, dimensions=_dimensions(relation, now))
    numbers = numbers_of(names, {name: number for name, number, _, _ in now})
    parts = [one.identity for one in below(connection, [relation.oid]).get(relation.oid, ()) if one.identity]
    old = [
        column.name
        for column in relation.columns
        if (column.is_identity or relation.identity == "f") and all(column.name in names for names in parts)
    ]
    return Shape(
        object=object,
        identity=f"{system}/{relation.oid}",
        columns=tuple(replace(column, identity=number) for (column, _), number in zip(described, numbers, strict=True)),
        old_columns=tuple(old),
        private=tuple(base for _, base in described),
    )


def numbers_of(names: Sequence[str], now: Mapping[str, int]) -> list[str]:
    """The numbers of columns that have these names in a message, from those that columns of these names have ``now``.

    A message has its columns in the order of their numbers, and a name may have gone to another column since. If the
    numbers do not fit that order, the message is from before such a change: all are empty then, for unknown."""
    number_before, place_before = 0, -1
    for place, name in enumerate(names):
        number = now.get(name)
        if number is None:
            continue
        if number - number_before < place - place_before:
            return [""] * len(names)
        number_before, place_before = number, place
    return [str(now.get(name, "")) for name in names]


_NOW = """
    SELECT attname, attnum, atttypid::bigint, attndims FROM pg_attribute
    WHERE attrelid = %s::oid AND attnum > 0 AND NOT attisdropped
"""


def _dimensions(relation: Relation, now: Sequence[tuple[Any, ...]]) -> list[int]:
    declared = {(name, type_oid): dimensions for name, _, type_oid, dimensions in now}
    return [int(declared.get((column.name, column.type_oid), 0)) for column in relation.columns]
