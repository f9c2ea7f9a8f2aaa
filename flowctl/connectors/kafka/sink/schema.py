"""What a schema that flowctl registers describes, whatever its language."""

from __future__ import annotations

import re
from dataclasses import dataclass

from flowctl.model.table_info import Column

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class RowType:
    """The columns of a message's value, or of its key. ``nullable``: each of them may be null."""

    name: str
    columns: tuple[Column, ...]
    nullable: bool = True


def is_identifier(name: str) -> bool:
    return _IDENTIFIER.fullmatch(name) is not None


def identifier(name: str) -> str:
    """The nearest name of letters, digits and ``_`` that does not begin with a digit."""
    found = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return found if is_identifier(found) else f"_{found}"
