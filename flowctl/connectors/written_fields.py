"""A schema that values are written with, whatever its language: its fields in flowctl's types, and their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from flowctl.connectors.arrow import CALENDAR_DAYS, CALENDAR_MICROSECONDS, arrow_type
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Struct

if TYPE_CHECKING:
    import pyarrow as pa

Convert = Callable[[Any], Any]


@dataclass(frozen=True)
class Field:
    """``convert`` makes what pyarrow takes for ``type`` of what a parser returns; None: that is the same. ``default``
    is the value where a writer's schema lacks the field, converted. ``fields`` are those of a record, or of the records
    in a list."""

    type: DataType
    native: str
    note: str = ""
    as_text: bool = False
    convert: Convert | None = None
    default: Any = None
    fields: Mapping[str, Field] = field(default_factory=dict)

    def column(self, name: str) -> Column:
        return Column(name, self.type, native=self.native, as_text=self.as_text, note=self.note)

    def array(self) -> Field:
        """A list of these."""
        one = self.convert
        convert = None if one is None else lambda values: None if values is None else list(map(_or_null(one), values))
        return Field(Array(self.type), f"list of {self.native}", self.note, convert=convert, fields=self.fields)


class WriterSchema(Protocol):
    """``name`` is what it describes; ``fields`` are those of its values. A value that has no fields is one field."""

    @property
    def name(self) -> str: ...

    @property
    def fields(self) -> Mapping[str, Field]: ...

    def parsed(self, data: bytes) -> Mapping[str, Any]:
        """The fields of one value, not converted. Raises ``ValueError`` if ``data`` is not exactly that."""


def record(fields: Mapping[str, Field], native: str) -> Field:
    """A field that has fields."""
    converts = {name: _or_null(one.convert) for name, one in fields.items() if one.convert is not None}

    def convert(value: Any) -> Any:
        return None if value is None else {**value, **{name: to(value.get(name)) for name, to in converts.items()}}

    kind = Struct(tuple((name, one.type) for name, one in fields.items()))
    return Field(kind, native, convert=convert if converts else None, fields=fields)


def _or_null(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def lacking(reader: Mapping[str, Field], writer: Mapping[str, Field]) -> list[str]:
    """The fields that only the ``writer`` has, by their paths."""
    found = []
    for name, one in writer.items():
        if name not in reader:
            found.append(name)
        else:
            found += [f"{name}.{inner}" for inner in lacking(reader[name].fields, one.fields)]
    return found


def array_of(values: Sequence[Any], field: Field) -> pa.Array:
    """What a parser returned, as an array of the field's type. Raises ``pyarrow.ArrowInvalid`` for a value that
    does not fit."""
    import pyarrow as pa

    convert = field.convert
    try:
        converted = values if convert is None else [None if value is None else convert(value) for value in values]
        made = pa.array(converted, arrow_type(field.type))
    except (TypeError, ValueError, ArithmeticError) as error:
        raise pa.ArrowInvalid(str(error)) from error
    _require_calendar(made)
    return made


def _require_calendar(values: pa.Array) -> None:
    """Raises ``pyarrow.ArrowInvalid`` for a day or time that no calendar has, wherever it is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if pa.types.is_struct(kind):
        for at in range(kind.num_fields):
            _require_calendar(pc.struct_field(values, [at]))
    elif pa.types.is_list(kind):
        _require_calendar(values.flatten())
    elif pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        is_day = pa.types.is_date32(kind)
        bits, (least, most) = (pa.int32(), CALENDAR_DAYS) if is_day else (pa.int64(), CALENDAR_MICROSECONDS)
        seen = pc.min_max(values.cast(bits)).as_py()
        if seen["min"] is not None and not (least <= seen["min"] and seen["max"] <= most):
            raise pa.ArrowInvalid("a time is beyond the calendar")
