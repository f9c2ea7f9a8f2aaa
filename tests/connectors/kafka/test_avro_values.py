"""Rows that are written as Avro come back equal, through the schema that is registered for them."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.avro import AvroSchema
from flowctl.connectors.kafka.encodings.written import OneWriter, WrittenDecoder
from flowctl.connectors.kafka.sink.avro_values import AvroSerializer, schema_text
from flowctl.connectors.kafka.sink.schema import RowType
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Struct
from tests.connectors.kafka.test_json_text import NESTED, VALUES

#: Unlike JSON, Avro has all numbers, and bytes.
KINDS: dict[DataType, st.SearchStrategy[Any]] = {
    **{kind: values for kind, values in VALUES.items() if kind != NESTED},
    Struct((("a", types.INT64), ("b", Array(types.STRING)))): st.fixed_dictionaries(
        {"a": st.none() | st.integers(-5, 5), "b": st.none() | st.lists(st.none() | st.text(), max_size=2)}
    ),
    types.FLOAT: st.floats(width=32),
    types.DOUBLE: st.floats(),
    types.BINARY: st.binary(),
}


def same(one: Any, other: Any) -> bool:
    return one == other or (
        isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
    )


@pytest.mark.parametrize("kind", [*KINDS], ids=str)
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_values_come_back_equal(kind: DataType, data: st.DataObject) -> None:
    columns = [Column("v", kind)]
    values = data.draw(st.lists(st.none() | KINDS[kind], max_size=6))
    rows = pa.RecordBatch.from_pylist([{"v": value} for value in values], arrow_schema(columns))
    text = schema_text(RowType("orders.v1", tuple(columns)))
    written = AvroSerializer(text, b"")(rows, columns)
    schema = AvroSchema(text)
    assert schema.fields["v"].type == (types.INT32 if kind in (types.INT8, types.INT16) else kind)
    [found] = WrittenDecoder(OneWriter(schema), schema).decoded(written.to_pylist(), columns)
    assert all(same(one, other) for one, other in zip(found.to_pylist(), rows.column("v").to_pylist(), strict=True))


def test_a_schema_is_one_that_other_versions_can_read() -> None:
    """Fields may be missing, so that columns come and go; the key of a merge is always there."""
    columns = [Column("id", types.INT64), Column("name", types.STRING)]
    assert json.loads(schema_text(RowType("9 orders.v1", tuple(columns)))) == {
        "type": "record",
        "name": "_9_orders_v1",
        "fields": [
            {"name": "id", "type": ["null", "long"], "default": None},
            {"name": "name", "type": ["null", "string"], "default": None},
        ],
    }
    key = json.loads(schema_text(RowType("k", tuple(columns[:1]), nullable=False)))
    assert key["fields"] == [{"name": "id", "type": "long"}]


def test_a_name_that_avro_does_not_have() -> None:
    with pytest.raises(TableError) as refused:
        schema_text(RowType("t", (Column("unit price €", types.INT64),)))
    assert 'columns: {rename: {"unit price €": unit_price__}}' in str(refused.value.hint)
