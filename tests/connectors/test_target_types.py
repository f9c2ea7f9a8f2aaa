"""Every type of the type table through each target: the same values come back, or the write names what it refuses."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType
from tests.connectors.writing import Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NASTY_TEXT = [
    "",
    " ",
    "NULL",
    "\\N",
    "\\.",
    'a "quoted" \\ text',
    "line\r\nbreak\ttab",
    "emoji 😀 e\u0301",
    "{a,b}",
    "x" * 1_000_000,
]
ZONED = [dt.datetime(1, 1, 2, tzinfo=dt.UTC), dt.datetime(9999, 12, 30, 23, 59, 59, 999999, tzinfo=dt.UTC)]
ALL: dict[str, tuple[DataType, list[Any]]] = {
    "bool": (types.BOOL, [True, False]),
    "short": (types.INT16, [-(2**15), 2**15 - 1]),
    "int": (types.INT32, [-(2**31), 2**31 - 1]),
    "long": (types.INT64, [-(2**63), 2**63 - 1]),
    "real": (types.FLOAT, [1.5, -0.10000000149011612]),
    "double": (types.DOUBLE, [0.1, 5e-324, -1.7976931348623157e308]),
    "decimal": (types.Decimal(38, 10), [decimal.Decimal("9" * 28 + "." + "9" * 10), decimal.Decimal("-0.0000000001")]),
    "whole": (types.Decimal(38, 0), [decimal.Decimal("9" * 38), decimal.Decimal(0)]),
    "text": (types.STRING, NASTY_TEXT),
    "binary": (types.BINARY, [b"", b"\0\xff\\x", b"'\""]),
    "date": (types.DATE, [dt.date(1, 1, 1), dt.date(1582, 10, 10), dt.date(9999, 12, 31)]),
    "local": (types.TIMESTAMP_NTZ, [at.replace(tzinfo=None) for at in ZONED] + [dt.datetime(2026, 3, 29, 2, 30)]),
    "moment": (types.TIMESTAMP, ZONED),
    "longs": (Array(types.INT64), [[], [1, None, -(2**63)]]),
    "texts": (Array(types.STRING), [[], ["", "NULL", None, 'a"b\\c,d', "{}", "line\nbreak 😀"]]),
    "decimals": (Array(types.Decimal(12, 2)), [[decimal.Decimal("-1.10"), None]]),
    "doubles": (Array(types.DOUBLE), [[0.1, 1e300, None]]),
    "bools": (Array(types.BOOL), [[True, False, None]]),
    "dates": (Array(types.DATE), [[dt.date(1, 1, 1), dt.date(9999, 12, 31), None]]),
    "locals": (Array(types.TIMESTAMP_NTZ), [[dt.datetime(2026, 3, 29, 2, 30, 0, 1), None]]),
    "moments": (Array(types.TIMESTAMP), [[*ZONED, None]]),
}  # fmt: skip


@pytest.mark.smoke
@pytest.mark.parametrize("in_memory", [False, True])
def test_every_type_comes_back_exactly(writer: Writer, in_memory: bool) -> None:
    """``in_memory``: in this process, where a target makes use of that."""
    columns = (Column("id", types.INT64), *(Column(name, kind) for name, (kind, _) in ALL.items()))
    depth = max(len(values) for _, values in ALL.values())
    rows = [
        {"id": at, **{name: values[at] if at < len(values) else None for name, (_, values) in ALL.items()}}
        for at in range(depth)
    ]
    rows.append({"id": depth, **dict.fromkeys(ALL)})
    writer.write(rows, 1, columns=columns, in_memory=in_memory)
    info, can = writer.info(), writer.place.capabilities.target
    assert can is not None
    assert [(one.name, one.type) for one in info.columns] == [(one.name, can.stores(one.type)) for one in columns]
    written, found = writer.frame(rows, columns), writer.place.target.scan(writer.spark, writer.place.object, columns)
    assert differing(written, found, columns) == []


def differing(written: DataFrame, found: DataFrame, columns: Sequence[Column]) -> list[tuple[str, int]]:
    """(column, id) of every value that is not the same, compared by Spark: Python has no year-1 local times."""
    from pyspark.sql import functions as f

    pairs = written.alias("w").join(found.alias("f"), f.col("w.id").eqNullSafe(f.col("f.id")), "full")
    wrong = [
        f.when(~f.col(f"w.{column.name}").eqNullSafe(f.col(f"f.{column.name}")), f.lit(column.name))
        for column in columns
    ]
    listed = pairs.select(
        f.coalesce("w.id", "f.id").alias("id"), f.explode(f.array_compact(f.array(*wrong))).alias("c")
    )
    return sorted((row["c"], row["id"]) for row in listed.collect())


@pytest.mark.long_on_spark
@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        pytest.param(types.STRING, "a\0b", id="NUL in text"),
        pytest.param(Array(types.STRING), ["a\0b"], id="NUL in an array"),
        pytest.param(types.DOUBLE, math.nan, id="NaN"),
        pytest.param(types.DOUBLE, math.inf, id="infinity"),
        pytest.param(types.FLOAT, -math.inf, id="float infinity"),
        pytest.param(Array(types.DOUBLE), [math.inf], id="infinity in an array"),
        pytest.param(Array(types.BINARY), [b"\0\\"], id="array of binary"),
    ],
)
def test_what_a_target_cannot_hold_is_refused_by_name_and_anything_else_is_exact(
    writer: Writer, kind: DataType, value: Any, in_memory: bool
) -> None:
    columns = (Column("id", types.INT64), Column("strange-name", kind))
    rows = [{"id": 1, "strange-name": value}]
    try:
        writer.write(rows, 1, columns=columns, in_memory=in_memory)
    except TableError as error:
        assert "strange-name" in error.message
        assert error.hint
        assert writer.committed() is None
    else:
        found = writer.place.target.scan(writer.spark, writer.place.object, columns)
        assert differing(writer.frame(rows, columns), found, [columns[0]]) == []
        assert repr(found.collect()[0]["strange-name"]) == repr(writer.frame(rows, columns).collect()[0][1])
