"""Changes a table's schema to the columns that a commit needs, in its transaction."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

from flowctl.connectors.iceberg.types import columns_of, iceberg_type, stored, widens
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    from pyiceberg.table import Transaction


def evolve(transaction: Transaction, columns: Sequence[Column], *, replaces: bool) -> None:
    """New columns come last; a required column becomes optional if ``columns`` has it nullable, as in the plan; types
    are promoted. With ``replaces``, all content is replaced: other types are changed too, as new columns of the same
    name, and columns that are not listed are dropped."""
    have = {column.name: column for column in columns_of(transaction.table_metadata.schema())}
    other = [one for one in columns if one.name in have and _is_other(have[one.name], one)]
    if other and not replaces:
        one = other[0]
        raise TableError(
            f'"{one.name}" cannot become {types.short(one.type)}: Iceberg cannot change {have[one.name].native} so',
            hint="Run this table once with --full-refresh",
        )
    gone = [*(one.name for one in other)]
    if replaces:
        listed = {column.name for column in columns}
        gone += [name for name in have if name not in listed]
    partitioned = _partition_columns(transaction)
    if fixed := next((name for name in gone if name in partitioned), None):
        raise TableError(
            f"the table is partitioned by {fixed}, which cannot be dropped or get another type",
            hint="Write to another table with `to`",
        )
    with transaction.update_schema(allow_incompatible_changes=True) as update:
        for name in gone:
            update.delete_column((name,))
    with transaction.update_schema(allow_incompatible_changes=True) as update:
        for column in columns:
            there = have.get(column.name)
            kind = iceberg_type(column.type, count(1))
            if there is None or column in other:
                update.add_column((column.name,), kind)
                continue
            if widens(there.type, column.type):
                update.update_column((column.name,), kind)
            if column.nullable and not there.nullable:
                update.make_column_optional((column.name,))


def _is_other(there: Column, wanted: Column) -> bool:
    """Whether the column cannot be promoted to the wanted type. A type that flowctl does not carry is shown as text."""
    return there.as_text or (there.type != stored(wanted.type) and not widens(there.type, wanted.type))


def _partition_columns(transaction: Transaction) -> set[str]:
    metadata = transaction.table_metadata
    schema = metadata.schema()
    return {schema.find_column_name(field.source_id) or "" for field in metadata.spec().fields}
