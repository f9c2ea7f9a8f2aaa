"""What a relation message means: its columns with the types that a description of the table has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowctl.changes.shape import Shape
from flowctl.connectors.postgres import catalog
from flowctl.connectors.postgres.changes.messages import Relation, RelationColumn
from flowctl.model.table_info import ObjectName

if TYPE_CHECKING:
    import psycopg


def shape_of(connection: psycopg.Connection[Any], relation: Relation, object: ObjectName) -> Shape:
    """The message has each column's type and modifier as of the change, and the catalog what they mean now: a type that
    was dropped since is read as text. Only the catalog knows the declared dimensions of an array."""
    system = catalog.system_identity(connection)
    types = [(column.type_oid, column.modifier) for column in relation.columns]
    described = catalog.columns_of_types(
        connection,
        [column.name for column in relation.columns],
        types,
        dimensions=_dimensions(connection, relation),
    )
    old = [column.name for column in relation.columns if column.is_identity or relation.identity == "f"]
    return Shape(
        object=object,
        identity=f"{system}/{relation.oid}",
        columns=tuple(column for column, _ in described),
        old_columns=tuple(old),
        private=tuple(base for _, base in described),
    )


def _dimensions(connection: psycopg.Connection[Any], relation: Relation) -> list[int]:
    rows = connection.execute(
        "SELECT attname, atttypid::bigint, attndims FROM pg_attribute"
        " WHERE attrelid = %s::oid AND attnum > 0 AND NOT attisdropped",
        [relation.oid],
    ).fetchall()
    now = {(name, type_oid): dimensions for name, type_oid, dimensions in rows}

    def declared(column: RelationColumn) -> int:
        return int(now.get((column.name, column.type_oid), 0))

    return [declared(column) for column in relation.columns]
