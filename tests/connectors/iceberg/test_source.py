"""Iceberg tables of other writers as a source: every value of a version, whatever its schema was."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType

from flowctl.connectors.source import PLACE_COLUMN, HighWatermark, ReadRequest, Relation, WatermarkRequest
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model.interval import Interval
from flowctl.model.position import VersionPosition
from flowctl.model.table_info import ObjectName
from tests.connectors.hostile import VALUES
from tests.connectors.iceberg.foreign_tables import (
    NAMESPACE,
)
from tests.connectors.iceberg.source_reading import (
    ORDERS,
    SCHEMA,
    changed,
    changes,
    changes_in_order,
    expire,
    position,
    rows,
    watermark,
)
from tests.connectors.reading import Collected, captured_rows, describe, table

TYPES: Mapping[str, pa.Array] = {
    "bool": pa.array([True, None]),
    "int": pa.array([-(2**31), None], pa.int32()),
    "long": pa.array([2**63 - 1, None], pa.int64()),
    "float": pa.array([0.1, None], pa.float32()),
    "double": pa.array([float("-inf"), None], pa.float64()),
    "decimal": pa.array([Decimal("-12345678901234567890.123456789012345678"), None], pa.decimal128(38, 18)),
    "text": pa.array(['🦆 "quoted"\n', ""]),
    "bytes": pa.array([b"\x00\xff", b""]),
    "day": pa.array([dt.date(1, 1, 1), None]),
    "at": pa.array([dt.datetime(1900, 1, 1, 0, 0, 0, 1, dt.UTC), None], pa.timestamp("us", "UTC")),
    "local": pa.array([dt.datetime(9999, 12, 31, 23, 59, 59, 999999), None], pa.timestamp("us")),
    "list": pa.array([[1, None], []], pa.list_(pa.int64())),
    "parts": pa.array([{"a": 1, "b": ["x"]}, None], pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])),
    "deep": pa.array([[{"a": [Decimal("1.50")]}], [None]], pa.list_(pa.struct([("a", pa.list_(pa.decimal128(9, 2)))]))),
}


def test_every_type_by_value(source: Any, catalog: SqlCatalog) -> None:
    content = pa.table(dict(TYPES))
    catalog.create_table(f"{NAMESPACE}.orders", schema=content.schema).append(content)
    assert [list(row.values()) for row in captured_rows(source, ORDERS)] == [
        list(row.values()) for row in content.to_pylist()
    ]
    info = describe(source, ORDERS)
    assert (info.rows.value, info.rows.method) == (2, "count")


def test_types_that_are_not_carried_are_named(source: Any, catalog: SqlCatalog) -> None:
    content = pa.table({"id": [1], "at": pa.array([dt.time(1)], pa.time64("us"))})
    catalog.create_table(f"{NAMESPACE}.orders", schema=content.schema).append(content)
    failure = watermark(source, 0).failure
    assert failure is not None and "column at of sales.orders cannot be read" in failure.message
    assert captured_rows_of(source, "id") == [{"id": 1}]


def captured_rows_of(source: Any, *names: str) -> list[dict[str, Any]]:
    info, sink = describe(source, ORDERS), Collected()
    with source.capture(ORDERS, info) as capture:
        capture.read(ReadRequest(tuple(one for one in info.columns if one.name in names)), sink)
    return sink.rows


def test_hostile_values_of_partitions(source: Any, catalog: SqlCatalog) -> None:
    values = [value for value in VALUES.values() if "\x00" not in value and len(value.encode()) < 64]
    made = catalog.create_table(f"{NAMESPACE}.orders", schema=SCHEMA)
    with made.update_spec() as spec:
        spec.add_field("note", IdentityTransform())
    with made.update_schema() as update:
        update.rename_column("id", 'i"d 🦆 %20')
    made.append(rows(*enumerate(values), (77, None)).rename_columns(['i"d 🦆 %20', "note"]))
    assert sorted(map(repr, (tuple(row.values()) for row in captured_rows(source, ORDERS)))) == sorted(
        map(repr, [*enumerate(values), (77, None)])
    )


def test_a_table_that_nobody_has_written_yet(source: Any, orders: Table) -> None:
    info = describe(source, ORDERS)
    assert (info.version, info.rows.value, info.rows.method) == (0, 0, "count")
    assert captured_rows(source, ORDERS) == []
    orders.append(rows((1, "a")))
    assert changes(source, 0, 1, key=()) == [(1, "a")]
    found = changed(source, 0, key=())
    assert (found.removes, found.lost, found.rows.value, found.rows.method) == ("", "", 1, "count")


def test_one_version_stays_what_it_was(source: Any, orders: Table) -> None:
    orders.append(rows((1, "a"), (2, "b")))
    orders.delete("id = 1")
    orders.append(rows((3, "c")))
    ids = {snapshot.sequence_number: snapshot.snapshot_id for snapshot in orders.refresh().snapshots()}
    for number, expected in {1: [1, 2], 2: [2], 3: [2, 3]}.items():
        found = captured_rows(source, ORDERS, interval=Interval(None, position(source, number)))
        assert sorted(row["id"] for row in found) == expected
        for pinned in (
            table(f"orders@v{number}"),
            table(f"orders@s{ids[number]}"),
            table("sales", f"orders@v{number}"),
        ):
            assert sorted(row["id"] for row in captured_rows(source, pinned)) == expected
            assert describe(source, pinned).version == number
    with pytest.raises(TableError, match=r"version 7 of sales.orders has expired"):
        source.describe([table("orders@v7")])
    failure = watermark_of(source, table("orders@s7"), None).failure
    assert failure is not None and failure.message == "sales.orders has no snapshot 7"


@pytest.mark.parametrize("named", ["v1", "s"])
def test_a_version_that_was_read_may_expire(source: Any, orders: Table, named: str) -> None:
    """As `flowctl maintain` does to it: nothing is left to read."""
    orders.append(rows((1, "a")))
    snapshot = orders.refresh().metadata.current_snapshot_id
    pinned = table(f"orders@{named}{snapshot if named == 's' else ''}")
    recorded = watermark_of(source, pinned, None).position
    assert isinstance(recorded, VersionPosition) and recorded.version == 1
    orders.overwrite(rows((2, "b")))
    expire(orders, snapshot)
    found = watermark_of(source, pinned, recorded)
    assert (found.position, found.failure, found.changes) == (recorded, None, None)
    pending = Interval(None, recorded)
    others = (None, replace(recorded, table="another"), VersionPosition(2, recorded.table, "7"))
    for failed in (
        watermark_of(source, pinned, recorded, pending),
        *(watermark_of(source, pinned, to) for to in others),
    ):
        assert failed.failure is not None and failed.failure.hint.startswith("Choose one that has not expired")
    with orders.update_schema() as update:
        update.add_column("more", LongType())
    with pytest.raises(TableError, match=r"has expired|has no snapshot"):  # which columns it had is not known
        source.describe([pinned])


def watermark_of(
    source: Any, relation: Relation, since: VersionPosition | None, begun: Interval | None = None
) -> HighWatermark:
    info = describe(source, relation)
    request = WatermarkRequest(relation, info, since=since, changes=ReadRequest(info.columns), begun=begun)
    found = source.high_watermarks({"orders": request})["orders"]
    assert isinstance(found, HighWatermark)
    return found


def test_tables_by_pattern(source: Any, catalog: SqlCatalog) -> None:
    for name in ("orders", "lines"):
        catalog.create_table(f"{NAMESPACE}.{name}", schema=SCHEMA)
    catalog.create_namespace("other")
    catalog.create_table("other.orders", schema=SCHEMA)
    assert source.discover(("*",)) == [ObjectName(("lines",)), ObjectName(("orders",))]
    assert source.discover(("*", "orders")) == [ObjectName(("other", "orders")), ObjectName(("sales", "orders"))]
    assert source.describe([table("order")])[table("order")] is None
    assert source.why_missing(table("order")).hint == "Did you mean `orders`?"


def test_the_schema_of_the_plan_is_read(source: Any, orders: Table) -> None:
    """A column that is renamed between plan and run is read under the name that was planned."""
    orders.append(rows((1, "a")))
    info, sink = describe(source, ORDERS), Collected()
    with orders.update_schema() as update:
        update.rename_column("note", "text")
    orders.append(pa.table({"id": [2], "text": ["b"]}))
    with source.capture(ORDERS, info) as capture:
        capture.read(ReadRequest(info.columns), sink)
    assert sink.rows == [{"id": 1, "note": "a"}]


def test_a_table_that_was_made_again(source: Any, catalog: SqlCatalog, orders: Table) -> None:
    orders.append(rows((1, "a")))
    info = describe(source, ORDERS)
    catalog.drop_table(f"{NAMESPACE}.orders")
    with pytest.raises(StoppedByPolicy, match="any more"), source.capture(ORDERS, info):
        pass
    catalog.create_table(f"{NAMESPACE}.orders", schema=SCHEMA)
    assert describe(source, ORDERS).identity != info.identity
    with pytest.raises(StoppedByPolicy, match="dropped and created again"), source.capture(ORDERS, info):
        pass
    now, planned = describe(source, ORDERS), VersionPosition(1, info.identity)  # a saved plan's
    with source.capture(ORDERS, now) as capture, pytest.raises(StoppedByPolicy, match="dropped and created again"):
        capture.read(ReadRequest(now.columns, Interval(None, planned)), Collected())


@pytest.mark.parametrize("bound", ["lower", "upper"])
def test_a_planned_version_that_is_another_one_now_is_not_read(source: Any, orders: Table, bound: str) -> None:
    orders.append(rows((1, "a")))
    orders.append(rows((2, "b")))
    info = describe(source, ORDERS)
    lower, upper = VersionPosition(1, info.identity), VersionPosition(2, info.identity)
    other = replace(lower if bound == "lower" else upper, stamp="1")
    planned = Interval(other, upper) if bound == "lower" else Interval(lower, other)
    with source.capture(ORDERS, info) as capture, pytest.raises(StoppedByPolicy, match="is another one now") as error:
        capture.read(ReadRequest(info.columns, planned), Collected())
    assert error.value.hint == "Plan again"


def test_format_versions(source: Any, catalog: SqlCatalog) -> None:
    """Version 1 has no sequence numbers: the time of a snapshot takes their place."""
    old = catalog.create_table(f"{NAMESPACE}.orders", schema=SCHEMA, properties={"format-version": "1"})
    old.append(rows((1, "a")))
    old.append(rows((2, "b")))
    first, second = (one.timestamp_ms for one in old.refresh().snapshots())
    assert describe(source, ORDERS).version == second
    assert changes(source, first, second, key=()) == [(2, "b")]
    assert [row[PLACE_COLUMN] for row in changes_in_order(source, first, second)] == [second]
