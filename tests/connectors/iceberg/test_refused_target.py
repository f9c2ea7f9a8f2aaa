"""Tables of others that cannot be written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from flowctl.model.table_info import ObjectName
from tests.connectors.iceberg.foreign_tables import connection, delete_equal, delete_positions, paths
from tests.connectors.reading import opened


def test_writes_other_than_append_stop_where_others_have_deleted_by_value(orders: Table, tmp_path: Path) -> None:
    orders.append(pa.table({"id": pa.array([1, 2], pa.int64()), "note": ["a", "b"]}))
    orders = delete_positions(orders, {paths(orders)[0]: [0]})
    name = ObjectName(("orders",))
    with opened("iceberg", base_dir=str(tmp_path), **connection(tmp_path)) as connector:
        target = connector.target
        before = target.describe([name])[name]
        delete_equal(orders, Schema(orders.schema().find_field("id")), pa.table({"id": pa.array([2], pa.int64())}))
        info = target.describe([name])[name]
        for mode, replaces in (("merge", False), ("scd2", False), ("truncate", True), ("append", True)):
            assert target.refuse_write(before, mode, replaces=replaces) is None
            refused = target.refuse_write(info, mode, replaces=replaces)
            assert "equality deletes" in refused.message and "compact the table" in refused.hint
        assert target.refuse_write(info, "append", replaces=False) is None
