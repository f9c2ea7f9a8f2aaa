"""Columns of somebody else's table whose affinity makes numbers of texts: of ``007`` in a ``STRING`` column, SQLite
keeps 7. What reads back as it was written is the same value. Source: sqlite.org, "Datatypes In SQLite", section 3."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal as Exact
from typing import Any

from flowctl.connectors.sql.change import StagedRows
from flowctl.connectors.sql.limits import changed_value
from flowctl.connectors.sqlite.catalog import IS_STRICT
from flowctl.connectors.sqlite.database import quoted
from flowctl.connectors.sqlite.session import SqliteSession
from flowctl.connectors.sqlite.types import declared, makes_numbers
from flowctl.connectors.target import WriteJob
from flowctl.model import types
from flowctl.model.table_info import Column, TableInfo
from flowctl.model.types import Decimal

#: Every decimal of that many digits is another float, and reads back as it was.
_DIGITS_OF_FLOATS = 15
_KEPT = "flowctl_kept"


def limited(there: TableInfo | None, columns: Iterable[str]) -> list[Column]:
    """Those of ``columns`` that the table has in a type that may change a value."""
    if there is None or there.extra.get(IS_STRICT):
        return []
    return [one for one in there.columns if one.name in columns and _is_limited(one)]


def _is_limited(column: Column) -> bool:
    match column.type:
        case Decimal(precision, _):
            return precision > _DIGITS_OF_FLOATS and makes_numbers(column.native)
        case types.STRING:
            return makes_numbers(column.native)
        case _:
            return False


def require_kept(session: SqliteSession, job: WriteJob, staged: StagedRows) -> None:
    """Raises :class:`TableError` for a staged value that the job's table would change."""
    there = session.describe([job.object])[job.object]
    kinds = {column.name: column.type for column in job.columns}
    for column in limited(there, staged.columns):
        if kinds.get(column.name) == column.type and _changes_any(session, job, staged.table, column):
            hint = f"Create the table again, with {column.name} {declared(column.type)}"
            raise changed_value(job, column, hint, ": SQLite makes numbers of texts there")


def _changes_any(session: SqliteSession, job: WriteJob, stage: tuple[str, ...], column: Column) -> bool:
    """Stores the values in a column of the same affinity. A history compares keys from several tables, and takes a
    number for another one than its text."""
    probe, name, is_kept = f"{stage[0]}_kept", quoted(column.name), "false"
    if job.mode != "scd2" or column.name not in job.key:
        is_kept = f"{_KEPT}(given, kept)"
        function = _is_same_number if isinstance(column.type, Decimal) else _is_same_text
        session.connection.create_function(_KEPT, 2, function, deterministic=True)
    session.execute(f"CREATE TEMPORARY TABLE {probe} (given TEXT, kept NUMERIC)")
    session.execute(f"INSERT INTO {probe} SELECT {name}, {name} FROM {stage[0]} WHERE {name} IS NOT NULL")
    changed = session.fetch(f"SELECT 1 FROM {probe} WHERE typeof(kept) <> 'text' AND NOT {is_kept} LIMIT 1")
    session.execute(f"DROP TABLE {probe}")
    return bool(changed)


def _is_same_text(text: str, stored: Any) -> bool:
    """As a read makes a text of it."""
    return repr(stored) == text


def _is_same_number(text: str, stored: Any) -> bool:
    return Exact(repr(stored)) == Exact(text)
