"""The changes that a batch makes to a table, as one portable SELECT, and the two ways to apply them.

The batch ``s`` has one row per key: the target's columns and ``_flowctl_op`` (``U``: this is the row now, ``D``: the
key is deleted). Against the target ``t`` every row of the batch is one of

    U, key missing                                    insert
    U, key present, a compared column differs         update
    U, key present, soft-deleted                      update (it is back: ``_deleted_at`` becomes null)
    D, key present and not soft-deleted               delete (or ``_deleted_at`` is set)
    anything else                                     left out, nothing is rewritten

If changes have an order, ``_source_order``, every row keeps that of its last change, also of its deletion:

    older than the row                                left out
    as old as the row                                 as above, but a deleted row stays deleted
    newer, or the row has no order                    update, or delete
    D, key missing                                    insert (a deleted row: an older change may come yet)

Nulls are equal to each other and to nothing else. SQL databases apply it by DELETE, UPDATE and INSERT inside one
transaction, Spark by one MERGE with the same conditions. Rows are changed by an UPDATE, not by a DELETE and an INSERT,
so that columns which others have added to the target keep their values. All types come from the tables.

Statements are written in Spark's dialect and translated by sqlglot for the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from flowctl.sql import dialects
from flowctl.sql.collations import ALIKE, Collations
from flowctl.sql.dialects import Dialect

#: The time at which a row of a merge target was soft-deleted; null while the source has the row.
SOFT_DELETED = "_deleted_at"
#: Where in its source's log a row was changed last, or deleted: text that sorts.
SOURCE_ORDER = "_source_order"
#: Column of the difference: ``insert``, ``update`` or ``delete``. Named as no column of a user is.
ACTION = "_flowctl_action"


@dataclass(frozen=True)
class Upsert:
    """One merge. ``target`` and ``batch`` are name parts; ``columns`` all columns of the target in order; those that
    the batch lacks stay as they are (``_deleted_at`` becomes null). ``operation`` is the batch's column of ``U`` and
    ``D``. ``deleted_at`` (RFC 3339) makes deletes soft; the target then has ``_deleted_at``. ``is_ordered``: both have
    ``_source_order``, and deletes are soft. ``carried`` are further columns of the target, which the difference returns
    unchanged: a key may occur more than once, so nothing else identifies the row they belong to. Of
    ``as_text``, the texts of values are compared; a key among them is found by its value and gets the batch's text.
    ``collations`` are the target's that MySQL does not mix with the batch's."""

    target: tuple[str, ...]
    batch: tuple[str, ...]
    columns: tuple[str, ...]
    batch_columns: tuple[str, ...]
    key: tuple[str, ...]
    compared: tuple[str, ...]
    operation: str
    deleted_at: str | None = None
    is_ordered: bool = False
    carried: tuple[str, ...] = ()
    as_text: frozenset[str] = frozenset()
    collations: Collations = ALIKE

    @property
    def marks_deletes(self) -> bool:
        return SOFT_DELETED in self.columns


@dataclass(frozen=True)
class KeyBounds:
    """Smallest and largest value of key columns in the batch, as Spark literals: MERGE skips files by them."""

    by_column: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def difference(change: Upsert, dialect: Dialect) -> str:
    """The SELECT: every column of the target as it will be (for a deleted row: as it was), and :data:`ACTION`."""
    values = {
        name: f"CASE WHEN {_is(change, 'D')} THEN {_deleted_value(change, name, dialect)}"
        f" ELSE {_batch_value(change, name)} END"
        for name in change.columns
    } | {name: _column("t", name) for name in change.carried}
    return _render(
        f"""
        SELECT {", ".join(f"{value} AS {_quoted(name)}" for name, value in values.items())},
               CASE WHEN {_is(change, "D")} AND NOT {_is_new(change)} THEN 'delete'
                    WHEN {_is_new(change)} THEN 'insert' ELSE 'update' END
               AS {_quoted(ACTION)}
        FROM {_table(change.batch)} AS s LEFT JOIN {_table(change.target)} AS t ON {_keys_match(change, "t", "s")}
        WHERE {_is(change, "U")} AND ({_is_new(change)} OR {_is_changed(change)})
              OR {_is_deleted(change)}{"" if change.is_ordered else f" AND NOT {_is_new(change)}"}""",
        dialect,
        change.collations,
    )


def apply_statements(change: Upsert, differences: tuple[str, ...], dialect: Dialect) -> Mapping[str, tuple[str, ...]]:
    """The statements that apply ``differences``, a table with :func:`difference`; in this order, each with the actions
    that it applies."""
    target, changes, action = _table(change.target), f"{_table(differences)} AS d", _column("d", ACTION)
    statements: dict[str, tuple[str, ...]] = {}
    updated: tuple[str, ...] = ("update", "delete")  # a soft delete is an update
    if change.deleted_at is None:
        updated = ("update",)
        gone = _render(f"SELECT {_listed('d', change.key)} FROM {changes} WHERE {action} = 'delete'", dialect)
        statements[dialects.deletion(change.target, change.key, gone, dialect, change.collations)] = ("delete",)
    if values := [name for name in change.columns if name not in change.key or name in change.as_text]:
        is_updated = f"{action} IN ({', '.join(map(repr, updated))})"
        update = f"""UPDATE {target} AS t SET {", ".join(f"{_quoted(name)} = {_column('d', name)}" for name in values)}
                     FROM {changes} WHERE {_keys_match(change, "d", "t")} AND {is_updated}"""
        statements[_render(update, dialect, change.collations)] = updated
    insert = f"""INSERT INTO {target} ({_listed("", change.columns)})
                 SELECT {_listed("d", change.columns)} FROM {changes} WHERE {action} = 'insert'"""
    statements[_render(insert, dialect)] = ("insert",)
    return statements


def merge_statement(change: Upsert, bounds: KeyBounds = KeyBounds()) -> str:
    """The same difference as one MERGE for Spark; columns are listed, never ``*``."""
    values = {name: _batch_value(change, name) for name in change.columns if name in change.batch_columns}
    if change.marks_deletes:
        values[SOFT_DELETED] = "NULL"
    within = [f" AND {_column('t', name)} BETWEEN {low} AND {high}" for name, (low, high) in bounds.by_column.items()]
    delete, inserted, is_inserted = "DELETE", dict(values), _is(change, "U")
    if change.deleted_at is not None:
        moment = dialects.moment(change.deleted_at, "spark")
        delete = f"UPDATE SET {_quoted(SOFT_DELETED)} = {moment}"
        if change.is_ordered:
            delete += f", {_quoted(SOURCE_ORDER)} = {_column('s', SOURCE_ORDER)}"
            inserted[SOFT_DELETED] = f"CASE WHEN {_is(change, 'D')} THEN {moment} END"
            is_inserted = "TRUE"
    return f"""MERGE INTO {_table(change.target)} AS t USING {_table(change.batch)} AS s
        ON {_keys_match(change, "t", "s")}{"".join(within)}
        WHEN MATCHED AND {_is_deleted(change)} THEN {delete}
        WHEN MATCHED AND {_is(change, "U")} AND ({_is_changed(change)}) THEN
            UPDATE SET {", ".join(f"{_quoted(name)} = {value}" for name, value in values.items())}
        WHEN NOT MATCHED AND {is_inserted} THEN
            INSERT ({_listed("", inserted)}) VALUES ({", ".join(inserted.values())})"""


def _deleted_value(change: Upsert, name: str, dialect: Dialect) -> str:
    if name == SOFT_DELETED and change.deleted_at is not None:
        return dialects.translatable_moment(change.deleted_at, "spark", dialect)
    if change.is_ordered and name in change.batch_columns:
        new = _column("s", name)
        is_of_batch = name == SOURCE_ORDER or name in change.key
        return new if is_of_batch else f"CASE WHEN {_is_new(change)} THEN {new} ELSE {_column('t', name)} END"
    return _column("t", name)


def _batch_value(change: Upsert, name: str) -> str:
    """A column that the batch lacks keeps the row's value, null for a new row; a deletion mark is removed."""
    if name in change.batch_columns:
        return _column("s", name)
    return "NULL" if name == SOFT_DELETED else _column("t", name)


def _is_changed(change: Upsert) -> str:
    """Nulls are equal. A soft-deleted row that returns has changed. A newer order is a change."""
    compared = (*(name for name in change.key if name in change.as_text), *change.compared)
    differs = [f"NOT ({_compared(change, 's', name)} <=> {_compared(change, 't', name)})" for name in compared]
    came_back = [f"{_column('t', SOFT_DELETED)} IS NOT NULL"] if change.marks_deletes else []
    if change.is_ordered:
        is_same = f"{_is_live()} AND ({' OR '.join(differs) or 'FALSE'})"
        return f"{_is_newer()} OR {_has_same_order()} AND {is_same}"
    return " OR ".join([*differs, *came_back]) or "FALSE"


def _compared(change: Upsert, of: str, name: str) -> str:
    return f"CAST({_column(of, name)} AS STRING)" if name in change.as_text else _column(of, name)


def _is_deleted(change: Upsert) -> str:
    """A ``D`` row that still has something to delete. Without soft deletes, a row marked earlier is deleted as well."""
    if change.is_ordered:
        is_same = f"{_has_same_order()} AND {_is_live()}"
        return f"{_is(change, 'D')} AND ({_is_newer()} OR {is_same})"
    return _is(change, "D") + (f" AND {_is_live()}" if change.deleted_at is not None else "")


def _is_live() -> str:
    return f"{_column('t', SOFT_DELETED)} IS NULL"


def _is_newer() -> str:
    """Also true for a key that the target does not have."""
    old, new = _column("t", SOURCE_ORDER), _column("s", SOURCE_ORDER)
    return f"({old} IS NULL OR {new} > {old})"


def _has_same_order() -> str:
    return f"{_column('s', SOURCE_ORDER)} = {_column('t', SOURCE_ORDER)}"


def _is_new(change: Upsert) -> str:
    return f"{_column('t', change.key[0])} IS NULL"


def _is(change: Upsert, operation: str) -> str:
    return f"{_column('s', change.operation)} = '{operation}'"


def _keys_match(change: Upsert, left: str, right: str) -> str:
    """Plain equality: keys are never null here, and hash joins and indexes require it."""
    return " AND ".join(f"{_column(left, name)} = {_column(right, name)}" for name in change.key)


def _listed(of: str, names: Iterable[str]) -> str:
    return ", ".join(_column(of, name) if of else _quoted(name) for name in names)


def _column(of: str, name: str) -> str:
    return f"{of}.{_quoted(name)}"


def _quoted(name: str) -> str:
    return dialects.quoted(name, "spark")


def _table(parts: tuple[str, ...]) -> str:
    return dialects.table(parts, "spark")


def _render(text: str, dialect: Dialect, collations: Collations = ALIKE) -> str:
    import sqlglot  # slow to import, and a plan renders nothing

    return collations.applied(sqlglot.parse_one(text, read="spark")).sql(dialect)
