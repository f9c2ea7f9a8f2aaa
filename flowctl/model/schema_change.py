"""One difference between source, recorded source and target, with what will be done about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from flowctl.model import types
from flowctl.model.types import DataType

Change = Literal["new_column", "wider_type", "other_type", "dropped_column", "nullable", "drift", "feature"]
Action = Literal["add", "ignore", "widen", "text", "keep", "null", "drop", "relax", "retype", "show", "enable", "fail"]
ChangeClass = Literal["safe", "destructive"]


@dataclass(frozen=True)
class SchemaChange:
    """``policy`` names the deciding key and value (``on_schema_change.new_column: add``); ``statement`` is the DDL
    that apply runs, empty when none is needed. ``old`` or ``new`` is None where the column is not there. ``next_step``
    is the target's own hint for a change that it does not make; it is told where the table stops."""

    column: str
    change: Change
    old: DataType | None
    new: DataType | None
    action: Action
    policy: str
    change_class: ChangeClass = "safe"
    statement: str = ""
    note: str = ""
    next_step: str = ""

    @property
    def alters(self) -> bool:
        """Whether its statement is run."""
        return self.statement != "" and self.action in ("add", "widen", "text", "relax", "retype", "enable", "drop")

    def to_json(self) -> dict[str, Any]:
        return {
            "column": self.column,
            "change": self.change,
            "from": str(self.old) if self.old else None,
            "to": str(self.new) if self.new else None,
            "action": self.action,
            "policy": self.policy,
            "class": self.change_class,
            "statement": self.statement,
            "note": self.note,
        }


def from_json(document: Mapping[str, Any]) -> SchemaChange:
    return SchemaChange(
        column=document["column"],
        change=document["change"],
        old=types.parse(document["from"]) if document["from"] else None,
        new=types.parse(document["to"]) if document["to"] else None,
        action=document["action"],
        policy=document["policy"],
        change_class=document["class"],
        statement=document["statement"],
        note=document["note"],
    )
