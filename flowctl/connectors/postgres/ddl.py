"""What PostgreSQL's DDL can do and what it refuses."""

from __future__ import annotations

from flowctl.connectors.target import TargetCapabilities
from flowctl.model import types
from flowctl.model.types import DataType
from flowctl.sql import dialects

#: Longer names are cut by the server without an error. Source: PostgreSQL's `NAMEDATALEN` - 1, bytes.
_NAME_BYTES = 63


def widens(old: DataType, new: DataType) -> bool:
    """``ALTER COLUMN … TYPE`` casts every wider type exactly; int8 is a smallint already, so it never gets there."""
    return types.is_wider(new, old)


def refuses_name(name: str) -> str | None:
    if "\0" in name:
        return "PostgreSQL's names hold no NUL character"
    if len(name.encode()) > _NAME_BYTES:
        return f"PostgreSQL cuts names after {_NAME_BYTES} bytes"
    return None


TARGET_CAPABILITIES = TargetCapabilities(
    widens=widens,
    refuses_names=refuses_name,
    atomic="database",
)


def create_schema(name: str) -> str:
    return f"CREATE SCHEMA IF NOT EXISTS {dialects.quoted(name, 'postgres')}"
