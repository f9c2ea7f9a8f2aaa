"""Columns of somebody else's table in types that hold a value in another way than flowctl's own."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Struct
from flowctl.storage.buffer import Buffer
from tests.connectors.target_matrix import FACTORIES, Place
from tests.connectors.test_target_history import seen
from tests.connectors.writing import HISTORY, Writer, gone, upserts

pytestmark = pytest.mark.long_on_spark


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, scratch: Buffer) -> Iterator[Place]:
    with FACTORIES["duckdb"](request, tmp_path, scratch) as opened:
        yield opened


AT = dt.datetime(2026, 1, 1)
#: By type: what it is to flowctl, values that fit, and values that the column would change.
LIMITED: dict[str, tuple[DataType, list[Any], list[Any]]] = {
    "TIMESTAMP_S": (types.TIMESTAMP_NTZ, [AT], [AT.replace(microsecond=600_000), AT.replace(microsecond=1)]),
    "TIMESTAMP_MS": (types.TIMESTAMP_NTZ, [AT.replace(microsecond=1000)], [AT.replace(microsecond=1500)]),
    "TIMESTAMP_S[]": (Array(types.TIMESTAMP_NTZ), [[AT, None], []], [[AT.replace(microsecond=1)]]),
    "STRUCT(a TIMESTAMP_MS)": (
        Struct((("a", types.TIMESTAMP_NTZ),)),
        [{"a": AT}, {"a": None}],
        [{"a": AT.replace(microsecond=1)}],
    ),
    "TIME": (types.STRING, ["10:00", "10:00:00.1234560"], ["10:00:00.1234567", "10:00:00+02"]),
    "TIME WITH TIME ZONE": (types.STRING, ["10:00:00+02"], ["10:00:00.1234567+00"]),
    "TIMESTAMP_NS": (types.STRING, ["2026-01-01 00:00:00.123456789"], ["2026-01-01 00:00:00.1234567891"]),
    "INTERVAL": (types.STRING, ["24 hours", "1 day"], ["00:00:00.1234567"]),
    "BIGNUM": (types.STRING, ["9" * 60, "7.0"], ["1.5"]),
    "TIME[][]": (Array(Array(types.STRING)), [[["10:00", None], None, []]], [[[None], ["10:00:00.1234567"]]]),
    "STRUCT(a TIME, b STRUCT(c INTERVAL)[])": (
        Struct((("a", types.STRING), ("b", Array(Struct((("c", types.STRING),)))))),
        [{"a": "10:00", "b": [{"c": "1 day"}, None]}, {"a": None, "b": None}],
        [{"a": "10:00:00+02", "b": None}, {"a": None, "b": [{"c": None}, {"c": "00:00:00.1234567"}]}],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "native", [pytest.param(name, marks=() if name[:9] == "TIMESTAMP" else pytest.mark.full) for name in LIMITED]
)
def test_a_value_that_a_column_would_change_is_refused(writer: Writer, native: str) -> None:
    kind, fitting, others = LIMITED[native]
    columns = (Column("id", types.INT64), Column("v", kind))
    writer.place.execute(f"CREATE TABLE {{table}} (id BIGINT, v {native})")
    assert [one.name for one in writer.place.target.limited_columns(writer.info(), ["id", "v"])] == ["v"]
    rows = [{"id": number, "v": value} for number, value in enumerate([*fitting, None])]
    writer.write(rows, 1, columns=columns, in_memory=True)
    for other in others:
        with pytest.raises(TableError, match="would change a value"):
            writer.write([{"id": 9, "v": other}], 2, columns=columns, in_memory=True)
    assert sorted(writer.place.read(["id"])) == [(one["id"],) for one in rows]


def test_keys_that_would_be_rounded_to_one(writer: Writer) -> None:
    """Both became 00:00:01, and each run inserted a further row."""
    columns = (Column("id", types.TIMESTAMP_NTZ), Column("n", types.INT64))
    writer.place.execute("CREATE TABLE {table} (id TIMESTAMP_S, n BIGINT)")
    rows = [{"id": AT.replace(microsecond=600_000), "n": 1}, {"id": AT.replace(second=1), "n": 2}]
    with pytest.raises(TableError, match="would change a value"):
        writer.write(upserts(*rows), 1, "merge", columns=columns, key=("id",), compared=("n",))
    assert writer.place.read(["id"]) == []
    for number in (2, 3):
        writer.write(upserts(rows[1]), number, "merge", columns=columns, key=("id",), compared=("n",))
    assert writer.place.read(["n"]) == [(2,)]


A, B = (f"{letter}0000000-0000-0000-0000-00000000000{letter}" for letter in "ab")
#: By type: two values, and another text of the first of them, if there is one.
TEXTS = {
    "UUID": (A, B, A.upper()),
    "TIME": ("10:00:00", "10:00:00.5", "10:00"),
    "TIMESTAMP_NS": ("2026-01-01 00:00:00", "2026-01-01 00:00:00.000000001", "2026-01-01"),
    "INTERVAL": ("1 day", "2 days", "1 days"),
    "BIT": ("0101", "101", ""),
    "BIGNUM": ("1", "9" * 60, "01"),
    "JSON": ('{"a": 1}', '{"a":1}', ""),
    "ENUM('x', 'a')": ("x", "a", ""),
}


def most_full(names: Iterable[str], *kept: str) -> list[Any]:
    return [pytest.param(name, marks=() if name in kept else pytest.mark.full) for name in names]


@pytest.mark.parametrize("native", most_full(TEXTS, "UUID", "INTERVAL"))
def test_a_merge_by_texts_of_another_type(writer: Writer, native: str) -> None:
    """DuckDB does not mix a text with a value of such a type."""
    one, two, _ = TEXTS[native]
    columns = (Column("id", types.STRING), Column("v", types.STRING))
    writer.place.execute(f"CREATE TABLE {{table}} (id {native}, v {native})")
    job: dict[str, Any] = {"columns": columns, "key": ("id",), "compared": ("v",)}
    first = writer.write(upserts({"id": one, "v": one}, {"id": two, "v": None}), 1, "merge", **job)
    again = writer.write(upserts({"id": one, "v": one}, {"id": two, "v": None}), 2, "merge", **job)
    assert (first.counts.inserted, again.counts.inserted, again.counts.updated) == (2, 0, 0)
    rows = [*upserts({"id": one, "v": two}), {**gone(two), "v": None}]
    third = writer.write(rows, 3, "merge", **job)
    assert (third.counts.updated, third.counts.deleted) == (1, 1)
    stored = writer.place.target.scan(writer.spark, writer.place.object, columns).collect()
    assert [tuple(found) for found in stored] == [(one, two)]


@pytest.mark.parametrize("native", most_full((native for native, (*_, again) in TEXTS.items() if again), "UUID"))
def test_two_texts_of_one_key_are_refused(writer: Writer, native: str) -> None:
    one, _, again = TEXTS[native]
    columns = (Column("id", types.STRING), Column("n", types.INT64))
    writer.place.execute(f"CREATE TABLE {{table}} (id {native}, n BIGINT)")
    with pytest.raises(TableError, match=r"column id .* would change a value"):
        rows = upserts({"id": one, "n": 1}, {"id": again, "n": 2})
        writer.write(rows, 1, "merge", columns=columns, key=("id",), compared=("n",))
    assert writer.place.read(["n"]) == []


@pytest.mark.parametrize("native", most_full(["UUID", "TIME", "INTERVAL"], "TIME"))
@pytest.mark.parametrize("of", ["id", "name"])
@pytest.mark.parametrize("further", most_full(["", ", note VARCHAR DEFAULT 'n'"], ""))
def test_a_history_of_texts_of_another_type(writer: Writer, native: str, of: str, further: str) -> None:
    one, two, _ = TEXTS[native]
    kinds = {"id": "BIGINT", "name": "VARCHAR", of: native}
    columns = tuple(Column(column.name, types.STRING) if column.name == of else column for column in HISTORY)
    declared = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    writer.place.execute(
        f"CREATE TABLE {{table}} ({declared}, valid_from TIMESTAMPTZ, valid_to TIMESTAMPTZ, is_current BOOLEAN,"
        f" row_hash VARCHAR{further})"
    )
    for number, name in enumerate([one, two, one], 1):
        row = {**seen(name, number), **({"id": one} if of == "id" else {})}
        writer.write([row], number, "scd2", columns=columns)
    stored = writer.place.target.scan(writer.spark, writer.place.object, columns[:2]).collect()
    assert sorted(found[1] for found in stored) == sorted([one, two, one])
