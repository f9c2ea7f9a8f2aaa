"""Messages of JSON objects as columns of declared types; exact, or refused by the number of the message.

pyarrow parses a whole batch as one text. A marker with a key that no message can know stands before each message: it
shows whether every message is exactly one object, and which one is not.
"""

from __future__ import annotations

import io
import re
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from flowctl.connectors.arrow import arrow_type
from flowctl.connectors.exact import text_shape
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Decimal, Struct

if TYPE_CHECKING:
    import pyarrow as pa

_MARKER = f"flowctl-{uuid.uuid4().hex}"
#: What JSON has no values for: they are texts of the type's own shape.
TEXTS = (types.DATE, types.TIMESTAMP, types.TIMESTAMP_NTZ)
_ROW = re.compile(r" in row (\d+)")


def require_readable(columns: Sequence[Column]) -> None:
    """Raises ``TableError`` for declared types that no JSON value has."""
    for column in columns:
        listed = [kind for part in _parts(column.type) if isinstance(part, Array) for kind in _parts(part)]
        nested = [kind for kind in listed if kind in TEXTS]
        if types.BINARY in _parts(column.type) or nested:
            what = "bytes" if types.BINARY in _parts(column.type) else f"a {types.short(nested[0])} inside a list"
            raise TableError(
                f"format.schema declares {column.name} as {types.short(column.type)}: JSON has no {what}",
                hint="Declare it as string",
            )


def decoded(values: Sequence[bytes | None], columns: Sequence[Column]) -> list[pa.Array]:
    """As :meth:`.decoder.Decoder.decoded`."""
    import pyarrow as pa
    import pyarrow.json as pj

    pa.array(values, pa.binary()).cast(pa.string())  # the parser does not look at the encoding
    text = b"".join(b'{"%b":%d}\n%b\n' % (_MARKER.encode(), at, value or b"{}") for at, value in _given(values))
    kinds = {column.name: _parsed_type(column.type) for column in columns}
    found = pj.read_json(
        io.BytesIO(text),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=pj.ParseOptions(
            explicit_schema=pa.schema({_MARKER: pa.int64(), **kinds}),
            newlines_in_values=True,
            unexpected_field_behavior="ignore",
        ),
    )
    expected = [mark for at in range(len(values)) for mark in (at, None)]
    if found.column(_MARKER).to_pylist() != expected:
        raise pa.ArrowInvalid("a message is not exactly one object")
    rows = found.take(pa.array(range(1, len(expected), 2), pa.int64()))
    return [typed(rows.column(column.name).combine_chunks(), column.type) for column in columns]


def refused_message(error: pa.ArrowInvalid) -> int | None:
    """The number of the message that the parser has refused, as far as its error tells: a hint, since a message that is
    several values shifts it. None: it tells nothing."""
    found = _ROW.search(str(error))
    return int(found[1]) // 2 if found else None  # a marker stands before each message


def _given(values: Sequence[bytes | None]) -> Iterator[tuple[int, bytes | None]]:
    """Numbered. No value is a tombstone. Nothing and null are no objects, though the parser takes them."""
    for at, value in enumerate(values):
        yield at, b"0" if value is not None and value.strip() in (b"", b"null") else value


def _parsed_type(kind: DataType) -> pa.DataType:
    """The type as the parser reads it: with texts for what becomes a date or a time afterwards."""
    import pyarrow as pa

    if isinstance(kind, Struct):
        return pa.struct([(name, _parsed_type(of)) for name, of in kind.fields])
    return pa.string() if kind in TEXTS else arrow_type(kind)


def typed(values: pa.Array, kind: DataType) -> pa.Array:
    """What the parser has read, in the declared type. Raises ``pyarrow.ArrowInvalid`` for what is not exactly that."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(kind, Struct):
        fields = [typed(pc.struct_field(values, [at]), of) for at, (_, of) in enumerate(kind.fields)]
        return pa.StructArray.from_arrays(fields, [name for name, _ in kind.fields], mask=values.is_null())
    if kind not in TEXTS:
        if any(isinstance(part, Decimal) for part in _parts(kind)):
            values.validate(full=True)  # the parser does not look at the precision of what it has rescaled
        if kind in (types.FLOAT, types.DOUBLE) and pc.any(pc.is_inf(values)).as_py():
            raise pa.ArrowInvalid("a number is beyond its type")
        return values
    fits = pc.match_substring_regex(values, text_shape(kind))
    if pc.any(pc.invert(fits)).as_py():
        raise pa.ArrowInvalid("a text is not of the type's shape")
    if kind != types.TIMESTAMP:
        return values.cast(arrow_type(kind))
    nothing, zoned = pa.scalar(None, pa.string()), pc.match_substring_regex(values, r"[ T].*(Z|[+-]\d{2}(:?\d{2})?)$")
    without = pc.if_else(zoned, nothing, values).cast(pa.timestamp("us"))
    return pc.coalesce(pc.if_else(zoned, values, nothing).cast(arrow_type(kind)), pc.assume_timezone(without, "UTC"))


def _parts(kind: DataType) -> list[DataType]:
    """The type and all types inside it."""
    match kind:
        case Array(item):
            return [kind, *_parts(item)]
        case Struct(fields):
            return [kind, *(part for _, of in fields for part in _parts(of))]
        case _:
            return [kind]
