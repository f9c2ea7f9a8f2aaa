"""Whether a commit whose snapshot others have let expire is still part of the table."""

from __future__ import annotations

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from flowctl.connectors.iceberg.record import snapshot_properties, table_properties
from flowctl.connectors.iceberg.table import TablePlace, open_existing
from flowctl.connectors.lake.record import Record
from flowctl.model.commit import Commit
from tests.connectors.iceberg.foreign_tables import NAMESPACE
from tests.connectors.iceberg.source_reading import expire, point_to, rows


def commit(orders: Table, seq: int) -> Record:
    """As flowctl commits the number ``seq``."""
    record = Record(Commit("lineage", "orders", seq, f"intent-{seq}", str(orders.metadata.table_uuid), None))
    with orders.transaction() as transaction:
        transaction.append(rows((seq, "own")), snapshot_properties=snapshot_properties(record, {}))
    newest = orders.refresh().current_snapshot()
    assert newest is not None
    with orders.transaction() as transaction:
        transaction.set_properties(table_properties(record, newest.snapshot_id, newest.sequence_number or 0))
    return record


def others_append(orders: Table, times: int = 1) -> None:
    for _ in range(times):
        orders.refresh().append(rows((100, "theirs")))


def expire_all_but_the_newest(orders: Table) -> None:
    table = orders.refresh()
    expire(orders, *(one.snapshot_id for one in table.snapshots() if one != table.current_snapshot()))


def newest(catalog: SqlCatalog, record: Record) -> Record | None:
    return open_existing(TablePlace(catalog, (NAMESPACE, "orders"), {})).newest(record.app_id)


@pytest.mark.parametrize("times", [1, 3, 20])
def test_a_commit_is_part_of_the_table_after_it_has_expired(catalog: SqlCatalog, orders: Table, times: int) -> None:
    commit(orders, 1)
    record = commit(orders, 2)
    others_append(orders, times)
    expire_all_but_the_newest(orders)
    others_append(orders)
    found = newest(catalog, record)
    assert found is not None and found.commit.intent_id == "intent-2"


@pytest.mark.parametrize("times", [1, 3, 20])
def test_a_commit_that_others_rolled_back_is_not_there_after_it_has_expired(
    catalog: SqlCatalog, orders: Table, times: int
) -> None:
    commit(orders, 1)
    first = orders.refresh().snapshots()[0]
    record = commit(orders, 2)
    point_to(orders, first.snapshot_id)
    others_append(orders, times)
    expire_all_but_the_newest(orders)
    found = newest(catalog, record)
    assert found is not None and found.seq == 2
    assert found.commit.intent_id == ""
