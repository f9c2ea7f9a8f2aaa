"""Rows that differ have different hashes, whatever their values hold: of every pair of rows made of what the hash's own
text is put together with. One query, so that no example is left out for the time that it takes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from flowctl.connectors.arrow import arrow_schema
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, Struct
from flowctl.sql.row_hash import row_hash_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Separators, escapes and what stands for null, in pieces.
PIECES = (";", "=", "\\", ",", ":", ".", "-", "a", "null", "[", "{")
TEXTS: tuple[str | None, ...] = (None, "", *PIECES, *map("".join, itertools.product(PIECES, repeat=2)))
LISTS = (None, (), *((text,) for text in TEXTS), *itertools.product(TEXTS[:13], repeat=2))
PAIR = Struct((("a", types.STRING), ("b", types.STRING)))
CASES: dict[str, tuple[tuple[Column, ...], Sequence[tuple[Any, ...]]]] = {
    "columns": (
        (Column("a", types.STRING), Column("a=;", types.STRING), Column("b", types.STRING)),
        [*itertools.product(TEXTS[:13], repeat=3), *((None, one, other) for one in TEXTS[13:60] for other in TEXTS)],
    ),
    "values that look like columns": (
        (Column("a", types.STRING), Column("b", types.STRING), Column("b=c", types.STRING)),
        [
            ("x;b=y", None, None), ("x", "y", None), ("x\\", "y", None), ("x\\;b=y", None, None),
            ("x\\:b=y", None, None),
            ("x", "c=y", None), ("x", None, "y"), (None, "c=y", None), (None, None, "y"), (None, "y", None),
        ],
    ),
    "lists": (
        (Column("a", Array(types.STRING)), Column("b", types.STRING)),
        [*itertools.product(LISTS, (None, "", ";"))],
    ),
    "lists of lists": (
        (Column("a", Array(Array(types.STRING))),),
        [(one,) for one in (None, *itertools.chain.from_iterable(
            itertools.product(LISTS[:9] + LISTS[-60:], repeat=n) for n in (0, 1, 2)))],
    ),
    "structs": ((Column("a", PAIR),), [(one,) for one in (None, *itertools.product(TEXTS[:40], repeat=2))]),
    "lists of structs": (
        (Column("a", Array(PAIR)),),
        [(one,) for one in (None, *itertools.chain.from_iterable(
            itertools.product((None, *itertools.product(TEXTS[:8], repeat=2)), repeat=n) for n in (0, 1, 2)))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("columns, rows", CASES.values(), ids=CASES)
def test_no_two_rows_have_one_hash(
    spark: SparkSession, columns: tuple[Column, ...], rows: Sequence[tuple[Any, ...]]
) -> None:
    import pyarrow as pa

    schema = arrow_schema(columns)
    arrays = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), schema, strict=True)]
    hashed = spark.createDataFrame(pa.Table.from_arrays(arrays, schema=schema)).selectExpr(
        f"{row_hash_sql(columns)} AS row_hash"
    )
    found = hashed.selectExpr("count(*) AS rows", "count(DISTINCT row_hash) AS hashes").first()
    assert found is not None and found["rows"] == found["hashes"] == len(set(rows)) == len(rows)
