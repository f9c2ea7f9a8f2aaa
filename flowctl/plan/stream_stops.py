"""Why a table cannot read a change stream, beside the reasons that hold for every table."""

from __future__ import annotations

from collections.abc import Sequence

from flowctl.changes.shape import is_long
from flowctl.connectors.stream import StreamProblem
from flowctl.model import types
from flowctl.model.table_info import TableInfo
from flowctl.model.types import Array, Struct
from flowctl.plan.case import Case
from flowctl.plan.finding import Stop
from flowctl.plan.partitions import Moved, moved_partitions
from flowctl.plan.stream_keys import source_key
from flowctl.spec.spec import StreamSpec, TableSpec
from flowctl.text import some


def stop_by_problem(case: Case, problems: Sequence[StreamProblem]) -> Stop | None:
    source = case.observed.source
    found = next((one for one in problems if source is not None and one.object == source.object), None)
    return Stop(found.what, found.repair, "from") if found else None


def first_stream_stop(case: Case) -> Stop | None:
    source, table = case.observed.source, case.table
    if source is None:
        return None
    return (
        _no_key(table)
        or _changed_key(table)
        or _nested_key(table, source)
        or _deferrable_key(table, source)
        or _unknown_row(table, source)
        or _unsent(table, source)
    )


def stop_if_partitions_moved(case: Case, stream: StreamSpec) -> Stop | None:
    """`on_truncate: ignore` keeps the rows of partitions that are gone, too."""
    moved = _moved(case)
    what = moved.come if stream.on_truncate == "ignore" else (*moved.gone, *moved.come)
    if not what:
        return None
    again, accept = case.state_command("resnapshot"), case.state_command("set", "--accept-definition")
    return Stop(
        f"partitions of {case.table.source} changed, and the log does not have their rows: {some(what)}",
        f"{again} reads it again; {accept} leaves the rows of the target as they are",
        "from",
    )


def undelivered_columns(case: Case) -> list[str]:
    """A note on columns that a query of the table has, and its stream has not."""
    source, wanted = case.observed.source, case.table.columns
    left_out = source.extra.get("undelivered", ()) if source is not None else ()
    if not (names := [name for name in left_out if wanted.takes(name) and name not in wanted.add]):
        return []
    return [f"generated columns are not in the stream, and left out: {some(names)}"]


def unclear_partitions(case: Case, stream: StreamSpec) -> list[str]:
    moved = _moved(case)
    if not moved.unclear or stream.on_truncate == "ignore":
        return []
    return [
        f"{some(moved.unclear)} was truncated or rewritten (VACUUM FULL, CLUSTER); no log has the TRUNCATE of a"
        f" partition, so after one read the table again: {case.state_command('resnapshot')}"
    ]


def _moved(case: Case) -> Moved:
    """Since the last commit, unless the table is read in full now."""
    begun, source = case.begun, case.observed.source
    if begun is not None:
        recorded, is_read_in_full = begun.definition, begun.interval.lower is None and not case.is_committed
    else:
        recorded, is_read_in_full = case.state.definition, case.state.position is None or case.full_refresh
    return Moved() if source is None or is_read_in_full else moved_partitions(recorded, source)


def _no_key(table: TableSpec) -> Stop | None:
    if table.mode == "append" or table.key:
        return None
    what = f"{table.source} has no primary key, and the table names no `key`"
    return Stop(what, "Add `key: […]` with columns that identify a row", "from")


def _changed_key(table: TableSpec) -> Stop | None:
    """A deletion has nothing but the key, and a row is found again by it."""
    for name, column in zip(table.key, source_key(table), strict=True):
        rule = next(
            (
                rule
                for rule, names in (
                    ("columns.mask", table.columns.mask),
                    ("columns.types", table.columns.types),
                    ("columns.add", table.columns.add),
                )
                if (name if rule == "columns.add" else column) in names
            ),
            None,
        )
        if rule:
            what = f'{rule} changes the key column "{name}", by which the changes of a stream find their rows'
            return Stop(what, "Copy key columns as they are", rule)
    return None


def _nested_key(table: TableSpec, source: TableInfo) -> Stop | None:
    """Changes of one row are brought together by its key."""
    if table.mode == "append":
        return None
    for name in source_key(table):
        column = source.column(name)
        if column is not None and isinstance(column.type, Array | Struct):
            what = f'the key column "{name}" is {types.short(column.type)}, by which no changes of a row are found'
            how = "Name another `key`, with mode append copy every change, or read the table without the stream"
            return Stop(what, how, "key")
    return None


def _deferrable_key(table: TableSpec, source: TableInfo) -> Stop | None:
    """Within a statement or a transaction, two rows may have the same such key: then a change may be of either."""
    key = {*source_key(table)}
    has_immediate = any({*one} <= key for one in source.extra.get("immediate_keys", ()))
    has_deferrable = any({*one} <= key for one in source.extra.get("deferrable_keys", ()))
    if table.mode == "append" or has_immediate or not has_deferrable:
        return None
    return Stop(
        f"the key ({', '.join(table.key)}) of {source.object} is deferrable: one statement can hand its values from"
        " row to row, and its changes do not tell which row is which",
        "Add the key again without DEFERRABLE, name another `key`, or with mode append copy every change",
        "key",
    )


def _unknown_row(table: TableSpec, source: TableInfo) -> Stop | None:
    """An update or deletion names the old row by its replica identity only."""
    if table.mode == "append":
        return None
    known = set(source.extra.get("identity_columns", ()))
    if missing := [name for name in source_key(table) if name not in known]:
        return Stop(
            f"{source.object} does not send {', '.join(missing)} of a row that is updated or deleted",
            f"Use its primary key, or: {_identify_fully(source)}",
            "key",
        )
    return None


def _unsent(table: TableSpec, source: TableInfo) -> Stop | None:
    """An expression over a value that an update does not send, because it is long and unchanged, has no result."""
    if _is_whole(source) or table.mode == "append":
        return None
    expressions = " ".join(table.columns.add.values()).lower()
    for column in source.columns:
        if is_long(column) and column.name.lower() in expressions:
            return Stop(
                f'columns.add uses "{column.name}", whose value an update does not send if it is long and unchanged',
                f"{_identify_fully(source)}, or compute it in a table by SQL over this one",
                "columns.add",
            )
    return None


def _is_whole(source: TableInfo) -> bool:
    """Whether changes have all values of a row."""
    return source.extra.get("replica_identity") == "f" and not source.extra.get("identify_fully")


def _identify_fully(source: TableInfo) -> str:
    """Partitions have replica identities of their own."""
    return str(source.extra.get("identify_fully") or f"ALTER TABLE {source.object} REPLICA IDENTITY FULL")


def stop_if_appended_again(case: Case) -> Stop | None:
    """Stops a table that is to be read in full though it has appended its rows before."""
    is_again = case.table.mode == "append" and case.observed.target is not None and case.state.seq > 0
    if not is_again or case.full_refresh or case.state.append_again:
        return None
    again = "its rows would be appended again"
    again_command = case.state_command("resnapshot", "--append-again")
    hint = f"{again_command} appends them all again; --full-refresh {case.table.id} replaces the content"
    return Stop(f"{case.table.source} has to be read in full, and {again}", hint, "mode")
