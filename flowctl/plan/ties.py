"""The rows at a cursor position that append has written, and whether the source can still be compared with them.

Rows with exactly the position's cursor may arrive later, so the next run reads from it, inclusive, and skips what was
already written: as many rows per hash as were counted. A hash is valid only for the columns that it was computed from.
These are therefore recorded, and read for the rows at the position even if the table no longer includes them. If they
can no longer be read as they were, new rows cannot be distinguished from written ones, and the table stops.

Of too many rows, only the number is recorded, if `cursor.delay` says that no more come. If more come nevertheless, the
table stops as well.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace

from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.position import CursorPosition, Position, Ties
from flowctl.model.table_info import Column, TableInfo
from flowctl.model.value import PythonValue, TypedValue
from flowctl.plan.commands import position_option, state_command
from flowctl.plan.finding import Stop
from flowctl.plan.projection import read_columns
from flowctl.spec.spec import TableSpec
from flowctl.sql.row_hash import hashes_alike
from flowctl.text import counted, duration

#: Different rows at one position whose hashes append keeps.
MOST = 10_000


def with_columns(
    recorded: Position | None, schema: Sequence[Column], table: TableSpec, info: TableInfo
) -> Position | None:
    """Fills in the hashed columns that an older flowctl did not record: they were those of ``schema``, which state
    recorded with the position. Only if the source still has exactly these columns; otherwise they remain unknown, and
    :func:`as_of_now` reports it."""
    match recorded:
        case CursorPosition(_, Ties(_, None) as ties):
            now = {(column.name, column.type, column.as_text) for column in read_columns(table, info.columns)}
            then = {(column.name, column.type, column.as_text) for column in schema}
            return replace(recorded, ties=replace(ties, columns=tuple(schema))) if schema and then == now else recorded
        case _:
            return recorded


def as_of_now(ties: Ties, table: TableSpec, info: TableInfo) -> Ties | str:
    """Returns ``ties`` with the current versions of its columns, or a message why they cannot be compared."""
    if not ties.counts:
        return replace(ties, columns=ties.columns or ())
    if ties.columns is None:
        return "an older flowctl did not record the columns that its row hashes are over, and they have changed since"
    taken = {column.name: column for column in read_columns(table, info.columns)}
    found: list[Column] = []
    for column in ties.columns:
        now = taken.get(column.name) or info.column(column.name)
        if now is None:
            return f'the column "{column.name}" is gone, which distinguished its rows'
        if now.as_text != column.as_text or not hashes_alike(column.type, now.type):
            was, is_now = types.short(column.type), types.short(now.type)
            return f'the column "{column.name}" is {is_now}, was {was}, so its rows can no longer be distinguished'
        found.append(Column(now.name, now.type, as_text=now.as_text))
    return replace(ties, columns=tuple(found))


def is_complete(table: TableSpec, at: TypedValue, newest: TypedValue | None) -> bool:
    """Whether `cursor.delay` says that no more rows come at ``at``. ``newest`` is the greatest value that it admits."""
    delay = table.cursor.delay if table.cursor is not None else None
    if table.mode != "append" or delay is None or newest is None or newest.type != at.type or newest < at:
        return False
    return delay > span(at.value)


def span(at: PythonValue) -> float:
    """The seconds for which a cursor value may stand, during which rows with this value come: a day for a date, and for
    a time the unit to which it may be truncated."""
    match at:
        case dt.datetime(microsecond=0, second=0, minute=0, hour=0):
            return 86400.0
        case dt.datetime(microsecond=0, second=0, minute=0 | 15 | 30 | 45):  # full hours of any zone
            return 3600.0
        case dt.datetime(microsecond=0, second=0):
            return 60.0
        case dt.datetime(microsecond=0):
            return 1.0
        case dt.datetime():
            return 0.0
        case _:
            return 86400.0


def too_many(table: TableSpec, at: TypedValue) -> TableError:
    """Fails a table that cannot record which rows it has written at ``at``."""
    cursor = table.cursor
    if not isinstance(at.value, dt.date):
        hint = "Choose a cursor whose values fewer rows share"
    elif cursor is not None and cursor.delay is not None and cursor.delay > span(at.value):
        hint = "Run again once cursor.delay has passed since then: no more rows can come for that value then"
    else:
        least = duration(span(at.value))
        longer = f"more than {least}, for which a value may stand, and longer" if span(at.value) else "longer"
        hint = f"Set cursor.delay to {longer} than any transaction that writes rows: values are then read when complete"
    name = cursor.column if cursor is not None else ""
    return TableError(f'more than {MOST:,} rows share the newest "{name}" {at.text()}', hint=hint, mark=table.mark)


def more_came(table: TableSpec, at: TypedValue, more: int, spec_path: str) -> Stop:
    """Stops where more rows have come at a position than it records, which are too many to tell them apart."""
    cursor = table.cursor.column if table.cursor is not None else ""
    came = f'{counted(more, "row")} came at "{cursor}" {at.text()} after it was read'
    return Stop(
        f"{came}: more than {MOST:,} rows share it, and new ones cannot be told from written ones",
        "Set cursor.delay to longer, so that values are read once no more rows come for them; "
        + taking_all_for_written(table.id, at, spec_path),
        "cursor",
    )


#: Possible causes if a source no longer has the written rows.
CAUSES = "they were changed, or the source was emptied, restored or recreated"


def rows_are_gone(column: str, at: TypedValue) -> str:
    return f'none of the rows that were appended at "{column}" {at.text()} exists any more: {CAUSES}'


def taking_all_for_written(table_id: str, at: TypedValue, spec_path: str) -> str:
    """The next steps if written rows cannot be distinguished from new ones."""
    return (
        f"{state_command('set', spec_path, table_id, *position_option(at))} treats all rows there as written; "
        f"--full-refresh {table_id} reads everything again and replaces the target's content"
    )


def starting_over(table: TableSpec, at: TypedValue, newest: TypedValue | None, spec_path: str) -> str:
    """The next steps if the rows are not those that were written. ``newest`` is the source's newest cursor value."""
    is_back = newest is not None and newest < at
    above = (*position_option(newest), "--append-again") if newest is not None and is_back else position_option(at)
    regularly = "; if the source deletes old rows regularly, write guard: {allow_purged: true}"
    continues = state_command("set", spec_path, table.id, *above)
    appends_all = state_command("set", spec_path, table.id, "--position", "beginning", "--append-again")
    return (
        f"{continues} if rows were only deleted or changed: it continues above that; "
        f"{appends_all} appends all that is there now; "
        f"--full-refresh {table.id} replaces the target's content with it"
        + ("" if table.guard.allow_purged else regularly)
    )
