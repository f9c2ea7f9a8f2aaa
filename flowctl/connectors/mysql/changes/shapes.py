"""What a table map means: its columns with the types that a description of the table has."""

from __future__ import annotations

import re
from collections.abc import Mapping

from flowctl.changes.shape import Shape
from flowctl.connectors.mysql import catalog
from flowctl.connectors.mysql.changes.ddl import Meaning
from flowctl.connectors.mysql.changes.events import TableMap, WireColumn
from flowctl.connectors.mysql.changes.wire import wire_of
from flowctl.connectors.mysql.client import MysqlConnection
from flowctl.model import types
from flowctl.model.table_info import Column, ObjectName, TableInfo

_BYTES = "binary"
_BIGINT = 8
#: MariaDB's own columns, one for each unique key over long values: behind all others, and in no catalog. It gives a
#: number that no other column of the table has.
_HASH = re.compile(r"DB_ROW_HASH_\d+")


def shape_of(connection: MysqlConnection, found: TableMap, object: ObjectName, charsets: Mapping[int, str]) -> Shape:
    """The log has each column's form as of the change, and the catalog its type as of now: a type that has the same
    form is the column's, also where the log does not tell (TINYINT(1), JSON). Otherwise it was altered since, and the
    form is all that is known. Columns that are the server's own have their bytes in the rows, and no name."""
    info = catalog.describe(connection, [object])[object]
    identity = info.identity if info else f"{catalog.system_of(connection, found.database)}/{found.name}"
    columns, wires = [], []
    for one in found.columns:
        now = (info.column(one.name) if info else None) or Column(one.name, types.STRING, True, "")
        charset = charsets.get(one.collation, f"that of collation {one.collation}")
        wire = wire_of(one, "" if charset == _BYTES else charset, now.native)
        native = now.native if wire.is_of(now.native) else wire.native
        columns.append(catalog.column_of(one.name, native, is_nullable=now.nullable))
        wires.append(wire.to_text())
    while connection.facts.is_mariadb and columns and _is_hash(found.columns[len(columns) - 1], info):
        columns.pop()
    names = tuple(column.name for column in columns)
    return Shape(object, identity, tuple(columns), old_columns=names, private=tuple(wires))


def _is_hash(column: WireColumn, info: TableInfo | None) -> bool:
    """A user's column that has such a name is in the catalog, unless it was dropped since."""
    is_own = info is not None and info.column(column.name) is not None
    return _HASH.fullmatch(column.name) is not None and column.type == _BIGINT and column.is_unsigned and not is_own


def charsets(connection: MysqlConnection) -> dict[int, str]:
    """The character set of each collation, by number."""
    version = tuple(int(part) for part in connection.facts.version.split(".")[:2])
    if connection.facts.is_mariadb and version >= (10, 10):
        query = "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"
    else:
        query = "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS"
    return {int(number): name for number, name in connection.fetch(query) if number is not None and name is not None}


def now_of(connection: MysqlConnection, object: ObjectName) -> Shape:
    """The table as it is now, for changes without rows."""
    info = catalog.describe(connection, [object])[object]
    if info is None:
        schema, name = catalog.parts_of(connection, object)
        return Shape(object, f"{catalog.system_of(connection, schema)}/{name}", (), ())
    return Shape(object, info.identity, info.columns, tuple(column.name for column in info.columns))


def altered(now: Shape, meaning: Meaning) -> Shape:
    """For a statement that ends or converts columns of the table. Which are left, the rows that follow tell."""
    texts = tuple(column.name for column in now.columns if column.type == types.STRING)
    names = (*meaning.columns, *(texts if meaning.converts_texts else ()))
    return Shape(now.object, now.identity, (), (), ended=names, converted=meaning.converted)
