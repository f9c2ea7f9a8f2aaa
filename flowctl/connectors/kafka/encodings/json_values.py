"""Messages of JSON objects as columns of declared types; exact, or refused by the numbers of the messages.

msgspec parses each message straight into an object with the declared fields; what it does not know of flowctl's types
are their texts, which Arrow converts a column at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

from flowctl.connectors.arrow import arrow_type
from flowctl.connectors.exact import text_shape
from flowctl.connectors.kafka.unfit import Refused
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Decimal, Struct

if TYPE_CHECKING:
    import pyarrow as pa

#: What JSON has no values for: they are texts of the type's own shape.
TEXTS = (types.DATE, types.TIMESTAMP, types.TIMESTAMP_NTZ)
_BITS = {types.INT8: 8, types.INT16: 16, types.INT32: 32, types.INT64: 64}
#: A decimal as a number or as a text.
_NUMBER = r'^(-?\d+(\.\d+)?([eE][+-]?\d{1,4})?|"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?")$'
_NULL = b"null"


def require_readable(columns: Sequence[Column]) -> None:
    """Raises ``TableError`` for declared types that no JSON value has, and for names that are not read."""
    for column in columns:
        listed = [kind for part in _parts(column.type) if isinstance(part, Array) for kind in _parts(part)]
        nested = [kind for kind in listed if kind in TEXTS]
        if types.BINARY in _parts(column.type) or nested:
            what = "bytes" if types.BINARY in _parts(column.type) else f"a {types.short(nested[0])} inside a list"
            raise TableError(
                f"format.schema declares {column.name} as {types.short(column.type)}: JSON has no {what}",
                hint="Declare it as string",
            )
        structs = [part for part in _parts(column.type) if isinstance(part, Struct)]
        names = [column.name, *(name for one in structs for name, _ in one.fields)]
        if any(not _is_plain(name) for name in names):
            raise TableError(
                f"format.schema declares {column.name}: names with quotes, backslashes or control characters are not"
                " read",
                hint="Leave it out of format.schema",
            )


def decoded(values: Sequence[bytes | None], columns: Sequence[Column]) -> list[pa.Array]:
    """As :meth:`.decoder.Decoder.decoded`."""
    import pyarrow as pa

    pa.array(values, pa.binary()).cast(pa.string())  # the parser does not look at the encoding of what it skips
    rows = _parsed(values, tuple((column.name, column.type) for column in columns))
    return [
        _array(list(map(get, rows)), column.type) for get, column in zip(_getters(len(columns)), columns, strict=True)
    ]


def _parsed(values: Sequence[bytes | None], fields: tuple[tuple[str, DataType], ...]) -> list[Any]:
    """An object for each value, with all fields None for a tombstone."""
    parse, nothing = _parser(fields), _row_type(fields)()
    rows: list[Any] = []
    refused: list[int] = []
    remaining = iter(values)
    while len(rows) + len(refused) < len(values):
        try:
            for value in remaining:
                rows.append(nothing if value is None else parse(value))
        except (ValueError, RecursionError):
            refused.append(len(rows) + len(refused))
    if refused:
        raise Refused(dict.fromkeys(refused))
    return rows


@lru_cache(maxsize=100)
def _row_type(fields: tuple[tuple[str, DataType], ...]) -> type[Any]:
    """With one attribute for each field: `f0`, `f1` and so on."""
    import msgspec

    own = _names(len(fields))
    made = [(name, *_attribute(kind)) for name, (_, kind) in zip(own, fields, strict=True)]
    given = [name for name, _ in fields]
    return msgspec.defstruct("Row", made, rename=dict(zip(own, given, strict=True)), gc=False)


@lru_cache(maxsize=100)
def _parser(fields: tuple[tuple[str, DataType], ...]) -> Callable[[bytes], Any]:
    import msgspec

    return msgspec.json.Decoder(_row_type(fields)).decode


def _attribute(kind: DataType) -> tuple[Any, Any]:
    """The type of a value, and what it is if it is missing."""
    import msgspec

    if isinstance(kind, Decimal):
        return msgspec.Raw, msgspec.Raw(_NULL)
    return _value_type(kind) | None, None


def _value_type(kind: DataType) -> Any:
    import msgspec

    match kind:
        case Decimal():
            return msgspec.Raw  # as it is written: Python's own decimals also take what is no number in JSON
        case Array(Decimal()):
            return list[msgspec.Raw]
        case Array(item):
            return list[_value_type(item) | None]  # type: ignore[misc]
        case Struct(fields):
            return _row_type(fields)
        case types.BOOL:
            return bool
        case types.FLOAT | types.DOUBLE:
            return float
        case types.INT8 | types.INT16 | types.INT32 | types.INT64:
            limit = 1 << (_BITS[kind] - 1)
            return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)]
        case _:
            return str


def _array(values: list[Any], kind: DataType) -> pa.Array:
    import pyarrow as pa

    match kind:
        case Struct(fields):
            empty = _row_type(fields)()
            inner = [empty if value is None else value for value in values]
            parts = [
                _array(list(map(get, inner)), of) for get, (_, of) in zip(_getters(len(fields)), fields, strict=True)
            ]
            mask = pa.array([value is None for value in values], pa.bool_())
            return pa.StructArray.from_arrays(parts, [name for name, _ in fields], mask=mask)
        case Array(item):
            offsets: list[int | None] = [0]
            end = 0
            for value in values:
                offsets[-1] = None if value is None else end
                end += len(value or ())
                offsets.append(end)
            try:
                items = _array([one for value in values if value is not None for one in value], item)
            except Refused as error:  # these are numbers of items
                raise pa.ArrowInvalid("an item does not fit") from error
            return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items)
        case Decimal():
            return _decimals([bytes(value) for value in values], kind)
        case _ if kind in TEXTS:
            return typed(pa.array(values, pa.string()), kind)
        case types.FLOAT:
            return _finite(pa.array(values, pa.float32()))
        case _:
            return pa.array(values, arrow_type(kind))


def _decimals(written: list[bytes], kind: Decimal) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    from flowctl.connectors.decimal_text import decimals

    texts = pa.array([None if text == _NULL else text for text in written], pa.binary()).cast(pa.string())
    _require(pc.match_substring_regex(texts, _NUMBER))
    return _converted(pc.utf8_trim(texts, '"'), lambda part: decimals(part, arrow_type(kind)))


def typed(values: pa.Array, kind: DataType) -> pa.Array:
    """Texts in one of the types :data:`TEXTS`. Raises ``Refused`` for what is not exactly that."""
    import pyarrow.compute as pc

    from flowctl.connectors.csv_text import instants

    _require(pc.match_substring_regex(values, text_shape(kind)))
    return _converted(values, instants if kind == types.TIMESTAMP else lambda part: part.cast(arrow_type(kind)))


def _converted(values: pa.Array, convert: Callable[[pa.Array], pa.Array]) -> pa.Array:
    import pyarrow as pa

    try:
        return convert(values)
    except pa.ArrowInvalid as error:
        raise Refused(dict.fromkeys(_misfits(values, convert))) from error


def _misfits(values: pa.Array, convert: Callable[[pa.Array], pa.Array], start: int = 0) -> list[int]:
    """The numbers, from ``start``, of the values that ``convert`` refuses."""
    import pyarrow as pa

    try:
        convert(values)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return [start]
        middle = len(values) // 2
        second = _misfits(values.slice(middle), convert, start + middle)
        return [*_misfits(values.slice(0, middle), convert, start), *second]
    return []


def _finite(values: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    _require(pc.is_finite(values))
    return values


def _require(fits: pa.BooleanArray) -> None:
    import pyarrow.compute as pc

    if refused := pc.indices_nonzero(pc.invert(fits)).to_pylist():
        raise Refused(dict.fromkeys(refused))


@lru_cache(maxsize=100)
def _getters(count: int) -> tuple[Callable[[Any], Any], ...]:
    return tuple(map(attrgetter, _names(count)))


def _names(count: int) -> list[str]:
    return [f"f{at}" for at in range(count)]


def _is_plain(name: str) -> bool:
    return not any(letter in '"\\' or letter < " " for letter in name)


def _parts(kind: DataType) -> list[DataType]:
    """The type and all types inside it."""
    match kind:
        case Array(item):
            return [kind, *_parts(item)]
        case Struct(fields):
            return [kind, *(part for _, of in fields for part in _parts(of))]
        case _:
            return [kind]
