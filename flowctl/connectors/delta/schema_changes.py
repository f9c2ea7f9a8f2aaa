"""Changes of a table's schema between two versions after which rows of the older one mean something else.

A read of changes opens the files of all versions between as those of the newest one: by the names that its columns have
in files, in its types, and with its partition columns, whose values are not in the files. A column that was renamed, or
dropped and added again, has new values in rows that nobody wrote (Delta protocol, *Column Mapping*).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowctl.connectors.delta.log_range import LogCommit
from flowctl.connectors.delta.scan import stored_columns
from flowctl.connectors.delta.table import OpenTable
from flowctl.connectors.delta.types import Action, columns_of
from flowctl.model import types
from flowctl.model.table_info import Column


def why_unlike(lower: OpenTable, commits: Sequence[LogCommit], upper: OpenTable, columns: Sequence[Column]) -> str:
    """Why the changes after ``lower`` cannot be read as ``columns`` of ``upper``, which ``commits`` lead to; empty if
    they can."""
    changed = [(commit.version, commit.metadata) for commit in commits if commit.metadata is not None]
    if not changed:
        return ""
    names = {column.name for column in columns}
    for version, metadata in ((lower.version, lower.metadata), *changed):
        if why := _unlike(metadata, upper.metadata, names):
            return f"{why} in version {version}"
    return ""


def why_renamed(begun: OpenTable, newest: OpenTable, columns: Sequence[Column]) -> str:
    """Why the version ``begun`` cannot be read by itself as ``columns`` of ``newest``; empty if it can."""
    why = _unlike_columns(begun.metadata, newest.metadata, {column.name for column in columns})
    return f"{why} in version {begun.version}" if why else ""


def _unlike(before: Action, now: Action, names: set[str]) -> str:
    was, here = (stored_columns(one["schemaString"]) for one in (before, now))
    if _partitions(before, was) != _partitions(now, here):
        return "the table was partitioned in another way"
    return _unlike_columns(before, now, names)


def _unlike_columns(before: Action, now: Action, names: set[str]) -> str:
    was, here = (stored_columns(one["schemaString"]) for one in (before, now))
    former = {column.name: name for name, column in was.items()}
    shown = {column.name: column.type for column in columns_of(before["schemaString"])}
    for column in columns_of(now["schemaString"]):
        name = column.name
        if name not in names:
            continue
        if (old := former.get(here[name].name, name)) != name:
            return f"column {name} was called {old}"
        if name not in was:
            continue
        if was[name].name != here[name].name:
            return f"column {name} was another one"
        pairs = ((column.type, shown[name]), (here[name].type, was[name].type))
        if any(new != old and not types.is_wider(new, old) for new, old in pairs):
            return f"column {name} had another type"
    return ""


def _partitions(metadata: Action, stored: Mapping[str, Column]) -> set[str]:
    return {stored[name].name for name in metadata["partitionColumns"]}
