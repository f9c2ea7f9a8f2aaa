"""One difference between source, recorded source and target, and the action taken for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from flowctl.model.codec import in_json
from flowctl.model.types import DataType

Change = Literal["new_column", "wider_type", "other_type", "dropped_column", "nullable", "drift", "feature"]
Action = Literal["add", "ignore", "widen", "text", "keep", "null", "drop", "relax", "retype", "show", "enable", "fail"]
ChangeClass = Literal["safe", "destructive"]


@dataclass(frozen=True)
class SchemaChange:
    """``policy`` names the deciding key and value (``on_schema_change.new_column: add``). ``statement`` is the DDL that
    apply runs; empty if none is needed. ``old`` or ``new`` is None where the column does not exist. ``is_known``: the
    source lacks a column that an earlier run has already reported, that the definition leaves out, or that is foreign.
    If the change stops the table, ``next_step`` is the target's own hint for a change that it cannot make, and
    ``if_refused`` the general hint. ``native`` as in a
    :class:`~flowctl.model.table_info.Column` to be created."""

    column: str
    change: Change
    old: DataType | None = field(metadata=in_json(name="from"))
    new: DataType | None = field(metadata=in_json(name="to"))
    action: Action
    policy: str
    change_class: ChangeClass = field(default="safe", metadata=in_json(name="class"))
    statement: str = ""
    note: str = ""
    next_step: str = field(default="", compare=False, metadata=in_json("never"))
    if_refused: str = field(default="", compare=False, metadata=in_json("never"))
    is_known: bool = field(default=False, metadata=in_json("never"))
    native: str = field(default="", metadata=in_json("not_default"))

    @property
    def alters(self) -> bool:
        """Whether ``statement`` is run."""
        return self.statement != "" and self.action in ("add", "widen", "text", "relax", "retype", "enable", "drop")
