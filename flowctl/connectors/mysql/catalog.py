"""A database's metadata: `information_schema`, and the descriptors of a query's columns."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowctl.connectors.mysql.client import MARKER, MysqlConnection
from flowctl.connectors.mysql.conditions import MysqlComparisons
from flowctl.connectors.mysql.types import (
    data_type,
    is_plain_text,
    native_of_field,
    native_type,
    note_of,
    split_comment,
)
from flowctl.connectors.source import Relation
from flowctl.connectors.sql.creator import creator_in
from flowctl.connectors.target import Fill
from flowctl.model import types
from flowctl.model.table_info import Column, ObjectName, RowEstimate, TableInfo, view_digest

#: What flowctl keeps in a database for itself.
_OWN = "_flowctl_"
_COMPUTED = re.compile(r"(?i)\b(virtual|stored|persistent)\b")
#: A table of MariaDB that keeps the earlier versions of its rows.
VERSIONED = "SYSTEM VERSIONED"
_BASE_TABLES = ("BASE TABLE", VERSIONED)
#: The protocol's number of the character set of bytes.
_BYTES = 63


@dataclass(frozen=True)
class Found:
    """A table or view, named as on the server."""

    schema: str
    name: str
    kind: str
    engine: str
    rows: int | None
    bytes: int | None
    comment: str

    @property
    def is_table(self) -> bool:
        return self.kind in _BASE_TABLES

    @property
    def why_invalid(self) -> str:
        """The server's words, for a view that it cannot open; a valid one has the comment `VIEW`. Only a query that
        also asks for the number of rows opens it."""
        return self.comment if self.kind == "VIEW" and self.comment != "VIEW" else ""

    @property
    def creator(self) -> str:
        return creator_in(self.comment)


def clock(connection: MysqlConnection) -> dt.datetime:
    ((now,),) = connection.fetch("SELECT CAST(UTC_TIMESTAMP(6) AS CHAR)")
    return dt.datetime.fromisoformat(now).replace(tzinfo=dt.UTC)


def comparisons(connection: MysqlConnection) -> MysqlComparisons:
    return MysqlComparisons(clock(connection))


def parts_of(connection: MysqlConnection, object: ObjectName) -> tuple[str, str]:
    """Database and name; a bare name is one of the connection's database."""
    schema, name = (connection.facts.database, *object.parts)[-2:]
    return schema, name


def system_of(connection: MysqlConnection, schema: str) -> str:
    return f"mysql:{connection.facts.id}/{schema}"


def discover(connection: MysqlConnection) -> list[tuple[str, str]]:
    """Databases and names of all tables, without the server's and flowctl's own."""
    rows = connection.fetch(
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES"
        f" WHERE TABLE_TYPE IN ({', '.join(map(repr, _BASE_TABLES))})"
        " AND TABLE_SCHEMA NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')"
    )
    return [(schema, name) for schema, name in rows if not name.startswith(_OWN)]


def find(connection: MysqlConnection, objects: Iterable[ObjectName]) -> dict[ObjectName, Found]:
    """The objects that exist; one query for each database."""
    wanted = {object: parts_of(connection, object) for object in objects}
    fold = connection.facts.fold
    there: dict[tuple[str, str], Found] = {}
    for schema, names in by_schema(wanted.values()):
        rows = connection.fetch(
            "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE, TABLE_ROWS, DATA_LENGTH, TABLE_COMMENT"
            f" FROM information_schema.TABLES WHERE TABLE_SCHEMA = {MARKER}"
            f" AND TABLE_NAME IN ({', '.join([MARKER] * len(names))})",
            [schema, *names],
        )
        for schema_name, name, kind, engine, count, size, comment in rows:
            found = Found(schema_name, name, kind, engine or "", count, size, comment or "")
            there[fold(schema_name), fold(name)] = found
    keys = {object: (fold(schema), fold(name)) for object, (schema, name) in wanted.items()}
    return {object: there[key] for object, key in keys.items() if key in there}


def describe(connection: MysqlConnection, objects: Sequence[ObjectName]) -> dict[ObjectName, TableInfo | None]:
    found, now = find(connection, objects), clock(connection)
    rows = _column_rows(connection, found.values())
    keys, queries = _primary_keys(connection, found.values()), _view_queries(connection, found.values())
    described: dict[ObjectName, TableInfo | None] = dict.fromkeys(objects)
    for object, one in found.items():
        place = (one.schema, one.name)
        of_table = rows.get(place, [])
        described[object] = TableInfo(
            object=object,
            columns=tuple(map(_column, of_table)),
            identity=f"{system_of(connection, one.schema)}/{one.name}",
            primary_key=tuple(keys.get(place, ())),
            rows=RowEstimate() if one.rows is None else RowEstimate(one.rows, "stats", one.bytes),
            clock=now,
            extra={
                "is_table": one.is_table,
                "kind": one.kind,
                "why_invalid": one.why_invalid,
                "engine": one.engine,
                "filled": {row["name"]: fill for row in of_table if (fill := _fill(row))},
                "altered": {row["name"]: ending for row in of_table if (ending := _ending(row)) is not None},
            },
            system=system_of(connection, one.schema),
            created_by=one.creator,
            view=view_digest(queries.get(place), connection.facts.version),
        )
    return described


def relation_columns(connection: MysqlConnection, relation: Relation) -> tuple[Column, ...] | None:
    """The columns of the object or the query; None if the object does not exist."""
    if relation.object is None:
        return _query_columns(connection, relation)
    info = describe(connection, [relation.object])[relation.object]
    return info.columns if info else None


def _query_columns(connection: MysqlConnection, relation: Relation) -> tuple[Column, ...]:
    query = f"SELECT * FROM {comparisons(connection).from_clause(relation)} LIMIT 0"
    return tuple(
        column_of(
            field.name,
            native_of_field(field.type_code, field.flags, _length(field), field.scale, field.charsetnr == _BYTES),
            is_nullable=not field.flags & 1,
        )
        for field in connection.fields(query)
    )


def _length(field: Any) -> int:
    return int(field.length)


def _column_rows(connection: MysqlConnection, found: Iterable[Found]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for schema, names in by_schema((one.schema, one.name) for one in found):
        listed = connection.fetch(
            "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT, EXTRA,"
            " COLUMN_COMMENT, CHARACTER_SET_NAME, COLLATION_NAME FROM information_schema.COLUMNS"
            f" WHERE TABLE_SCHEMA = {MARKER} AND TABLE_NAME IN ({', '.join([MARKER] * len(names))})"
            " ORDER BY ORDINAL_POSITION",
            [schema, *names],
        )
        for schema_name, table, name, kind, nullable, default, extra, comment, charset, collation in listed:
            row = {
                "name": name,
                "native": native_type(_text(kind), _text(comment)),
                "nullable": nullable == "YES",
                "default": default,
                "extra": extra or "",
                "comment": _text(comment),
                "texts": f" CHARACTER SET {charset} COLLATE {collation}" if charset else "",
            }
            rows.setdefault((schema_name, table), []).append(row)
    return rows


def _primary_keys(connection: MysqlConnection, found: Iterable[Found]) -> dict[tuple[str, str], list[str]]:
    keys: dict[tuple[str, str], list[str]] = {}
    for schema, names in by_schema((one.schema, one.name) for one in found):
        listed = connection.fetch(
            "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME FROM information_schema.STATISTICS"
            f" WHERE TABLE_SCHEMA = {MARKER} AND TABLE_NAME IN ({', '.join([MARKER] * len(names))})"
            " AND INDEX_NAME = 'PRIMARY' ORDER BY SEQ_IN_INDEX",
            [schema, *names],
        )
        for schema_name, table, name in listed:
            keys.setdefault((schema_name, table), []).append(name)
    return keys


def _view_queries(connection: MysqlConnection, found: Iterable[Found]) -> dict[tuple[str, str], str]:
    """Empty for a view whose query this user may not see (SHOW VIEW)."""
    queries: dict[tuple[str, str], str] = {}
    for schema, names in by_schema((one.schema, one.name) for one in found if one.kind == "VIEW"):
        listed = connection.fetch(
            "SELECT TABLE_SCHEMA, TABLE_NAME, VIEW_DEFINITION FROM information_schema.VIEWS"
            f" WHERE TABLE_SCHEMA = {MARKER} AND TABLE_NAME IN ({', '.join([MARKER] * len(names))})",
            [schema, *names],
        )
        queries |= {(schema_name, view): _text(query or "") for schema_name, view, query in listed}
    return queries


def _column(row: Mapping[str, Any]) -> Column:
    return column_of(row["name"], row["native"], is_nullable=row["nullable"])


def column_of(name: str, native: str, *, is_nullable: bool) -> Column:
    kind = data_type(native)
    as_text = kind == types.STRING and not is_plain_text(native)
    return Column(name, kind, is_nullable, native, as_text, note_of(native) if as_text else "")


def _fill(row: Mapping[str, Any]) -> Fill | None:
    """How the server fills a column that a write omits. It takes a value for one that it numbers."""
    if _COMPUTED.search(row["extra"]):
        return "computed"
    has_default = row["default"] is not None and str(row["default"]).upper() != "NULL"
    return "default" if has_default or "auto_increment" in row["extra"].lower() else None


def _ending(row: Mapping[str, Any]) -> str | None:
    """What follows the type of a column that is declared again, which MySQL requires for every change of it: the
    character set of a text. None for a column with more than that, such as a default, which it would lose."""
    is_plain = not _fill(row) and not row["extra"] and row["comment"] in ("", split_comment(row["native"])[1])
    return str(row["texts"]) if is_plain else None


def by_schema(names: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """The names of each database, given (database, name). Names that differ only in case are in different lists: if one
    query asks for both, MariaDB's `information_schema` shows the first, even where they are two tables."""
    found: dict[tuple[str, int], list[str]] = {}
    alike: Counter[tuple[str, str]] = Counter()
    for schema, name in dict.fromkeys(names):
        at = schema, name.lower()
        found.setdefault((schema, alike[at]), []).append(name)
        alike[at] += 1
    return [(schema, listed) for (schema, _), listed in found.items()]


def _text(value: str | bytes) -> str:
    """MySQL 8 returns some texts of its catalog as bytes."""
    return value.decode() if isinstance(value, bytes) else value
