"""The columns that a SQL table reads, as recorded in state: if they change, its result may have other types."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import assert_never

from flowctl.model.projection import Columns
from flowctl.model.step import Advance, Load, RecordOnly, Recover, Removed, Stopped, StreamStep, UpToDate
from flowctl.model.table_info import Column, TableInfo
from flowctl.spec.spec import SqlSource
from flowctl.sql.refs import names_all_it_reads

#: Suffix of the recorded digest if the SQL names all columns it reads, so that a plan need not parse it again.
_NAMED = ".named"


def shape_read(source: SqlSource, columns: Mapping[str, Sequence[Column]]) -> str:
    """The digest that state records when Spark determines the columns of ``source``; ``columns`` are those of the
    tables it reads."""
    return _shape(source, columns, names_all=names_all_it_reads(source.sql))


def has_changed(source: SqlSource, recorded: str, columns: Mapping[str, Sequence[Column]]) -> bool:
    """Whether what ``source`` reads may have other columns or types than when ``recorded`` was written. Without a
    record (an older flowctl) this counts as changed: its result may derive from other columns."""
    return not recorded or recorded != _shape(source, columns, names_all=recorded.endswith(_NAMED))


def columns_found(step: StreamStep | None, recorded: Sequence[Column], target: TableInfo | None) -> Sequence[Column]:
    """Returns the columns that a SQL table finds in an upstream table once that table's ``step`` is done, including
    foreign ones; empty if unknown. ``target`` is the upstream table's current target. ``recorded`` are the columns that
    flowctl writes: all that is known of a table that is not in the plan."""
    match step:
        case None:
            return recorded
        case (
            Load(columns=Columns() as columns)
            | Recover(columns=Columns() as columns)
            | Advance(columns=Columns() as columns)
        ):
            return (*columns.target, *_of_others(columns))
        case Load() | Recover() | Advance():
            return ()
        case RecordOnly() | UpToDate() | Stopped() | Removed():
            return target.columns if target else ()
        case _:
            assert_never(step)


def _of_others(columns: Columns) -> list[Column]:
    """The columns that a write leaves to the database or to someone else."""
    written = {column.name for column in columns.target}
    left = {"drift": ("show",), "dropped_column": ("keep", "null")}
    return [
        Column(change.column, kind)
        for change in columns.changes
        if change.action in left.get(change.change, ()) and change.column not in written
        for kind in (change.new if change.change == "drift" else change.old,)
        if kind is not None
    ]


def _shape(source: SqlSource, columns: Mapping[str, Sequence[Column]], *, names_all: bool) -> str:
    """A digest of the columns that ``source`` reads, by table and regardless of order; empty if those of any table are
    unknown."""
    if not all(columns.get(other) for other in source.refs):
        return ""
    text = _folded(source.sql) if names_all else None
    read = {
        other: sorted((_folded(one.name), str(one.type)) for one in columns[other] if _is_named(one.name, text))
        for other in source.refs
    }
    digest = hashlib.sha256(json.dumps(read, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()
    return digest + _NAMED if names_all else digest


def _is_named(name: str, text: str | None) -> bool:
    """Whether the SQL text names the column. May return true too often: another word may contain the name."""
    return text is None or _folded(name) in text


def _folded(text: str) -> str:
    """Normalizes names as Spark compares them: without case and backquotes."""
    return text.replace("`", "").lower()
