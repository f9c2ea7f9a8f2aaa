"""Columns of adopted PostgreSQL tables that would round, cut or pad what they are given: refused by name, by whichever
way the rows are copied; what fits is stored as it is."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flowctl.connectors.postgres.executors import PartWriter
from flowctl.connectors.postgres.session import POSTGRES
from flowctl.connectors.postgres.staging import stage_table
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType
from flowctl.storage.buffer import Buffer
from tests.connectors.reading import describe
from tests.connectors.target_matrix import FACTORIES, Place
from tests.connectors.writing import Writer, upserts

TEXT, TEXTS = types.STRING, Array(types.STRING)
NOON = dt.datetime(2026, 1, 1, 12)
UUID = "123e4567-e89b-12d3-a456-426614174000"
LATE = NOON.replace(microsecond=500_000)

#: A column's type in the target, flowctl's, a value that it holds exactly, and some that it would change in silence.
LIMITED: dict[str, tuple[str, DataType, Any, Sequence[Any]]] = {
    "timestamp": ("timestamp(0)", types.TIMESTAMP_NTZ, NOON, [LATE]),
    "moment": ("timestamptz(3)", types.TIMESTAMP, LATE.replace(tzinfo=dt.UTC), ["2026-01-01 12:00:00.0001+00"]),
    "timestamps": ("timestamp(0)[]", Array(types.TIMESTAMP_NTZ), [NOON, None], [[None, LATE]]),
    "time": ("time(0)", TEXT, "12:00:00", ["12:00:00.5"]),
    "zoned time": ("timetz(1)", TEXT, "12:00:00.5+02", ["12:00:00.55+02"]),
    "times": ("time(0)[]", TEXTS, ["12:00:00", None], [["12:00:00.5"]]),
    "grid": ("time(0)[][]", TEXT, "{{12:00:00},{13:00:00}}", ["{{12:00:00},{13:00:00.5}}"]),
    "interval": ("interval(0)", TEXT, "1 mon 00:00:01", ["00:00:01.5"]),
    "months": ("interval year to month", TEXT, "1 year 2 mons", ["1 mon 3 days"]),
    "varchar": ("varchar(3)", TEXT, "ab ", ["ab  ", "abcd"]),
    "varchars": ("varchar(3)[]", TEXTS, ["ab ", None], [["ab  "], ["abcd"]]),
    "char": ("char(3)", TEXT, "ab ", ["ab", "ab  ", "abcd"]),
    "chars": ("char(3)[]", TEXTS, ["ab ", None], [["ab"], ["ab  "]]),
    "bit": ("bit(3)", TEXT, "101", ["1010", "10"]),
    "bits": ("varbit(3)", TEXT, "10", ["1010"]),
    "numeric": ("numeric(50,2)", TEXT, "1.25", ["1.255"]),
    "numerics": ("numeric(50,2)[]", TEXTS, ["1.25", None], [["1.255"]]),
    "name": ("name", TEXT, "n" * 63, ["n" * 64]),
    "uuid": ("uuid", TEXT, UUID, [UUID.upper(), f"{{{UUID}}}", UUID.replace("-", "")]),
    "domain": ("seconds", types.TIMESTAMP_NTZ, NOON, [LATE]),
    "domain of arrays": ("many_seconds", Array(types.TIMESTAMP_NTZ), [NOON], [[LATE]]),
    "exact": ("numeric(6,2)", types.Decimal(6, 2), Decimal("1.25"), []),
}  # fmt: skip
COLUMNS = (Column("id", types.INT64), *(Column(name, kind) for name, (_, kind, _, _) in LIMITED.items()))
FITTING = {name: value for name, (_, _, value, _) in LIMITED.items()}


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, scratch: Buffer) -> Iterator[Place]:
    with FACTORIES["postgres"](request, tmp_path, scratch) as opened:
        yield opened


@pytest.fixture
def limited(writer: Writer) -> Writer:
    """With the table there, as somebody else has made it."""
    listed = ", ".join(f'"{name}" {native}' for name, (native, *_) in LIMITED.items())
    writer.place.execute(
        "CREATE DOMAIN seconds AS timestamp(0); CREATE DOMAIN early AS seconds CHECK (VALUE < '2030-01-01');"
        f"CREATE DOMAIN many_seconds AS timestamp(0)[]; CREATE TABLE {{table}} (id bigint, {listed}, e early)"
    )
    return writer


def test_a_value_that_the_column_would_change_is_refused_by_name(limited: Writer) -> None:
    """The function that executors run, without an engine around it."""
    target, object = limited.place.target, limited.place.object
    there, kept = describe(target, object), []
    for name, (native, kind, _, values) in LIMITED.items():
        columns = [Column(name, kind)]
        with stage_table(target.client, "public", limited.job(1, "append"), columns, there) as stage:
            writer = PartWriter(target.client.conninfo(), POSTGRES.table(stage), [(name, native)], silence=60)
            for value in values:
                text = f'{{"{value[-1]}"}}' if isinstance(value, list) else str(value)
                try:
                    list(writer.copy(iter([pa.record_batch({name: [text]})])))
                except RuntimeError as error:
                    assert f'column "{name}"' in str(error) and text not in str(error), str(error)
                else:
                    kept.append((name, value))
    assert kept == []
    told = [column.name for column in target.limited_columns(there, set(LIMITED))]
    assert told == [name for name in LIMITED if name not in ("domain", "domain of arrays", "numerics", "exact")]


@pytest.mark.long_on_spark
@pytest.mark.parametrize(
    "in_memory", [pytest.param(False, marks=pytest.mark.full), True], ids=["executors", "in process"]
)
def test_a_write_of_such_a_value_commits_nothing(limited: Writer, in_memory: bool) -> None:
    columns = (Column("id", types.INT64), Column("time", TEXT), Column("name", TEXT))
    with pytest.raises(TableError, match=r'column "time".* not exactly time\(0\)'):
        limited.write([{"id": 1, "time": "12:00:00.5", "name": "n"}], 1, columns=columns, in_memory=in_memory)
    assert limited.committed() is None


@pytest.mark.long_on_spark
@pytest.mark.parametrize(
    "in_memory", [pytest.param(False, marks=pytest.mark.full), True], ids=["executors", "in process"]
)
def test_what_fits_is_stored_as_it_is_in_every_mode(limited: Writer, in_memory: bool) -> None:
    rows = [{"id": 1, **FITTING}, {"id": 2, **dict.fromkeys(FITTING)}]
    key = {"key": ("char", "timestamp", "id"), "compared": tuple(set(FITTING) - {"char", "timestamp"})}
    merged = limited.write(upserts(rows[0]), 1, "merge", columns=COLUMNS, in_memory=in_memory, **key)
    again = limited.write(upserts(rows[0]), 2, "merge", columns=COLUMNS, in_memory=in_memory, **key)
    assert (merged.counts.inserted, again.counts.inserted, again.counts.updated) == (1, 0, 0)
    limited.write(rows, 3, "truncate", columns=COLUMNS, in_memory=in_memory)
    names = [*(name for name in FITTING if name not in ("moment", "grid", "interval", "months", "time", "zoned time"))]
    stored = dict(zip(names, min(limited.place.read(["id", *names]))[1:], strict=True))
    texts = {
        "times": [dt.time(12), None],
        "numerics": [Decimal("1.25"), None],
        "numeric": Decimal("1.25"),
        "uuid": uuid.UUID(UUID),
    }
    assert stored == {name: texts.get(name, FITTING[name]) for name in names}


def test_the_check_of_a_domain_holds_too(limited: Writer) -> None:
    columns = (Column("id", types.INT64), Column("e", types.TIMESTAMP_NTZ))
    with pytest.raises(TableError, match="early"):
        limited.write([{"id": 1, "e": NOON.replace(year=2031)}], 1, columns=columns, in_memory=True)
    assert limited.write([{"id": 1, "e": NOON}], 2, columns=columns, in_memory=True).counts.inserted == 1


@pytest.mark.long_on_spark
@pytest.mark.parametrize("native", ["seconds[]", '"char"', "name[]"])
def test_a_column_whose_changes_cannot_be_seen_is_refused_by_name(limited: Writer, native: str) -> None:
    limited.place.execute(f"ALTER TABLE {{table}} ADD COLUMN odd {native}")
    columns = (Column("id", types.INT64), Column("odd", TEXTS if "[]" in native else TEXT))
    with pytest.raises(TableError, match='column "odd" is'):
        limited.write([{"id": 1, "odd": None}], 1, columns=columns, in_memory=True)
    assert limited.write([{"id": 1}], 2, columns=columns[:1], in_memory=True).counts.inserted == 1
