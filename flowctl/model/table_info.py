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

#: How a plan estimates row counts: not at all, from the source's statistics, or by counting.
Estimate = Literal["none", "stats", "count"]
RowMethod = Literal["none", "stats", "count", "unknown"]


#: Stands for an unknown system in an identity, e.g. when a privilege was revoked: ``pg:unknown@db:5432/5/16384``.
UNKNOWN = "unknown"


def same_identity(one: str, other: str) -> bool:
    """Whether two identities (of tables or systems) may be the same: an unknown system matches any."""
    (of_one, _, rest), (of_other, _, others) = (text.partition("/") for text in (one, other))
    kind, _, system = of_one.partition(":")
    other_kind, _, other_system = of_other.partition(":")
    return (kind, rest) == (other_kind, others) and (
        system == other_system or system.startswith(UNKNOWN) or other_system.startswith(UNKNOWN)
    )


def same_system(one: tuple[str, str], other: tuple[str, str]) -> bool:
    """Whether two tables, of each its system and its identity, may be in the same system. Of an SQLite file, an older
    flowctl recorded the identity as the system."""
    return same_identity(one[0], other[0]) or one[0] == one[1] == other[1]


def view_digest(query: str | None, version: str = "") -> str:
    """What :attr:`TableInfo.view` says of a view's query. ``version``: that of the database, if it does not keep the
    text as it was given, but writes it anew: another version may write another text."""
    if not query:
        return ""
    return f"{version}/{hashlib.sha256(query.encode('utf-8', 'surrogatepass')).hexdigest()}"


#: How a :func:`view_digest` of a table's row-level policies begins. Unlike a view's query, they are always known.
POLICIES = "policies "


def same_view(one: str, other: str) -> bool:
    """Whether two digests may be of the same query: an unknown one matches any."""
    (of_one, _, query), (of_other, _, other_query) = one.partition("/"), other.partition("/")
    return "" in (one, other) or of_one != of_other or query == other_query


@dataclass(frozen=True, order=True)
class ObjectName:
    """A table, view or path pattern inside a connection: ``("public", "orders")``, ``("invoices/*.csv",)``."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.parts)


#: The identity of a column that has no more changes: one that has its name later is another.
ENDED = "ended"
#: That of a column that was declared again by a session that converts what does not fit, instead of refusing it.
CONVERTED = "converted"


@dataclass(frozen=True)
class Column:
    """One column. ``native`` is the type as the system itself writes it. ``as_text``: the type has no exact
    counterpart, so its canonical text is read instead; ``note`` explains why where it is not obvious. ``portable`` is
    the type that any other system of the same kind has for these values, as it writes it; empty if none is known.
    ``identity`` distinguishes the column from others that the table had or has under its name, as far as it is known:
    empty where it is not, :data:`ENDED` for one that was dropped or renamed. Only change streams ask for it."""

    name: str
    type: DataType
    nullable: bool = True
    native: str = field(default="", metadata=in_json("since"))
    as_text: bool = field(default=False, metadata=in_json("since"))
    note: str = field(default="", metadata=in_json("since"))
    portable: str = field(default="", compare=False, metadata=in_json("never"))
    identity: str = field(default="", compare=False, metadata=in_json("not_default"))


@dataclass(frozen=True)
class RowEstimate:
    """``value`` is the number of rows as determined by ``method``; ``bytes`` is the size, if the system knows it."""

    value: int | None = None
    method: RowMethod = "unknown"
    bytes: int | None = None


@dataclass(frozen=True)
class TableInfo:
    """What was observed of one table at one moment.

    ``identity`` distinguishes this table from another of the same name (system identifier and OID, Delta table id, file
    inode); definitions record it. ``system`` identifies the system alone, if ``identity`` contains more than that.
    ``version`` is the target's own version, if it has one. ``created_by`` is the id of the intent that created the
    target, until its first commit; empty where the first commit creates the table. ``primary_key`` is in key order.
    ``clock`` is the system's current time. ``extra`` is private to the connector that set it: JSON-safe values only.
    ``only_without`` maps each column that some files lack to the columns that only those files have; ``lacking`` each
    column that a file lacks that was not read yet, to the first such file. ``view`` is the :func:`view_digest` of the
    query that makes its rows, or of the policies that hide some of them; empty for other tables, and if the query is
    unknown.
    ``decoded_because``: why its rows cannot be passed on undecoded (:mod:`flowctl.connectors.undecoded`), in a system
    that can do that; empty if they can. ``reads_whole_rows``: the engine gets all columns, excluded ones too.
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
    lacking: Mapping[str, str] = field(default_factory=dict)
    view: str = ""
    decoded_because: str = ""
    reads_whole_rows: bool = False

    @property
    def shape(self) -> str:
        """A digest of the columns and the key; it changes with them."""
        listed = [[column.name, str(column.type), column.nullable, column.native] for column in self.columns]
        document = json.dumps([listed, list(self.primary_key)], ensure_ascii=False)
        return hashlib.sha256(document.encode("utf-8", "surrogatepass")).hexdigest()

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)
