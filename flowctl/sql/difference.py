"""What a batch changes in a table, as one portable SELECT, and the two ways it is applied.

The batch ``s`` has one row per key: the target's columns and ``_flowctl_op`` (``U``: this is the row now, ``D``: the
key is deleted). Against the target ``t`` every row of the batch is one of

    U, key missing                                    insert
    U, key present, a compared column differs         update
    U, key present, soft-deleted                      update (it is back: ``_deleted_at`` becomes null)
    D, key present and not soft-deleted               delete (or ``_deleted_at`` is set)
    anything else                                     left out, nothing is rewritten

Nulls are equal to each other and to nothing else. SQL databases apply it by DELETE, UPDATE and INSERT inside one
transaction, Spark by one MERGE with the same conditions. It is an UPDATE, not a DELETE and an INSERT, so that columns
which others have added to the target are left alone. Types come from the tables; nothing here names one.

The statements are built in :mod:`flowctl.sql.upsert`, imported on first use: a plan needs none, and sqlglot
takes long to import.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flowctl.sql.dialects import Dialect

#: When a row of a merge target was soft-deleted; null while the source has it.
SOFT_DELETED = "_deleted_at"
#: Column of the difference: ``insert``, ``update`` or ``delete``.
ACTION = "_action"


@dataclass(frozen=True)
class Upsert:
    """One merge. ``target`` and ``batch`` are name parts; ``columns`` all columns of the target in order; those that
    the batch lacks stay as they are (``_deleted_at`` becomes null). ``operation`` is the batch's column of ``U`` and
    ``D``. ``deleted_at`` (RFC 3339) makes deletes soft; the target then has ``_deleted_at``. ``carried`` are further
    columns of the target, which the difference returns unchanged: a key may occur more than once, so nothing else
    identifies the row they belong to."""

    target: tuple[str, ...]
    batch: tuple[str, ...]
    columns: tuple[str, ...]
    batch_columns: tuple[str, ...]
    key: tuple[str, ...]
    compared: tuple[str, ...]
    operation: str
    deleted_at: str | None = None
    carried: tuple[str, ...] = ()

    @property
    def marks_deletes(self) -> bool:
        return SOFT_DELETED in self.columns


@dataclass(frozen=True)
class KeyBounds:
    """Smallest and largest value of key columns in the batch, as Spark literals: MERGE skips files by them."""

    by_column: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def difference(change: Upsert, dialect: Dialect) -> str:
    """The SELECT: every column of the target as it will be (for a deleted row: as it was), and ``_action``."""
    from flowctl.sql import upsert

    return upsert.difference(change, dialect)


def apply_statements(change: Upsert, differences: tuple[str, ...], dialect: Dialect) -> Mapping[str, tuple[str, ...]]:
    """The statements that apply ``differences``, a table with :func:`difference`; in this order, each with the actions
    of the rows that it applies."""
    from flowctl.sql import upsert

    return upsert.apply_statements(change, differences, dialect)


def merge_statement(change: Upsert, bounds: KeyBounds = KeyBounds()) -> str:
    """The same difference as one MERGE for Spark; columns are listed, never ``*``."""
    from flowctl.sql import upsert

    return upsert.merge_statement(change, bounds)
