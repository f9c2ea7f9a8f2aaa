"""One table as a source or a target describes it."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from flowctl.model.codec import in_json
from flowctl.model.types import DataType

#: How a plan comes to know rows: not at all, from the source's statistics, or by counting.
Estimate = Literal["none", "stats", "count"]
RowMethod = Literal["none", "stats", "count", "unknown"]


#: Of an identity whose system is not known, as when a privilege was taken away: ``pg:unknown@db:5432/5/16384``.
UNKNOWN = "unknown"


def same_identity(one: str, other: str) -> bool:
    """Whether two identities (of tables or systems) may be the same: an unknown system matches any."""
    (of_one, _, rest), (of_other, _, others) = (text.partition("/") for text in (one, other))
    kind, _, system = of_one.partition(":")
    other_kind, _, other_system = of_other.partition(":")
    return (kind, rest) == (other_kind, others) and (
        system == other_system or system.startswith(UNKNOWN) or other_system.startswith(UNKNOWN)
    )


@dataclass(frozen=True, order=True)
class ObjectName:
    """A table, view or path pattern inside a connection: ``("public", "orders")``, ``("invoices/*.csv",)``."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True)
class Column:
    """One column. ``native`` is the system's own text of its type. ``as_text`` says that the system's type has no
    exact counterpart and its canonical text is read instead; ``note`` explains why, where it is not obvious."""

    name: str
    type: DataType
    nullable: bool = True
    native: str = field(default="", metadata=in_json("since"))
    as_text: bool = field(default=False, metadata=in_json("since"))
    note: str = field(default="", metadata=in_json("since"))


@dataclass(frozen=True)
class RowEstimate:
    """``value`` rows by ``method``; ``bytes`` where the system knows."""

    value: int | None = None
    method: RowMethod = "unknown"
    bytes: int | None = None


@dataclass(frozen=True)
class TableInfo:
    """What was observed of one table at one moment.

    ``identity`` distinguishes this very table from another of the same name (system identifier and OID, Delta table id,
    file inode): definitions record it. ``system`` is that of the system alone, where the identity has more
    than that. ``version`` is the target's own version where it has one. ``created_by`` is the id of the intent that a
    target was made for, as long as it holds no commit; empty where a table comes with its first commit. ``primary_key``
    is in key order. ``clock`` is the system's own time. ``extra`` is for the connector that made it and nobody else:
    JSON-safe values only. ``only_without`` are, for each column that some files lack, those that only such files have.
    """

    object: ObjectName
    columns: tuple[Column, ...]
    identity: str
    primary_key: tuple[str, ...] = ()
    version: int | None = None
    rows: RowEstimate = RowEstimate()
    clock: dt.datetime | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    system: str = ""
    created_by: str = ""
    only_without: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def shape(self) -> str:
        """A digest of the columns and the key: other columns, another digest."""
        listed = [[column.name, str(column.type), column.nullable, column.native] for column in self.columns]
        document = json.dumps([listed, list(self.primary_key)], ensure_ascii=False)
        return hashlib.sha256(document.encode("utf-8", "surrogatepass")).hexdigest()

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)
