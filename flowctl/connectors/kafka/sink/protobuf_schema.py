"""The Protobuf message of a row. A field keeps its number for ever, also while its column is gone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING

from flowctl.connectors.kafka.sink.schema import RowType, identifier, is_identifier
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.types import Array, DataType, Decimal, Struct

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

    from flowctl.connectors.kafka.registry import Schema

_TIMESTAMP = "google.protobuf.Timestamp"
_KINDS: dict[DataType, str] = {
    types.BOOL: "bool",
    **dict.fromkeys((types.INT8, types.INT16, types.INT32), "int32"),
    types.INT64: "int64",
    types.FLOAT: "float",
    types.DOUBLE: "double",
    types.BINARY: "bytes",
    types.TIMESTAMP: _TIMESTAMP,
    **dict.fromkeys((types.STRING, types.DATE, types.TIMESTAMP_NTZ), "string"),
}
#: Numbers that Protobuf keeps for itself, and the first one that is none.
_OWN, _END = (19_000, 20_000), 1 << 29

Ranges = Sequence[tuple[int, int]]


def schema_text(row: RowType, versions: Iterable[Schema] = ()) -> str:
    """A file with one message. ``versions`` are those of its subject, the newest first, and numbers are taken from
    there; further ones are asked for only if a dropped column returns. Raises ``TableError`` for a column that no field
    can be made of."""
    name = identifier(row.name)
    fields = [(column.name, column.type) for column in row.columns]
    history = _History(_messages(name, versions))
    body = _message(name, fields, history, nullable=row.nullable)
    text = "\n".join(['syntax = "proto3";', *_imports(body), "", *body, ""])
    _require_valid(text)
    return text


@dataclass(frozen=True)
class _Field:
    name: str
    kind: str
    is_list: bool
    inner: Sequence[tuple[str, DataType]] = ()


class _History:
    """A message in the versions of its subject, the newest first, each asked for when it is needed."""

    def __init__(self, found: Iterator[DescriptorProto]) -> None:
        self._found = found
        self._known: list[DescriptorProto] = []

    def __iter__(self) -> Iterator[DescriptorProto]:
        for at in count():
            if at == len(self._known):
                self._known += islice(self._found, 1)
            if at == len(self._known):
                return
            yield self._known[at]

    def nested(self, name: str) -> _History:
        return _History(inner for outer in self for inner in outer.nested_type if inner.name == name)


def _messages(name: str, versions: Iterable[Schema]) -> Iterator[DescriptorProto]:
    from google.protobuf.descriptor_pb2 import DescriptorProto

    from flowctl.connectors.kafka.encodings.protobuf import compiled

    for version in versions:
        if version.kind != "PROTOBUF":
            continue
        found = compiled(version.text, tuple(version.references.items())).message_types_by_name.get(name)
        if found is not None:
            made = DescriptorProto()
            found.CopyToProto(made)
            yield made


def _message(
    name: str, columns: Sequence[tuple[str, DataType]], history: _History, *, nullable: bool = True
) -> list[str]:
    fields = [_field(*column) for column in columns]
    newest = next(iter(history), None)
    used = {one.number for one in newest.field} if newest else set()
    reserved = [(one.start, one.end) for one in newest.reserved_range] if newest else []
    taken = [*reserved, *((number, number + 1) for number in used)]
    numbers: dict[str, int] = {}
    for one in fields:
        number = _former_number(one, history)
        numbers[one.name] = _next_number(taken) if number is None else number
        taken.append((numbers[one.name], numbers[one.name] + 1))
    lines = []
    for one in fields:
        label = "repeated " if one.is_list else "optional " if nullable else ""
        lines.append(f"{label}{one.kind} {one.name} = {numbers[one.name]};")
    dropped = _subtract(taken, set(numbers.values()))
    names = {*(one.name for one in newest.field), *newest.reserved_name} - {*numbers} if newest else set()
    lines += [f"reserved {', '.join(map(_range, dropped))};"] if dropped else []
    lines += [f"reserved {', '.join(map(json.dumps, sorted(names)))};"] if names else []
    for one in fields:
        lines += _message(one.kind, one.inner, history.nested(one.kind)) if one.inner else []
    return [f"message {name} {{", *(f"  {line}" for line in lines), "}"]


def _field(name: str, kind: DataType) -> _Field:
    if not is_identifier(name):
        quoted = json.dumps(name, ensure_ascii=False)
        raise TableError(
            f"column {name} has a name that Protobuf does not have: letters, digits and _, and no digit first",
            hint=f"Rename it: columns: {{rename: {{{quoted}: {identifier(name)}}}}}",
        )
    is_list = isinstance(kind, Array)
    of = kind.item if isinstance(kind, Array) else kind
    match of:
        case Array():
            raise TableError(
                f"column {name} is a list of lists, which Protobuf does not have",
                hint="Use `type: avro` or json, or leave it out with `columns: {exclude: […]}`",
            )
        case Struct(inner):
            return _Field(name, _message_name(name), is_list, inner)
        case Decimal():
            return _Field(name, "string", is_list)
        case _:
            return _Field(name, _KINDS[of], is_list)


def _message_name(field: str) -> str:
    """Of the message of a field; never the field's own name, which is in the same scope."""
    found = "".join(part[:1].upper() + part[1:] for part in field.split("_"))
    return found if found and found != field and not found[0].isdigit() else f"{field}_"


def _former_number(field: _Field, history: _History) -> int | None:
    """The number that the field has in the newest version, or had when it was dropped. None: it is new, or its values
    are written in another way now."""
    newest = next(iter(history), None)
    if newest is None:
        return None
    is_dropped = field.name in newest.reserved_name
    for version in history:
        for one in version.field:
            if one.name == field.name:
                is_free = not is_dropped or _is_reserved(one.number, newest)
                return one.number if is_free and _is_alike(one, field) else None
        if not is_dropped:
            return None
    return None


def _is_reserved(number: int, newest: DescriptorProto) -> bool:
    return any(one.start <= number < one.end for one in newest.reserved_range)


def _is_alike(former: FieldDescriptorProto, field: _Field) -> bool:
    """Whether the bytes of the one are read as the other."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Of

    if (former.label == Of.LABEL_REPEATED) != field.is_list:
        return False
    if former.type == Of.TYPE_MESSAGE:
        name = str(former.type_name)
        return (name.rpartition(".")[2] if field.inner else name.removeprefix(".")) == field.kind
    kind = str(Of.Type.Name(former.type)).removeprefix("TYPE_").lower()
    return kind == field.kind or (kind, field.kind) == ("int32", "int64")


def _next_number(taken: Ranges) -> int:
    """The number after all others; numbers that are reserved without an end stay so."""
    after = max((end for _, end in taken if end < _END), default=1)
    for start, end in sorted([*taken, _OWN]):
        if start <= after < end:
            after = end
    if after >= _END:
        raise TableError("the newest schema reserves all numbers", hint="Use another `subject`")
    return after


def _subtract(ranges: Ranges, numbers: set[int]) -> list[tuple[int, int]]:
    """``ranges`` in order, joined, and without the ``numbers``."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    for number in numbers:
        found = [part for start, end in found for part in _cut(start, end, number)]
    return found


def _cut(start: int, end: int, number: int) -> Iterator[tuple[int, int]]:
    if not start <= number < end:
        yield start, end
        return
    if start < number:
        yield start, number
    if number + 1 < end:
        yield number + 1, end


def _range(found: tuple[int, int]) -> str:
    start, end = found
    return str(start) if end == start + 1 else f"{start} to {'max' if end == _END else end - 1}"


def _imports(body: Sequence[str]) -> list[str]:
    is_needed = any(f" {_TIMESTAMP} " in line for line in body)
    return ["", 'import "google/protobuf/timestamp.proto";'] if is_needed else []


def _require_valid(text: str) -> None:
    """Names that are of their own kind may still not go together."""
    from flowctl.connectors.kafka.encodings.protobuf import compiled

    try:
        compiled(text)
    except TableError as error:
        raise TableError(
            f"no Protobuf message can be made of the columns: {error.message.partition(': ')[2] or error.message}",
            hint="Rename a column with `columns: {rename: …}`",
        ) from error
