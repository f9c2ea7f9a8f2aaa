"""What executors run to read JSON Lines: one object in each line, with the digits of its numbers.

Values become text first, which Arrow converts a column at a time, exactly as it does that of CSV. Pickled by value, as
:mod:`flowctl.connectors.files.parts` is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flowctl.connectors.csv_text import Field, Misfit, converted
from flowctl.connectors.files.text_parts import TextReader, lines_of


@dataclass(frozen=True, kw_only=True)
class JsonReader(TextReader):
    """Fields of the objects that are no ``columns`` are left out."""

    columns: tuple[Field, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.columns

    def is_closed(self, block: bytes) -> bool:
        return True

    def records(self, block: bytes) -> list[bytes]:
        return list(lines_of(block))

    def is_blank(self, record: bytes, fields: tuple[Field, ...]) -> bool:
        return not record.strip(_SPACE.encode())

    def parsed(self, block: bytes, fields: tuple[Field, ...], *, is_first: bool) -> pa.RecordBatch:
        text = block.decode()
        lines = (text.removeprefix("\ufeff") if is_first else text).replace("\r", "\n").split("\n")
        decoder = json.JSONDecoder(
            object_pairs_hook=_unique, parse_float=_Number, parse_int=_Number, parse_constant=_refuse
        )
        try:
            objects = _objects([line for line in (one.strip(_SPACE) for one in lines) if line], decoder)
            arrays = [_array([one.get(column.name) for one in objects], column) for column in fields]
        except RecursionError:
            raise Misfit(_NO_OBJECT) from None
        return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in fields])


class _Number(str):
    """A number as it is written."""


def _objects(lines: Sequence[str], decoder: json.JSONDecoder) -> list[dict[str, Any]]:
    found, refused = [], []
    for at, line in enumerate(lines):
        try:
            found.append(_object(line, decoder))
        except (Misfit, RecursionError):
            refused.append(at)
    if refused:
        raise Misfit(_NO_OBJECT, dict.fromkeys(refused, _NO_OBJECT))
    return found


def _object(line: str, decoder: json.JSONDecoder) -> dict[str, Any]:
    try:
        found, end = decoder.raw_decode(line)
    except ValueError:
        raise Misfit(_NO_OBJECT) from None
    if end != len(line) or not isinstance(found, dict):
        raise Misfit(_NO_OBJECT)
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name twice")
    return found


def _refuse(_constant: str) -> Any:
    raise ValueError("no number in JSON")


def _array(values: list[Any], column: Field) -> pa.Array:
    if pa.types.is_list(column.type):
        return _lists(values, column)
    if pa.types.is_struct(column.type):
        return _structs(values, column)
    try:
        return converted(_texts(values, column.type), column)
    except UnicodeEncodeError:  # half of a surrogate pair
        raise Misfit(column.refusal) from None


def _texts(values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        texts = pa.array(values, pa.string())
    except pa.ArrowTypeError:  # some are no text and no number
        texts = None
    has_exponents = pa.types.is_decimal(kind) and texts is not None and _any(texts, "[eE]")
    if texts is None or has_exponents:
        texts = pa.array([None if value is None else _text(value, kind) for value in values], pa.string())
    return texts


def _any(texts: pa.Array, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())


def _lists(values: list[Any], column: Field) -> pa.Array:
    if any(value is not None and not isinstance(value, list) for value in values):
        raise Misfit(column.refusal)
    (item,) = column.parts
    ends, end = [0], 0
    for value in values:
        end += len(value or ())
        ends.append(end)
    items = _array([one for value in values for one in value or ()], item)
    nulls = pa.array([value is None for value in values], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items, type=column.type, mask=nulls)


def _structs(values: list[Any], column: Field) -> pa.Array:
    if any(value is not None and not isinstance(value, dict) for value in values):
        raise Misfit(column.refusal)
    parts = [_array([None if one is None else one.get(part.name) for one in values], part) for part in column.parts]
    nulls = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(parts, fields=list(column.type), mask=nulls)


def _text(value: Any, kind: pa.DataType) -> str:
    if isinstance(value, _Number):
        has_exponent = "e" in value or "E" in value
        return _without_exponent(value) if has_exponent and pa.types.is_decimal(kind) else value
    return value if isinstance(value, str) else _compact(value)


def _without_exponent(number: str) -> str:
    """Only where no decimal would be too short for it."""
    exponent = number.lower().partition("e")[2]
    return f"{Decimal(number):f}" if len(exponent) <= _EXPONENT_DIGITS else number


def _compact(value: Any) -> str:
    """As Spark writes it: no spaces, names in order, and numbers with their digits."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case _Number():
            return str(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list():
            return f"[{','.join(map(_compact, value))}]"
        case _:
            parts = (f"{json.dumps(name, ensure_ascii=False)}:{_compact(value[name])}" for name in sorted(value))
            return f"{{{','.join(parts)}}}"


_SPACE = " \t\r\n"
_EXPONENT_DIGITS = 4
_NO_OBJECT = " is not one JSON object | Write one object in each line, or leave the file out of the pattern in `from`"
