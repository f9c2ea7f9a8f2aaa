"""The columns that a SQL table reads, as state records them: others now, and what it makes may have other types."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import assert_never

from flowctl.model.projection import Columns
from flowctl.model.step import Load, RecordOnly, Recover, Removed, Step, Stopped, UpToDate
from flowctl.model.table_info import Column, TableInfo
from flowctl.spec.spec import SqlSource
from flowctl.sql.refs import names_all_it_reads

#: Ends what is recorded of SQL that names its columns: a plan need not parse it again.
_NAMED = ".named"


def shape_read(source: SqlSource, columns: Mapping[str, Sequence[Column]]) -> str:
    """What state records beside the columns that Spark has found for ``source`` when its tables had ``columns``."""
    return _shape(source, columns, names_all=names_all_it_reads(source.sql))


def has_changed(source: SqlSource, recorded: str, columns: Mapping[str, Sequence[Column]]) -> bool:
    """Whether what ``source`` reads may have other columns or types than when ``recorded`` was. An older flowctl has
    recorded nothing: what it made then need not be of the columns that were there."""
    return not recorded or recorded != _shape(source, columns, names_all=recorded.endswith(_NAMED))


def columns_found(step: Step | None, recorded: Sequence[Column], target: TableInfo | None) -> Sequence[Column]:
    """The columns that a SQL table finds in one that it reads, once its ``step`` is done, those of others among them;
    empty where a plan cannot tell. ``target`` is that table's as it is now, ``recorded`` are the columns that flowctl
    writes: nobody has looked at more of a table that is not in the plan."""
    match step:
        case None:
            return recorded
        case Load(columns=Columns() as columns) | Recover(columns=Columns() as columns):
            return (*columns.target, *_of_others(columns))
        case Load() | Recover():
            return ()
        case RecordOnly() | UpToDate() | Stopped() | Removed():
            return target.columns if target else ()
        case _:
            assert_never(step)


def _of_others(columns: Columns) -> list[Column]:
    """What a write leaves to others, or to the database."""
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
    """A digest of the columns that ``source`` reads, by table, in any order; empty where those of one are unknown."""
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
    """Errs on the safe side: another word may contain the name."""
    return text is None or _folded(name) in text


def _folded(text: str) -> str:
    """As Spark compares names: without case and quotes."""
    return text.replace("`", "").lower()
