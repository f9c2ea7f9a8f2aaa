"""A file's rows as its table's schema has them now: fields are found by their ids, at any depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import ArrowAccessor, ArrowProjectionVisitor
from pyiceberg.schema import Schema, visit_with_partner
from pyiceberg.types import ListType, MapType


def project(rows: pa.RecordBatch, stored: Schema, wanted: Schema, constants: Mapping[int, Any]) -> pa.RecordBatch:
    """``rows`` of ``stored`` as ``wanted``; ``constants`` are the values of fields that no row has, by their ids."""
    projection = _Projection(stored, projected_missing_fields=dict(constants))
    return pa.RecordBatch.from_struct_array(visit_with_partner(wanted, rows, projection, ArrowAccessor(stored)))


class _Projection(ArrowProjectionVisitor):
    """PyIceberg makes lists and maps of structs anew without their nulls, and finds the fields of a list in a list by
    name. Here both keep their own buffers, and get other children."""

    def list(self, list_type: ListType, list_array: pa.Array | None, value_array: pa.Array | None) -> pa.Array | None:
        if list_array is None or value_array is None:
            return None
        values = self._cast_if_needed(list_type.element_field, value_array)
        made = pa.large_list if pa.types.is_large_list(list_array.type) else pa.list_
        return _with_children(list_array, made(self._construct_field(list_type.element_field, values.type)), values)

    def map(
        self, map_type: MapType, map_array: pa.Array | None, key_result: pa.Array | None, value_result: pa.Array | None
    ) -> pa.Array | None:
        if map_array is None or key_result is None or value_result is None:
            return None
        keys = self._cast_if_needed(map_type.key_field, key_result)
        values = self._cast_if_needed(map_type.value_field, value_result)
        type = pa.map_(
            self._construct_field(map_type.key_field, keys.type),
            self._construct_field(map_type.value_field, values.type),
        )
        entries = pa.StructArray.from_arrays([keys, values], fields=[type.key_field, type.item_field])
        return _with_children(map_array, type, entries)


def _with_children(array: pa.Array, type: pa.DataType, children: pa.Array) -> pa.Array:
    """``array``'s nulls and offsets over ``children``, which are as many as its own."""
    return pa.Array.from_buffers(type, len(array), array.buffers()[:2], offset=array.offset, children=[children])
