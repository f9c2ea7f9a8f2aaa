"""Which unique constraint has refused a row: SQLite tells its columns, not its name."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from flowctl.connectors.sql.hindrances import Constraint, refused_row
from flowctl.connectors.target import WriteJob
from flowctl.sql import dialects

_TOLD = "UNIQUE constraint failed: "


@contextmanager
def explain_duplicates(connection: sqlite3.Connection, job: WriteJob) -> Iterator[None]:
    """A row that a unique constraint of the job's table refuses is an error with next steps; others as they are."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        found = _constraint(connection, job.object.parts[-1], str(error))
        if found is None:
            raise
        raise refused_row(job, found) from error


def _constraint(connection: sqlite3.Connection, table: str, error: str) -> Constraint | None:
    """None for one of another table, which a trigger writes."""
    told = error.removeprefix(_TOLD)
    indexes = connection.execute('SELECT name, origin FROM pragma_index_list(?) WHERE "unique"', [table]).fetchall()
    for name, origin in indexes:
        rows = connection.execute("SELECT name FROM pragma_index_info(?) ORDER BY seqno", [name]).fetchall()
        if told not in (f"index '{name}'", _qualified(table, rows)):
            continue
        if origin == "c":
            return Constraint(name, removal=f"DROP INDEX {dialects.quoted(name, 'sqlite')}")
        return Constraint(_listed("PRIMARY KEY" if origin == "pk" else "UNIQUE", rows))
    key = connection.execute("SELECT name FROM pragma_table_info(?) WHERE pk ORDER BY pk", [table]).fetchall()
    return Constraint(_listed("PRIMARY KEY", key)) if told == _qualified(table, key) else None


def _qualified(table: str, rows: list[tuple[str]]) -> str:
    return ", ".join(f"{table}.{name}" for (name,) in rows)


def _listed(kind: str, rows: list[tuple[str]]) -> str:
    return f"{kind} ({', '.join(name for (name,) in rows)})"
