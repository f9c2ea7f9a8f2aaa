"""What SQLite's DDL can do: it changes no column's type in place; a wider type is an "other type change" here."""

from __future__ import annotations

from dataclasses import replace

from flowctl.connectors.sqlite import dropping
from flowctl.connectors.target import TargetCapabilities
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import TableInfo

TARGET_CAPABILITIES = TargetCapabilities(
    widens=lambda old, new: False,
    atomic="database",
)


def refused(info: TableInfo, change: SchemaChange) -> SchemaChange | None:
    """``change``, which has its statement, as one that stops the table; None where SQLite makes it."""
    match change.action:
        case "drop":
            return dropping.refused(info, change)
        case "retype":
            return replace(change, action="fail", note="SQLite cannot change a column's type; drop the table")
        case "relax":
            return replace(change, action="fail", note="SQLite cannot take NOT NULL from a column; copy the table")
        case _:
            return None
