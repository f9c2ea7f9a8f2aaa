"""Which changes of a table and which keys SQLite does not support, and which unique constraint refuses a row. What
prevents dropping a column, and how one is compared, is tested on a copy of the file's schema in memory: only SQLite's
own parser knows which columns a view uses."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace

from flowctl.connectors.sql import hindrances
from flowctl.connectors.sql.hindrances import Constraint
from flowctl.connectors.sqlite.database import quoted
from flowctl.model import types
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import TableInfo
from flowctl.sql import dialects

#: Key in ``extra`` of a target's info: the statements that create the objects of the file.
SCHEMA = "schema"
_USED_BY = re.compile(r"error in (index|view|trigger) (.+?)(?: after drop column)?: ")
_ANEW = "rop the table and run it with --full-refresh"


def schema_of(connection: sqlite3.Connection) -> tuple[str, ...]:
    """The CREATE statements of the file, tables first; without objects that SQLite creates itself."""
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type <> 'table'")
    return tuple(sql for name, sql in rows if not name.lower().startswith("sqlite_"))


def refuse_change(info: TableInfo, change: SchemaChange) -> SchemaChange | None:
    """``change``, which has its statement, as one that stops the table; None if SQLite can make it."""
    match change.action:
        case "drop":
            return _refuse_drop(info, change)
        case "retype":
            return replace(change, action="fail", note="SQLite cannot change a column's type; drop the table")
        case "relax":
            return replace(change, action="fail", note="SQLite cannot take NOT NULL from a column; copy the table")
        case _:
            return None


def _refuse_drop(info: TableInfo, change: SchemaChange) -> SchemaChange | None:
    with _copy_of(info) as copy:
        in_the_way, why = _in_the_way(copy, change.statement)
    if in_the_way:
        note, next_step = f"in use by {hindrances.joined(in_the_way)}", hindrances.drop_them(in_the_way)
    elif why.startswith("cannot drop"):
        note, next_step = f"SQLite says: {why}", f"D{_ANEW}"
    elif why.startswith("error in table"):
        note = "a computed column, a check or a key of the table uses it"
        next_step = f"Drop the computed columns that use it, run, and recreate them; else d{_ANEW}"
    else:
        return None
    return replace(change, action="fail", statement="", note=note, next_step=next_step)


@contextmanager
def _copy_of(info: TableInfo) -> Iterator[sqlite3.Connection]:
    """The file's schema, in memory."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
        for sql in info.extra.get(SCHEMA, ()):
            with suppress(sqlite3.Error):  # such as a virtual table of a missing module
                copy.execute(sql)
        yield copy


def refuse_key(info: TableInfo, key: Sequence[str]) -> tuple[str, str] | None:
    """See :meth:`flowctl.connectors.target.TargetRules.refuse_key`."""
    texts = [name for name in key if (column := info.column(name)) and column.type == types.STRING]
    for name, collation in _collations(info, texts):
        if collation.upper() != "BINARY":
            repair = f"Create the table again, with {name} TEXT COLLATE BINARY"
            return hindrances.coarse_key(info, name, f"collation is {collation}", repair)
    return None


def _collations(info: TableInfo, names: Sequence[str]) -> list[tuple[str, str]]:
    """By which collation each column is compared. SQLite has no statement for that, but an index on a column has its
    collation; the indexes of the table itself may have others, which do not matter for a comparison."""
    if not names:
        return []
    index = f"CREATE INDEX _flowctl_key ON {quoted(info.object.parts[-1])} ({', '.join(map(quoted, names))})"
    with _copy_of(info) as copy, suppress(sqlite3.Error):  # a virtual table has no index
        copy.execute(index)
        return copy.execute("SELECT name, coll FROM pragma_index_xinfo('_flowctl_key') WHERE key").fetchall()
    return []


def _in_the_way(copy: sqlite3.Connection, statement: str) -> tuple[list[str], str]:
    """Each index, view and trigger that must be dropped first, and the error that remains without them."""
    names: list[str] = []
    while True:
        try:
            copy.execute(statement)
        except sqlite3.Error as error:
            found = _USED_BY.match(str(error))
            if found is None:
                return [], str(error)
            names.append(f"{found[1]} {found[2]}")
            with suppress(sqlite3.Error):
                copy.execute(f"DROP {found[1]} {quoted(found[2])}")
                continue
            return names, ""
        else:
            return names, ""


def violated_constraint(connection: sqlite3.Connection, table: str, error: Exception) -> Constraint | None:
    """A constraint of ``table``, never of another table that a trigger writes. SQLite reports a constraint's columns,
    not its name."""
    if not isinstance(error, sqlite3.IntegrityError):
        return None
    violated = str(error).removeprefix("UNIQUE constraint failed: ")
    indexes = connection.execute('SELECT name, origin FROM pragma_index_list(?) WHERE "unique"', [table]).fetchall()
    for name, origin in indexes:
        rows = connection.execute("SELECT name FROM pragma_index_info(?) ORDER BY seqno", [name]).fetchall()
        if violated not in (f"index '{name}'", _qualified(table, rows)):
            continue
        if origin == "c":
            return Constraint(name, removal=f"DROP INDEX {dialects.quoted(name, 'sqlite')}")
        return Constraint(_listed("PRIMARY KEY" if origin == "pk" else "UNIQUE", rows))
    key = connection.execute("SELECT name FROM pragma_table_info(?) WHERE pk ORDER BY pk", [table]).fetchall()
    return Constraint(_listed("PRIMARY KEY", key)) if violated == _qualified(table, key) else None


def _qualified(table: str, rows: list[tuple[str]]) -> str:
    return ", ".join(f"{table}.{name}" for (name,) in rows)


def _listed(kind: str, rows: list[tuple[str]]) -> str:
    return f"{kind} ({', '.join(name for (name,) in rows)})"
