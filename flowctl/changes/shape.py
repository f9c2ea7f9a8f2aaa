"""How a table's changes are described while its columns stay the same."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property

from flowctl.model import codec
from flowctl.model.codec import in_json
from flowctl.model.table_info import Column, ObjectName


@dataclass(frozen=True)
class Shape:
    """``identity`` is the table's, as in its description. ``columns`` are in the order of the captured rows.
    ``old_columns`` are those that are known of a row before its update or deletion: its replica identity, or all
    columns. ``private`` has one text per column for the connector that captured them, and one for each value that lies
    behind them and is no column's. ``ended``: the shape is that of no row, but of a statement (`Op.ALTERED`) after
    which no column has these names, or another one. ``converted``: of such a statement, columns into which it may have
    forced values.
    """

    object: ObjectName
    identity: str
    columns: tuple[Column, ...]
    old_columns: tuple[str, ...]
    private: tuple[str, ...] = ()
    ended: tuple[str, ...] = field(default=(), metadata=in_json("not_default"))
    converted: tuple[str, ...] = field(default=(), metadata=in_json("not_default"))

    @cached_property
    def digest(self) -> str:
        """Equal shapes have equal digests."""
        content = json.dumps(codec.to_json(self), ensure_ascii=False, sort_keys=True)
        return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def at(self, name: str) -> int | None:
        """The place of a column."""
        return next((place for place, column in enumerate(self.columns) if column.name == name), None)
