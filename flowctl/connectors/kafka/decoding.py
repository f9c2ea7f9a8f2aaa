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
#: Bytes of messages that are parsed at once.
BATCH_BYTES = 16 << 20


def require_readable(columns: Sequence[Column]) -> None:
    """Raises ``TableError`` for declared types that no JSON value has."""
    for column in columns:
        nested = [] if column.type in TEXTS else [kind for kind in _parts(column.type) if kind in TEXTS]
        if types.BINARY in _parts(column.type) or nested:
            what = "bytes" if types.BINARY in _parts(column.type) else f"a {types.short(nested[0])} inside it"
            raise TableError(
                f"format.schema declares {column.name} as {types.short(column.type)}: JSON has no {what}",
                hint="Declare it as string",
            )


def decoded(values: Sequence[bytes | None], columns: Sequence[Column]) -> list[pa.Array]:
    """One array per column, of the declared types. A field that is missing is null, and so is all of a tombstone; other
    fields are ignored. Raises ``pyarrow.ArrowInvalid`` if a message does not fit."""
    import pyarrow as pa
    import pyarrow.json as pj

    pa.array(values, pa.binary()).cast(pa.string())  # the parser does not look at the encoding
    text = b"".join(b'{"%b":%d}\n%b\n' % (_MARKER.encode(), at, value or b"{}") for at, value in _given(values))
    kinds = {one.name: pa.string() if one.type in TEXTS else arrow_type(one.type) for one in columns}
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
    return [typed(rows.column(column.name).combine_chunks(), column) for column in columns]


def refused_message(error: pa.ArrowInvalid) -> int | None:
    """The number of the message that the parser has refused, as far as its error tells: a hint, since a message that is
    several values shifts it. None: it tells nothing."""
    found = _ROW.search(str(error))
    return int(found[1]) // 2 if found else None  # a marker stands before each message


def _given(values: Sequence[bytes | None]) -> Iterator[tuple[int, bytes | None]]:
    """Numbered. No value is a tombstone. Nothing and null are no objects, though the parser takes them."""
    for at, value in enumerate(values):
        yield at, b"0" if value is not None and value.strip() in (b"", b"null") else value


def typed(values: pa.Array, column: Column) -> pa.Array:
    """What the parser has read, in the declared type. Raises ``pyarrow.ArrowInvalid`` for what is not exactly that."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.type not in TEXTS:
        if any(isinstance(kind, Decimal) for kind in _parts(column.type)):
            values.validate(full=True)  # the parser does not look at the precision of what it has rescaled
        if column.type in (types.FLOAT, types.DOUBLE) and pc.any(pc.is_inf(values)).as_py():
            raise pa.ArrowInvalid("a number is beyond its type")
        return values
    fits = pc.match_substring_regex(values, text_shape(column.type))
    if pc.any(pc.invert(fits)).as_py():
        raise pa.ArrowInvalid("a text is not of the type's shape")
    if column.type != types.TIMESTAMP:
        return values.cast(arrow_type(column.type))
    nothing, zoned = pa.scalar(None, pa.string()), pc.match_substring_regex(values, r"[ T].*(Z|[+-]\d{2}(:?\d{2})?)$")
    without = pc.if_else(zoned, nothing, values).cast(pa.timestamp("us"))
    return pc.coalesce(
        pc.if_else(zoned, values, nothing).cast(arrow_type(column.type)), pc.assume_timezone(without, "UTC")
    )


def _parts(kind: DataType) -> list[DataType]:
    """The type and all types inside it."""
    match kind:
        case Array(item):
            return [kind, *_parts(item)]
        case Struct(fields):
            return [kind, *(part for _, of in fields for part in _parts(of))]
        case _:
            return [kind]
