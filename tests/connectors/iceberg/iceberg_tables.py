"""Iceberg tables as somebody else changes them, by PyIceberg alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyiceberg.table import Table, Transaction
from pyiceberg.table.update import SetSnapshotRefUpdate

from flowctl.connectors.iceberg.address import address_of
from flowctl.connectors.iceberg.catalogs import TableCatalog, open_catalog


@contextmanager
def catalog_of(warehouse: Path | str) -> Iterator[TableCatalog]:
    with open_catalog(address_of({"warehouse": str(warehouse)}, "."), {}) as catalog:
        yield catalog


def change(catalog: TableCatalog, identifier: tuple[str, ...], fill: Callable[[Transaction], object]) -> Table:
    """Commits what ``fill`` puts into a transaction."""
    table = catalog.load_table(identifier)
    transaction = table.transaction()
    fill(transaction)
    catalog.commit_table(table, transaction._requirements, transaction._updates)
    return catalog.load_table(identifier)


def drop_columns(catalog: TableCatalog, identifier: tuple[str, ...], names: Iterable[str]) -> None:
    def drop(transaction: Transaction) -> None:
        with transaction.update_schema(allow_incompatible_changes=True) as update:
            for name in names:
                update.delete_column(name)

    change(catalog, identifier, drop)


def roll_back(catalog: TableCatalog, identifier: tuple[str, ...], snapshot_id: int) -> Table:
    """Makes an earlier snapshot the newest, as Spark's ``rollback_to_snapshot`` does."""
    update = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=snapshot_id)
    catalog.commit_table(catalog.load_table(identifier), (), (update,))
    return catalog.load_table(identifier)
