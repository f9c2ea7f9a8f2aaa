"""How a table's changes are described while its columns stay the same."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from functools import cached_property

from flowctl.model import codec, types
from flowctl.model.codec import in_json
from flowctl.model.table_info import Column, ObjectName
from flowctl.model.types import Array, Decimal

#: PostgreSQL's types of a small size that are texts here.
_SHORT = re.compile(r"(uuid|macaddr8?|inet|cidr|interval|money|time|timetz)\b(?!.*\[\])")


def is_long(column: Column) -> bool:
    """Whether values may be so long that they lie apart from the row."""
    if _SHORT.match(column.native):
        return False
    return column.type in (types.STRING, types.BINARY) or isinstance(column.type, Array | Decimal)


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

    @property
    def left_out(self) -> tuple[str, ...]:
        """The columns whose values an update may not send if they are long and unchanged: those that are not known of
        a row before it."""
        return tuple(column.name for column in self.columns if column.name not in self.old_columns and is_long(column))

    def at(self, name: str) -> int | None:
        """The place of a column."""
        return next((place for place, column in enumerate(self.columns) if column.name == name), None)
