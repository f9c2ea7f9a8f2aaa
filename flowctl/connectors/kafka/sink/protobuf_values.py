"""Rows as Protobuf: the message of their columns, and each row after the id under which it is registered.

Columns are `optional` fields, so that null and missing are told from zero. Protobuf has no type for decimals, days and
local times without files that consumers would need, too: they are texts, as in JSON. A `repeated` field has neither
null elements, which are refused, nor a null list, which is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from flowctl.connectors.arrow import CALENDAR_MICROSECONDS, arrow_type
from flowctl.connectors.json_text import require_calendar, texts
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Decimal, Struct

if TYPE_CHECKING:
    import pyarrow as pa

_TEXTS = (types.DATE, types.TIMESTAMP_NTZ)


class ProtobufSerializer:
    """``header`` comes before each value. ``text`` is the schema of the columns, whose only message is the first."""

    def __init__(self, text: str, header: bytes) -> None:
        from google.protobuf.message_factory import GetMessageClass

        from flowctl.connectors.kafka.encodings.protobuf import compiled

        [message] = compiled(text).message_types_by_name.values()
        self._message = GetMessageClass(message)
        self._made_of = (text, header)
        self._header = header + b"\x00"  # the indexes of the message in its file: those of the first one are this byte

    def __reduce__(self) -> tuple[type, tuple[str, bytes]]:
        """A message's class cannot be pickled: it is made again."""
        return type(self), self._made_of

    def __call__(self, rows: pa.RecordBatch, columns: Sequence[Column]) -> pa.Array:
        import pyarrow as pa

        names = [column.name for column in columns]
        lists = [
            _field_values(rows.column(name), column.type, name) for name, column in zip(names, columns, strict=True)
        ]
        made = [
            self._header + self._message(**dict(zip(names, values, strict=True))).SerializeToString(deterministic=True)
            for values in zip(*lists, strict=True)
        ]
        return pa.array(made, pa.binary())


def _field_values(values: pa.Array, kind: DataType, name: str) -> list[Any]:
    """What a message takes for each of ``values``; None: the field is not set. ``name`` is the column's, for errors."""
    match kind:
        case types.TIMESTAMP:
            return _instants(values, name)
        case Array(item):
            return _lists(values, item, name)
        case Struct(fields):
            parts = [_field_values(inner, of, name) for (_, of), inner in zip(fields, values.flatten(), strict=True)]
            names = [field for field, _ in fields]
            rows: Iterable[tuple[Any, ...]] = zip(*parts, strict=True)
            made = (dict(zip(names, row, strict=True)) for row in rows)
            return [row if is_set else None for row, is_set in zip(made, values.is_valid().to_pylist(), strict=True)]
        case _ if isinstance(kind, Decimal) or kind in _TEXTS:
            return list(texts(values, Column(name, kind)).to_pylist())
        case _:
            return list(values.cast(arrow_type(kind)).to_pylist())


def _instants(values: pa.Array, name: str) -> list[Any]:
    import pyarrow as pa

    numbers = values.cast(arrow_type(types.TIMESTAMP)).cast(pa.int64())
    require_calendar(numbers, CALENDAR_MICROSECONDS, name)
    return [
        None if number is None else {"seconds": number // 1_000_000, "nanos": number % 1_000_000 * 1000}
        for number in numbers.to_pylist()
    ]


def _lists(values: pa.Array, item: DataType, name: str) -> list[Any]:
    if values.flatten().null_count:
        raise TableError(
            f"column {name} has a list with a null in it, which a repeated field of Protobuf cannot hold",
            hint="Remove the null from the list, or use `type: avro` or json",
        )
    items, is_set = _field_values(values.values, item, name), values.is_valid().to_pylist()
    places = zip(pairwise(values.offsets.to_pylist()), is_set, strict=True)
    return [items[start:end] if is_list else None for (start, end), is_list in places]
