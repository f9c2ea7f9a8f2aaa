"""What tests of Iceberg as a source share: the rows of a version, and what changed between two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.update import SetSnapshotRefUpdate

from flowctl.connectors.source import DELETED_COLUMN, PLACE_COLUMN, HighWatermark, ReadRequest, WatermarkRequest
from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import VersionPosition
from flowctl.model.table_info import Column, Estimate
from tests.connectors.reading import Collected, captured_rows, describe, table

OWN_NAMES = (PLACE_COLUMN, DELETED_COLUMN)
OWN = (Column(PLACE_COLUMN, types.INT64), Column(DELETED_COLUMN, types.BOOL))
ORDERS = table("orders")
SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string())])


def rows(*notes: tuple[int | None, str | None]) -> pa.Table:
    return pa.table({"id": [id for id, _ in notes], "note": [note for _, note in notes]}, SCHEMA)


def version(orders: Table) -> int:
    snapshot = orders.refresh().current_snapshot()
    return (snapshot.sequence_number or 0) if snapshot is not None else 0


def position(source: Any, number: int) -> VersionPosition:
    return VersionPosition(number, describe(source, ORDERS).identity)


def changes_in_order(
    source: Any, since: int, upto: int, *, net: bool = True, key: Sequence[str] = ("id",), columns: Sequence[str] = ()
) -> list[dict[str, Any]]:
    info, sink = describe(source, ORDERS), Collected()
    taken = tuple(one for one in info.columns if not columns or one.name in columns)
    interval = Interval(position(source, since), position(source, upto))
    with source.capture(ORDERS, info) as capture:
        capture.read(ReadRequest((*taken, *OWN), interval, net=net, key=tuple(key)), sink)
    return sorted(sink.rows, key=lambda row: row[PLACE_COLUMN] or 0)


def changes(source: Any, since: int, upto: int, **given: Any) -> list[tuple[Any, ...]]:
    """What changed: the rows' values, and whether they were deleted."""
    found = changes_in_order(source, since, upto, **given)
    values = [
        (
            *(value for name, value in row.items() if name not in OWN_NAMES),
            *(["deleted"] if row[DELETED_COLUMN] else []),
        )
        for row in found
    ]
    return sorted(values, key=repr)


def watermark(
    source: Any, since: int, *, net: bool = True, key: tuple[str, ...] = ("id",), estimate: Estimate = "stats"
) -> HighWatermark:
    info = describe(source, ORDERS)
    wanted = ReadRequest(info.columns, None, net=net, key=key)
    request = WatermarkRequest(ORDERS, info, estimate=estimate, since=position(source, since), changes=wanted)
    found: HighWatermark = source.high_watermarks({"orders": request})["orders"]
    return found


def changed(source: Any, since: int, **given: Any) -> Any:
    found = watermark(source, since, **given).changes
    assert found is not None
    return found


def point_to(orders: Table, snapshot: int) -> None:
    update = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=snapshot)
    orders.catalog.commit_table(orders.refresh(), (), (update,))


def expire(orders: Table, *snapshots: int) -> None:
    expiring = orders.refresh().maintenance.expire_snapshots()
    for snapshot in snapshots:
        expiring = expiring.by_id(snapshot)
    expiring.commit()


def content(source: Any, number: int) -> Counter[tuple[int, str]]:
    found = captured_rows(source, ORDERS, interval=Interval(None, position(source, number)))
    return Counter((row["id"], row["note"]) for row in found)
