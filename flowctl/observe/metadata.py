"""Columns about each change, which a table that appends a change stream has beside the source's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from flowctl.model import types
from flowctl.model.table_info import Column, TableInfo
from flowctl.spec.spec import Metadata, TableSpec

COLUMNS: Mapping[Metadata, Column] = {
    "op": Column("_op", types.STRING),
    "commit_lsn": Column("_commit_lsn", types.STRING),
    "seq": Column("_seq", types.INT64),
    "committed_at": Column("_committed_at", types.TIMESTAMP),
    "xid": Column("_xid", types.INT64),
    "unchanged": Column("_unchanged", types.STRING),
}


def with_metadata(table: TableSpec, info: TableInfo) -> TableInfo:
    """The source as its changes are appended: a deletion has values for few columns, so all may be null."""
    if table.mode != "append":
        return info
    own = tuple(replace(column, nullable=True) for column in info.columns)
    return replace(info, columns=(*own, *(COLUMNS[name] for name in table.metadata)))


def is_metadata(column: Column) -> bool:
    return column in COLUMNS.values()
