"""Delta tables of other writers as a source: every value of a version, and what changed between two."""

from __future__ import annotations

import datetime as dt
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from flowctl.connectors.delta.types import refused_name
from flowctl.connectors.source import DELETED_COLUMN, PLACE_COLUMN, HighWatermark, ReadRequest, WatermarkRequest
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import VersionPosition
from flowctl.model.table_info import Column, Estimate, ObjectName, RowEstimate
from tests.connectors.delta.delta_tables import delete, vacuum
from tests.connectors.hostile import TEXTS, VALUES
from tests.connectors.reading import Collected, captured_rows, describe, opened, table

FEED = {"delta.enableChangeDataFeed": "true"}
WRITERS: Mapping[str, Mapping[str, str]] = {"without feed": {}, "with feed": FEED}
OWN_NAMES = (PLACE_COLUMN, DELETED_COLUMN)
OWN = (Column(PLACE_COLUMN, types.INT64), Column(DELETED_COLUMN, types.BOOL))


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "sales" / "orders")


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Any]:
    with opened("delta", base_dir=str(tmp_path), path=".") as connector:
        yield connector.source


ORDERS = table("sales/orders")


def rows(*notes: tuple[int, str]) -> pa.Table:
    return pa.table({"id": pa.array([id for id, _ in notes], pa.int64()), "note": [note for _, note in notes]})


def put(path: str, *notes: tuple[int, str], **options: Any) -> None:
    write_deltalake(path, rows(*notes), mode="append", **options)


def upsert(path: str, *notes: tuple[int, str]) -> None:
    merging = DeltaTable(path).merge(rows(*notes), "s.id = t.id", "s", "t")
    merging.when_matched_update_all().when_not_matched_insert_all().execute()


def position(source: Any, version: int) -> VersionPosition:
    return VersionPosition(version, describe(source, ORDERS).identity)


def changes(
    source: Any, since: int, upto: int, *, net: bool = True, key: Sequence[str] = ("id",), columns: Sequence[str] = ()
) -> list[tuple[Any, ...]]:
    """What changed: the rows' values, and whether they were deleted."""
    found = changes_in_order(source, since, upto, net=net, key=key, columns=columns)
    return sorted(
        (
            *(value for name, value in row.items() if name not in OWN_NAMES),
            *(["deleted"] if row[DELETED_COLUMN] else []),
        )
        for row in found
    )


def changes_in_order(
    source: Any, since: int, upto: int, *, net: bool = True, key: Sequence[str] = ("id",), columns: Sequence[str] = ()
) -> list[dict[str, Any]]:
    info, sink = describe(source, ORDERS), Collected()
    taken = tuple(one for one in info.columns if not columns or one.name in columns)
    interval = Interval(position(source, since), position(source, upto))
    with source.capture(ORDERS, info) as capture:
        capture.read(ReadRequest((*taken, *OWN), interval, net=net, key=tuple(key)), sink)
    return sorted(sink.rows, key=lambda row: row[PLACE_COLUMN] or 0)


def watermark(
    source: Any, since: int, *, net: bool = True, key: tuple[str, ...] = ("id",), estimate: Estimate = "stats"
) -> HighWatermark:
    info = describe(source, ORDERS)
    wanted = ReadRequest(info.columns, None, net=net, key=key)
    request = WatermarkRequest(ORDERS, info, estimate=estimate, since=position(source, since), changes=wanted)
    found: HighWatermark = source.high_watermarks({"orders": request})["orders"]
    return found


TYPES: Mapping[str, pa.Array] = {
    "bool": pa.array([True, None]),
    "byte": pa.array([-128, None], pa.int8()),
    "short": pa.array([32767, None], pa.int16()),
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
}


def test_every_type_by_value(source: Any, path: str) -> None:
    write_deltalake(path, pa.table(dict(TYPES)))
    found = captured_rows(source, ORDERS)
    assert [list(row.values()) for row in found] == [list(row.values()) for row in pa.table(dict(TYPES)).to_pylist()]
    assert describe(source, ORDERS).rows == RowEstimate(
        2, "count", DeltaTable(path).get_add_actions().column(1)[0].as_py()
    )


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a b/c=d%é", "", None]),
        pa.array([dt.date(2026, 1, 1), None, dt.date(1, 1, 1)]),
        pa.array([dt.datetime(2026, 1, 1, 5, 6, 7, 8, dt.UTC), None, None], pa.timestamp("us", "UTC")),
        pa.array([dt.datetime(2026, 1, 1, 5, 6, 7, 8), None, None], pa.timestamp("us")),
        pa.array([Decimal("1.50"), None, Decimal("-2.00")], pa.decimal128(9, 2)),
        pa.array([True, False, None]),
        pa.array([1, -(2**63), None], pa.int64()),
    ],
    ids=lambda values: str(values.type),
)
def test_values_of_partitions(source: Any, path: str, values: pa.Array) -> None:
    """An empty text is null there: Delta does not tell them apart."""
    write_deltalake(path, pa.table({"id": [1, 2, 3], "part": values}), partition_by=["part"])
    found = {row["id"]: row["part"] for row in captured_rows(source, ORDERS)}
    assert found == {id: value or (None if value == "" else value) for id, value in enumerate(values.to_pylist(), 1)}


def test_hostile_names_and_values(source: Any, path: str) -> None:
    names = [name for label, name in TEXTS.items() if refused_name(name) is None and label != "upper case"]
    columns = pa.table({name: [f"{name} of a row"] for name in names})
    write_deltalake(path, columns)
    assert captured_rows(source, ORDERS) == columns.to_pylist()
    parts = [value for value in VALUES.values() if "\x00" not in value and len(value.encode()) < 64]
    write_deltalake(f"{path}_2", pa.table({"part": parts, "value": parts}), partition_by=["part"])
    found = captured_rows(source, table("sales/orders_2"))
    assert sorted(row["value"] for row in found) == sorted(parts)
    assert all(row["part"] == (row["value"] or None) for row in found)


def test_one_version_stays_what_it_was(source: Any, path: str) -> None:
    put(path, (1, "a"), (2, "b"))
    delete(path, "id = 1")
    put(path, (3, "c"))
    for version, ids in enumerate([[1, 2], [2], [2, 3]]):
        found = captured_rows(source, ORDERS, interval=Interval(None, position(source, version)))
        assert sorted(row["id"] for row in found) == ids
        pinned = table(f"sales/orders@v{version}")
        assert sorted(row["id"] for row in captured_rows(source, pinned)) == ids
        assert describe(source, pinned).version == version
    with pytest.raises(TableError, match=r"version 7 of .* cannot be opened"):
        source.describe([table("sales/orders@v7")])


def test_an_older_version_whose_files_are_gone(source: Any, path: str) -> None:
    put(path, (1, "a"), (2, "b"))
    delete(path, "id = 1")
    vacuum(path)
    pinned = table("sales/orders@v0")
    info = describe(source, pinned)
    request = WatermarkRequest(pinned, info, changes=ReadRequest(info.columns))
    failure = source.high_watermarks({"orders": request})["orders"].failure
    assert failure is not None and failure.message.startswith("version 0 of ")
    assert failure.message.endswith("was deleted (VACUUM)") and failure.hint == "Choose a later version"
    read = replace(request, since=VersionPosition(0, info.identity))
    assert source.high_watermarks({"orders": read})["orders"].failure is None  # nothing is left to read
    begun = replace(read, begun=Interval(None, read.since))
    assert source.high_watermarks({"orders": begun})["orders"].failure is not None


def test_a_version_from_before_a_column(source: Any, path: str) -> None:
    put(path, (1, "a"))
    more = pa.table({"id": pa.array([2], pa.int64()), "note": ["b"], "more": [True]})
    write_deltalake(path, more, mode="append", schema_mode="merge")
    assert captured_rows(source, ORDERS, interval=Interval(None, position(source, 0))) == [
        {"id": 1, "note": "a", "more": None}
    ]
    assert changes(source, 0, 1) == [(2, "b", True)]


def test_tables_by_pattern(source: Any, tmp_path: Path) -> None:
    for name in ("sales/orders", "sales/lines", "sales/_flowctl/lease", "other/orders", "top"):
        put(str(tmp_path / name), (1, "a"))
    assert source.discover(("sales/*",)) == [ObjectName(("sales/lines",)), ObjectName(("sales/orders",))]
    assert source.discover(("*",)) == [ObjectName(("top",))]
    assert source.why_missing(table("sales/order")).hint == "Did you mean `sales/orders`?"


@pytest.mark.parametrize("options", WRITERS.values(), ids=WRITERS)
def test_appended_rows(source: Any, path: str, options: Mapping[str, str]) -> None:
    """Rows that were only moved are not new."""
    put(path, (1, "a"), configuration=options)
    put(path, (2, "b"), (2, "b"))
    DeltaTable(path).optimize.compact()
    put(path, (3, "c"))
    assert changes(source, 0, 3, key=()) == [(2, "b"), (2, "b"), (3, "c")]
    found = watermark(source, 0, key=()).changes
    assert found is not None and (found.removes, found.rows.value, found.rows.method) == ("", 3, "count")
    assert changes(source, 1, 2) == []


def test_appended_rows_whose_first_files_are_gone(source: Any, path: str) -> None:
    def put_into(part: str, id: int) -> None:
        write_deltalake(path, pa.table({"id": [id], "part": [part]}), mode="append", partition_by=["part"])

    put_into("old", 1)
    put_into("new", 2)
    put_into("new", 3)
    DeltaTable(path).optimize.compact()
    vacuum(path)
    assert changes(source, 0, 3, key=()) == [(2, "new"), (3, "new")]
    assert watermark(source, 0, key=()).changes.rows.value == 2  # type: ignore[union-attr]
    assert "was deleted (VACUUM)" in watermark(source, 1, key=()).changes.lost  # type: ignore[union-attr]


@pytest.mark.parametrize("options", WRITERS.values(), ids=WRITERS)
def test_changed_and_deleted_rows(source: Any, path: str, options: Mapping[str, str]) -> None:
    put(path, (1, "a"), (2, "b"), (3, "c"), (4, "d"), configuration=options)
    upsert(path, (1, "A"), (5, "e"))
    delete(path, "id in (2, 5)")
    DeltaTable(path).update({"note": "'C'"}, predicate="id = 3")
    DeltaTable(path).update({"id": "6"}, predicate="id = 4")
    found = watermark(source, 0).changes
    assert found is not None and (found.removes, found.reads_feed) == ("version 1 (MERGE)", bool(options))
    net = [(1, "A"), (2, "b", "deleted"), (3, "C"), (4, "d", "deleted"), (6, "d")]
    if options:
        net.insert(4, (5, "e", "deleted"))
    assert changes(source, 0, 4) == net
    assert (found.rows.value, found.rows.method) == (len(net), "count")
    upserts = changes(source, 0, 4, net=False, key=())
    assert set(upserts) >= {(1, "A"), (3, "C"), (6, "d")} and all("deleted" not in row for row in upserts)
    assert watermark(source, 0, net=False, key=()).changes.rows.value == len(upserts)  # type: ignore[union-attr]
    assert changes(source, 0, 4, columns=["note"]) != []  # the key is compared although it is not read


@pytest.mark.parametrize("options", WRITERS.values(), ids=WRITERS)
def test_a_key_that_becomes_the_other_zero_is_not_deleted(source: Any, path: str, options: Mapping[str, str]) -> None:
    zeros = pa.table({"id": [0.0, 1.0], "note": ["a", "b"]})
    write_deltalake(path, zeros, configuration=dict(options))
    DeltaTable(path).update({"id": "-0.0"}, predicate="id = 0")
    found = changes(source, 0, 1)
    assert "(-0.0, 'a')" in repr(found) and not any("deleted" in row for row in found)


def test_a_feed_that_was_not_always_on(source: Any, path: str) -> None:
    put(path, (1, "a"), (2, "b"))
    delete(path, "id = 1")
    DeltaTable(path).alter.set_table_properties(FEED)
    delete(path, "id = 2")
    assert [watermark(source, since).changes.reads_feed for since in (0, 1, 2)] == [False, True, True]  # type: ignore[union-attr]
    assert changes(source, 0, 3) == [(1, "a", "deleted"), (2, "b", "deleted")]
    assert changes(source, 1, 3) == [(2, "b", "deleted")]


def test_a_feed_has_every_version_of_a_row_in_its_order(source: Any, path: str) -> None:
    put(path, (1, "a"), configuration=FEED)
    for note in ("b", "c", "b"):
        upsert(path, (1, note))
    found = changes_in_order(source, 0, 3, net=False, key=())
    assert [(row["note"], row[PLACE_COLUMN]) for row in found] == [("b", 1), ("c", 2), ("b", 3)]


@pytest.mark.parametrize("options", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 12))])
def test_changes_lead_from_any_version_to_any_later_one(
    source: Any, path: str, options: Mapping[str, str], seed: int
) -> None:
    random_history(path, options, random.Random(seed))
    contents = [content(source, version) for version in range(DeltaTable(path).version() + 1)]
    for since, before in enumerate(contents):
        for upto in range(since + 1, len(contents)):
            now = dict(before)
            for row in changes_in_order(source, since, upto):
                if row[DELETED_COLUMN]:
                    assert row["id"] not in contents[upto]
                    now.pop(row["id"], None)
                else:
                    now[row["id"]] = row["note"]
            assert now == contents[upto], f"{since} to {upto}"


def random_history(path: str, options: Mapping[str, str], chance: random.Random) -> None:
    """Of a table with a key, in whatever way its rows are written."""
    put(path, *((id, "first") for id in range(8)), configuration=options)
    steps: list[Callable[[list[int], str], object]] = [
        lambda ids, note: upsert(path, *((id, note) for id in ids)),
        lambda ids, note: delete(path, f"id in ({', '.join(map(str, ids))})"),
        lambda ids, note: DeltaTable(path).update({"note": f"'{note}'"}, predicate=f"id = {ids[0]}"),
        lambda ids, note: DeltaTable(path).optimize.compact(),
        lambda ids, note: write_deltalake(path, rows(*((id, note) for id in ids)), mode="overwrite"),
        lambda ids, note: DeltaTable(path).restore(chance.randrange(DeltaTable(path).version())),
    ]
    steps[0]([1, 9], "second")
    for number in range(6):
        chance.choices(steps, [4, 3, 3, 2, 1, 1])[0](chance.sample(range(12), 3), f"changed {number}")


def content(source: Any, version: int) -> dict[int, str]:
    found = captured_rows(source, ORDERS, interval=Interval(None, position(source, version)))
    by_id = {row["id"]: row["note"] for row in found}
    assert len(by_id) == len(found)
    return by_id


def test_changes_that_are_lost(source: Any, path: str) -> None:
    """The log no longer has them, or their files were deleted."""
    put(path, (1, "a"), (2, "b"))
    delete(path, "id = 1")
    put(path, (3, "c"))
    vacuum(path)
    lost = watermark(source, 0).changes
    assert lost is not None and lost.lost.endswith("a file of a version since 0, was deleted (VACUUM)")
    assert watermark(source, 1).changes.lost == ""  # type: ignore[union-attr]
    DeltaTable(path).create_checkpoint()
    log = Path(path, "_delta_log")
    (log / f"{0:020}.json").unlink()
    lost = watermark(source, 0).changes
    assert lost is not None and lost.lost.startswith("version 0 of ") and "cannot be opened" in lost.lost


def test_an_interval_that_was_begun_and_is_lost(source: Any, path: str) -> None:
    put(path, (1, "a"), (2, "b"))
    put(path, (3, "c"))
    delete(path, "id < 4")
    info = describe(source, ORDERS)
    wanted = ReadRequest(info.columns, None, net=True, key=("id",))
    for begun in (Interval(None, position(source, 1)), Interval(position(source, 0), position(source, 1))):
        request = WatermarkRequest(ORDERS, info, since=position(source, 1), changes=wanted, begun=begun)
        assert source.high_watermarks({"orders": request})["orders"].begun_lost == ""
    vacuum(path)
    request = WatermarkRequest(ORDERS, info, since=position(source, 1), changes=wanted, begun=begun)
    assert source.high_watermarks({"orders": request})["orders"].begun_lost.endswith("was deleted (VACUUM)")


def test_a_planned_version_whose_files_are_gone_is_not_tried_again(source: Any, path: str) -> None:
    put(path, (1, "a"), (2, "b"))
    planned = Interval(None, position(source, 0))
    delete(path, "id = 1")
    vacuum(path)
    with pytest.raises(TableError, match="was rewritten since the plan was made") as raised:
        captured_rows(source, ORDERS, interval=planned)
    assert raised.value.hint == "Plan again"


def test_a_table_made_anew_is_another_one(source: Any, path: str) -> None:
    put(path, (1, "a"))
    info = describe(source, ORDERS)
    shutil.rmtree(path)
    put(path, (1, "a"))
    assert describe(source, ORDERS).identity != info.identity
    planned = Interval(None, VersionPosition(0, info.identity))
    for seen in (info, describe(source, ORDERS)):  # when the plan was made, and by a run of a saved plan
        with source.capture(ORDERS, seen) as capture, pytest.raises(TableError, match="dropped and created again"):
            capture.read(ReadRequest(info.columns, planned), Collected())


@pytest.mark.parametrize("bound", ["lower", "upper"])
def test_a_planned_version_that_is_another_one_now_is_not_read(source: Any, path: str, bound: str) -> None:
    put(path, (1, "a"))
    put(path, (2, "b"))
    info, here = describe(source, ORDERS), Path(path)
    lower, upper = position(source, 0), position(source, 1)
    other = replace(lower if bound == "lower" else upper, stamp="another")
    planned = Interval(other, upper) if bound == "lower" else Interval(lower, other)
    with source.capture(ORDERS, info) as capture, pytest.raises(StoppedByPolicy, match="is another one now") as error:
        capture.read(ReadRequest(info.columns, planned), Collected())
    assert str(here) in error.value.message and error.value.hint == "Plan again"


def test_a_column_that_cannot_be_carried(source: Any, path: str) -> None:
    pairs = pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))
    write_deltalake(path, pa.table({"id": [1], "pairs": pairs}))
    failure = watermark(source, 0).failure
    assert failure is not None and failure.message.startswith("column pairs of ")
    assert failure.message.endswith("cannot be read: flowctl does not carry Delta's type map")
    assert failure.hint == "Leave it out with `columns: {exclude: [pairs]}`"
