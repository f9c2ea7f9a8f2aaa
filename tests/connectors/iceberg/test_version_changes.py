"""Iceberg tables of other writers as a source: what changed between two versions, and whether that is known."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import In
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from flowctl.connectors.iceberg.versions import LiveFile
from flowctl.connectors.source import DELETED_COLUMN, PLACE_COLUMN, ReadRequest, WatermarkRequest
from flowctl.errors import StoppedByPolicy
from flowctl.model.interval import Interval
from flowctl.model.position import VersionPosition
from tests.connectors.iceberg.foreign_tables import (
    NAMESPACE,
    delete_equal,
    delete_positions,
    paths,
)
from tests.connectors.iceberg.source_reading import (
    ORDERS,
    changed,
    changes,
    changes_in_order,
    content,
    expire,
    point_to,
    position,
    rows,
    version,
    watermark,
)
from tests.connectors.iceberg.test_source import TYPES
from tests.connectors.reading import captured_rows, describe, table


def test_appended_rows_are_read_from_the_files_that_were_added(source: Any, orders: Table) -> None:
    orders.append(rows((1, "a")))
    orders.append(rows((2, "b"), (2, "b")))
    orders.append(rows((3, "c")))
    assert changes(source, 1, 3, key=()) == [(2, "b"), (2, "b"), (3, "c")]
    assert [row[PLACE_COLUMN] for row in changes_in_order(source, 1, 3)] == [2, 2, 3]
    found = changed(source, 1, key=())
    assert (found.removes, found.rows.value, found.rows.method) == ("", 3, "count")


def test_changed_and_deleted_rows(source: Any, orders: Table) -> None:
    orders.append(rows((1, "a"), (2, "b"), (3, "c"), (4, None)))
    orders.overwrite(rows((1, "A")), overwrite_filter="id = 1")
    orders.delete("id = 2")
    upto = version(orders)
    found = changed(source, 1)
    assert found.removes == "version 2 (overwrite)"
    assert (found.rows.value, found.rows.method) == (2, "count")
    assert changes(source, 1, upto) == [(1, "A"), (2, "b", "deleted")]
    assert changes(source, 1, upto, columns=["note"]) == [("A",), ("b", "deleted")]
    assert changed(source, 1, key=()).removes == "version 2 (overwrite)"
    with pytest.raises(StoppedByPolicy, match=r"rows of sales.orders were removed or changed"):
        changes(source, 1, upto, key=())
    upserts = changes(source, 1, upto, net=False, key=())
    assert (1, "A") in upserts and (2, "b") not in upserts


def test_a_key_that_becomes_the_other_zero_is_not_deleted(source: Any, catalog: SqlCatalog) -> None:
    made = catalog.create_table(f"{NAMESPACE}.orders", schema=pa.schema([("id", pa.float64())]))
    made.append(pa.table({"id": [0.0]}))
    made.overwrite(pa.table({"id": [-0.0]}))
    assert repr(changes(source, 1, version(made))) == "[(-0.0,)]"


def test_rows_deleted_by_position(source: Any, orders: Table) -> None:
    orders.append(rows((1, "a"), (2, "b"), (3, "c")))
    orders.append(rows((4, "d")))
    by_path = {task.file.file_path: task.file.record_count for task in orders.scan().plan_files()}
    first, second = sorted(by_path, key=lambda path: -by_path[path])
    orders = delete_positions(orders, {first: [1], second: [0]})
    assert sorted(row["id"] for row in captured_rows(source, ORDERS)) == [1, 3]
    assert changes(source, 2, 3) == [(2, "b", "deleted"), (4, "d", "deleted")]
    orders = delete_positions(orders, {first: [1, 2]})
    assert changes(source, 3, 4) == [(3, "c", "deleted")]
    assert changes(source, 0, 4) == [(1, "a")]
    info = describe(source, ORDERS)
    assert (info.rows.value, info.rows.method) == (4, "stats")
    assert watermark(source, 3, estimate="count").rows.value == 1
    assert changed(source, 1).removes == "version 3 (delete)"


EQUAL = Schema(NestedField(2, "note", StringType()))


def test_rows_deleted_by_equal_values(source: Any, orders: Table) -> None:
    """They delete what was there before them, null equals null, and a later row of the same values lives."""
    orders.append(rows((1, "a"), (2, None), (3, "c"), (4, "a")))
    orders = delete_equal(orders, EQUAL, pa.table({"note": pa.array(["a", None], pa.string())}))
    orders.append(rows((5, "a"), (6, None)))
    assert sorted(row["id"] for row in captured_rows(source, ORDERS)) == [3, 5, 6]
    assert changes(source, 1, 2) == [(1, "a", "deleted"), (2, None, "deleted"), (4, "a", "deleted")]
    assert changes(source, 2, 3) == [(5, "a"), (6, None)]
    assert changes(source, 1, 3, key=("note",))[-1] == (6, None)
    with orders.refresh().update_schema() as update:
        update.delete_column("note")
    assert sorted(row["id"] for row in captured_rows(source, ORDERS)) == [3, 5, 6]


@pytest.mark.parametrize("name", [name for name in TYPES if name not in ("list", "parts", "deep")])
def test_equal_values_of_every_type(source: Any, catalog: SqlCatalog, name: str) -> None:
    content = pa.table({"id": [1, 2], "it": TYPES[name]})
    made = catalog.create_table(f"{NAMESPACE}.orders", schema=content.schema, properties={"format-version": "2"})
    made.append(content)
    field = made.schema().find_field("it")
    for at in (0, 1):
        delete_equal(
            made, Schema(NestedField(field.field_id, "it", field.field_type)), content.slice(at, 1).select(["it"])
        )
        made = made.refresh()
        assert [row["id"] for row in captured_rows(source, ORDERS)] == [2][at:]


def test_a_column_by_its_id_whatever_its_name_was(source: Any, orders: Table) -> None:
    orders.append(rows((1, "a")))
    with orders.update_schema() as update:
        update.rename_column("note", "text")
        update.add_column("more", DoubleType())
    with orders.update_schema() as update:
        update.move_first("text")
    assert captured_rows(source, ORDERS) == [{"text": "a", "id": 1, "more": None}]
    assert captured_rows(source, table("orders@v1")) == [{"id": 1, "note": "a"}]
    orders.append(pa.table({"text": ["b"], "id": [2], "more": [0.5]}))
    assert changed(source, 1).lost == "column text was renamed from note since version 1"
    assert changed(source, 1, key=()).lost == "column text was renamed from note since version 1"
    with orders.update_schema() as update:
        update.delete_column("more")
    with orders.update_schema() as update:
        update.add_column("more", DoubleType())
    orders.append(pa.table({"text": ["c"], "id": [3], "more": [1.5]}))
    assert captured_rows(source, ORDERS) == [
        {"text": "a", "id": 1, "more": None},
        {"text": "b", "id": 2, "more": None},
        {"text": "c", "id": 3, "more": 1.5},
    ]
    assert changed(source, 2).lost == "column more was dropped and added again since version 2"


def read_now(source: Any) -> VersionPosition:
    """The position of a run that reads the newest version."""
    info = describe(source, ORDERS)
    wanted = WatermarkRequest(ORDERS, info, changes=ReadRequest(info.columns, None, net=True, key=("id",)))
    found = source.high_watermarks({"orders": wanted})["orders"].position
    assert isinstance(found, VersionPosition)
    return found


def changed_since(source: Any, read: VersionPosition) -> Any:
    info = describe(source, ORDERS)
    wanted = ReadRequest(info.columns, None, net=True, key=("id",))
    return source.high_watermarks({"orders": WatermarkRequest(ORDERS, info, since=read, changes=wanted)})["orders"]


def test_a_schema_that_changes_without_a_version(source: Any, orders: Table) -> None:
    orders.append(rows((1, "a")))
    read = read_now(source)
    assert changed_since(source, read).changes is None
    with orders.update_schema() as update:
        update.add_column("more", DoubleType())
    assert changed_since(source, read).changes.lost == ""
    with orders.update_schema() as update:
        update.delete_column("note")
    with orders.update_schema() as update:
        update.add_column("note", StringType())
    found = changed_since(source, read)
    assert found.changes.lost == "column note was dropped and added again since version 1"
    assert changed_since(source, found.position).changes is None
    assert changed_since(source, replace(read, schema="")).changes is None


def test_a_schema_that_changed_before_the_version_was_read(source: Any, orders: Table) -> None:
    orders.append(rows((1, "a")))
    with orders.update_schema() as update:
        update.rename_column("note", "text")
    read = read_now(source)
    orders.append(pa.table({"id": [2], "text": ["b"]}))
    assert changed_since(source, read).changes.lost == ""
    assert changed_since(source, replace(read, schema="")).changes.lost.startswith("column text was renamed")


def test_a_wider_column(source: Any, catalog: SqlCatalog) -> None:
    narrow = pa.schema([("id", pa.int32()), ("note", pa.string())])
    made = catalog.create_table(f"{NAMESPACE}.orders", schema=narrow)
    made.append(pa.table({"id": [1], "note": ["a"]}, narrow))
    with made.update_schema() as update:
        update.update_column("id", field_type=LongType())
    made.append(rows((2**40, "b")))
    assert captured_rows(source, ORDERS) == [{"id": 1, "note": "a"}, {"id": 2**40, "note": "b"}]
    assert changed(source, 1).lost == ""
    made.delete("id = 1")
    assert changes(source, 1, version(made)) == [(1, "a", "deleted"), (2**40, "b")]


def test_partitions_that_evolve(source: Any, catalog: SqlCatalog) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    made = catalog.create_table(f"{NAMESPACE}.orders", schema=schema)
    at = [dt.datetime(2026, month, 1, tzinfo=dt.UTC) for month in (1, 2, 3)]

    def put(*ids: int) -> None:
        made.refresh().append(pa.table({"id": list(ids), "at": [at[id % 3] for id in ids]}, schema))

    put(0)
    with made.update_spec() as spec:
        spec.add_field("at", IdentityTransform(), "by_time")
    put(1, 2, 3)
    with made.refresh().update_spec() as spec:
        spec.remove_field("by_time")
        spec.add_field("id", IdentityTransform(), "by_id")
    put(4, 5)
    assert sorted((row["id"], row["at"]) for row in captured_rows(source, ORDERS)) == [
        (id, at[id % 3]) for id in range(6)
    ]
    assert [row[0] for row in changes(source, 1, 3, key=())] == [1, 2, 3, 4, 5]


def test_files_of_one_partition() -> None:
    """Deletions are for the data of their partition; PyIceberg writes none of NaN."""

    def partition(spec: int, *values: object) -> object:
        file = DataFile.from_args(partition=Record(*values))
        file.spec_id = spec
        return LiveFile(file, 1, 1).partition

    assert partition(1, float("nan"), "a") == partition(1, float("nan"), "a")
    assert partition(1, None) == partition(1, None) != partition(1, float("nan"))
    assert len({partition(0), partition(1, "a"), partition(2, "a"), partition(1, 1.5), partition(1, None)}) == 5


def test_a_table_that_was_rolled_back(source: Any, orders: Table) -> None:
    """Its numbers go on, so a version that is left behind is compared with what came after."""
    orders.append(rows((1, "a")))
    orders.append(rows((2, "b")))
    first, second = orders.refresh().snapshots()
    point_to(orders, first.snapshot_id)
    assert describe(source, ORDERS).version == 1
    orders.refresh().append(rows((3, "c")))
    assert version(orders) == 3
    assert changes(source, 2, 3) == [(2, "b", "deleted"), (3, "c")]
    assert changed(source, 2, key=()).removes == "version 3, or one before it,"
    point_to(orders, second.snapshot_id)
    assert [row["id"] for row in captured_rows(source, ORDERS)] == [1, 2]


def test_versions_that_have_expired(source: Any, orders: Table) -> None:
    for id in range(1, 5):
        orders.append(rows((id, str(id))))
    first, second, *_ = orders.refresh().snapshots()
    expire(orders, first.snapshot_id)
    found = changed(source, 1)
    assert found.lost == "version 1 of sales.orders has expired"
    assert [row[0] for row in changes(source, 2, 4, key=())] == [3, 4]
    interval = Interval(None, position(source, 1))
    info = describe(source, ORDERS)
    request = WatermarkRequest(ORDERS, info, begun=interval, changes=ReadRequest(info.columns))
    assert source.high_watermarks({"o": request})["o"].begun_lost == "version 1 of sales.orders has expired"
    # One between two that are kept: their files are compared.
    third = orders.refresh().snapshot_by_id(second.snapshot_id)
    assert third is not None
    expire(orders, next(one.snapshot_id for one in orders.snapshots() if one.sequence_number == 3))
    assert [row[0] for row in changes(source, 2, 4, key=())] == [3, 4]
    assert changed(source, 2, key=()).removes == ""


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 30))])
def test_changes_lead_from_any_version_to_any_later_one(source: Any, orders: Table, seed: int) -> None:
    random_history(orders, random.Random(seed))
    kept = sorted(one.sequence_number or 0 for one in orders.refresh().snapshots())
    contents = {number: content(source, number) for number in (0, *kept)}
    newest = version(orders)
    for since, before in contents.items():
        for upto in (one for one in contents if one > since):
            found = changes_in_order(source, since, upto)
            new = Counter((row["id"], row["note"]) for row in found if not row[DELETED_COLUMN])
            assert new == contents[upto] - before, f"{since} to {upto}"
            gone = {id for id, _ in before} - {id for id, _ in contents[upto]}
            assert sorted(row["id"] for row in found if row[DELETED_COLUMN]) == sorted(gone), f"{since} to {upto}"
        if 0 < since < newest and not (found := changed(source, since)).lost:
            assert found.rows.value == len(changes_in_order(source, since, newest))


def random_history(orders: Table, chance: random.Random) -> None:
    """In whatever way rows can be written and removed."""
    orders.append(rows(*((id, "first") for id in range(8))))
    by_id = Schema(NestedField(1, "id", LongType()))

    def delete_some() -> None:
        chosen = {path: [0, 1][: chance.randint(1, 2)] for path in paths(orders)[:2]}
        if chosen:
            delete_positions(orders, chosen)

    def forget() -> None:
        others = [one.snapshot_id for one in orders.snapshots() if one != orders.current_snapshot()]
        if others:
            expire(orders, chance.choice(others))

    for number in range(9):
        orders.refresh()
        ids = chance.sample(range(12), 3)
        new = rows(*((id, f"changed {number}") for id in ids))
        steps: list[Callable[[], object]] = [
            partial(orders.overwrite, new, overwrite_filter=In("id", ids)),
            partial(orders.delete, In("id", ids)),
            partial(orders.append, rows(*((id + 100 * (number + 1), "more") for id in ids))),
            delete_some,
            partial(orders.overwrite, new),
            lambda: point_to(orders, chance.choice(orders.snapshots()).snapshot_id),
            forget,
        ]
        chance.choices(steps, [4, 3, 3, 3, 1, 1, 2])[0]()
    for _ in range(2):  # last: PyIceberg writes no table that has deletions by values, but by appending
        ids = chance.sample(range(12), 3)
        delete_equal(orders.refresh(), by_id, pa.table({"id": pa.array(ids, pa.int64())}))
        orders.refresh().append(rows(*((id, "upserted") for id in ids)))
