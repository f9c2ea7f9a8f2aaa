"""Nested values of a file as the table's schema has them now: nothing is lost, and fields are found by their ids."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, LongType, MapType, NestedField, StringType, StructType

from flowctl.connectors.iceberg.projection import project

ENTRY = pa.struct([("x", pa.int64()), ("y", pa.string())])
STORED = pa.schema(
    [
        ("list", pa.list_(ENTRY)),
        ("map", pa.map_(pa.string(), ENTRY)),
        ("lists", pa.list_(pa.list_(ENTRY))),
        ("parts", pa.struct([("list", pa.list_(ENTRY)), ("numbers", pa.list_(pa.int64()))])),
    ]
)


def schema(first: str, second: str) -> Schema:
    """That of :data:`STORED`, with these names for the two fields of each entry; the ids are always the same."""
    ids = itertools.count(10)

    def entry() -> StructType:
        return StructType(
            NestedField(next(ids), first, LongType(), required=False),
            NestedField(next(ids), second, StringType(), required=False),
        )

    def many(of: IcebergType) -> ListType:
        return ListType(next(ids), of, element_required=False)

    mapped = MapType(next(ids), StringType(), next(ids), entry(), value_required=False)
    parts = StructType(
        NestedField(next(ids), "list", many(entry()), required=False),
        NestedField(next(ids), "numbers", many(LongType()), required=False),
    )
    return Schema(
        NestedField(1, "list", many(entry()), required=False),
        NestedField(2, "map", mapped, required=False),
        NestedField(3, "lists", many(many(entry())), required=False),
        NestedField(4, "parts", parts, required=False),
    )


def _many(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | st.lists(of, max_size=3)


_TEXTS = st.sampled_from(("", "a", "é"))
_ENTRIES = st.none() | st.fixed_dictionaries({"x": st.none() | st.integers(-9, 9), "y": st.none() | _TEXTS})
_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "list": _many(_ENTRIES),
            "map": _many(st.tuples(_TEXTS, _ENTRIES)),
            "lists": _many(_many(_ENTRIES)),
            "parts": st.none()
            | st.fixed_dictionaries({"list": _many(_ENTRIES), "numbers": _many(st.none() | st.integers(-9, 9))}),
        }
    ),
    max_size=6,
)


def renamed(value: Any) -> Any:
    """With the two names of each entry exchanged."""
    match value:
        case dict():
            names = {"x": "y", "y": "x"}
            return {names.get(name, name): renamed(one) for name, one in value.items()}
        case list() | tuple():
            return type(value)(map(renamed, value))
        case _:
            return value


@given(_ROWS, st.integers(0, 3))
def test_values_keep_their_nulls_and_their_fields(rows: list[dict[str, Any]], start: int) -> None:
    batch = pa.RecordBatch.from_pylist(rows, schema=STORED).slice(start)
    same = project(batch, schema("x", "y"), schema("x", "y"), {})
    assert same.to_pylist() == rows[start:]
    same.validate(full=True)
    found = project(batch, schema("x", "y"), schema("y", "x"), {})
    assert found.to_pylist() == [renamed(row) for row in rows[start:]]
    found.validate(full=True)
