"""Which schema a value or a key was written with: an id before it, as Confluent's serializers write it, or in a header
of its message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal
from uuid import UUID

Headers = list[tuple[str, bytes | None]]
Role = Literal["value", "key"]
Kind = Literal["globalId", "contentId", "guid"]
#: The byte before the id, and the bytes of both. Source: "Wire format" in the documentation of Confluent's registry.
_MAGIC, HEADER_BYTES = 0, 5
#: The headers that name a schema. Sources: `KafkaSerdeHeaders` of Apicurio, and `header_schema_id_serializer` of
#: Confluent's client.
_HEADERS: Mapping[Role, Mapping[str, Kind]] = {
    "value": {
        "apicurio.value.globalId": "globalId",
        "apicurio.value.contentId": "contentId",
        "__value_schema_id": "guid",
    },
    "key": {"apicurio.key.globalId": "globalId", "apicurio.key.contentId": "contentId", "__key_schema_id": "guid"},
}
#: The header in which Apicurio's serializer of Protobuf puts the name of a message's type, `ProtobufSerdeHeaders`.
_TYPES: Mapping[Role, str] = {"value": "apicurio.protobuf.type", "key": "apicurio.protobuf.type.key"}
_NUMBER_BYTES, _GUID_MAGIC, _GUID_BYTES = 8, 1, 17


@dataclass(frozen=True)
class HeaderId:
    """The id of a schema in a header: Apicurio's global id, or that of the content; or Confluent's GUID."""

    kind: Kind
    value: int | str

    def __str__(self) -> str:
        return f"{self.value} ({self.kind})"


#: That of a schema in a registry. A number is Confluent's.
SchemaId = int | HeaderId


class NamedValue(bytes):
    """What was written with the schema whose id is in a header of its message."""

    schema: HeaderId


def named_value(value: bytes | None, headers: Headers | None, role: Role) -> bytes | None:
    """A :class:`NamedValue` if a header names its schema; the last one counts."""
    if value is None or not headers:
        return value
    for name, content in reversed(headers):
        if name in _HEADERS[role] and (found := _header_id(_HEADERS[role][name], content)):
            id, indexes = found
            made = NamedValue(indexes + value if id.kind == "guid" else _with_type(value, headers, role))
            made.schema = id
            return made
    return value


def _with_type(value: bytes, headers: Headers, role: Role) -> bytes:
    """Apicurio's serializer writes the name of the message's type before it, too, unless it is told not to."""
    named = next((content for name, content in reversed(headers) if name == _TYPES[role]), None)
    if not named:
        return value
    reference = type_reference(named)
    return value if value.startswith(reference) else reference + value


def type_reference(name: bytes) -> bytes:
    """What Apicurio's serializer writes before a value of the message ``name``: a message whose field 1 is the name,
    with its length (`Ref`, by `writeDelimitedTo`)."""
    field = b"\x0a" + _varint(len(name)) + name
    return _varint(len(field)) + field


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*made, number))


def schema_id(value: bytes | None) -> int | None:
    """The id of a registry's schema that a value begins with; None if it begins with none."""
    if value is None or isinstance(value, NamedValue) or len(value) < HEADER_BYTES or value[0] != _MAGIC:
        return None
    return int.from_bytes(value[1:HEADER_BYTES], "big")


def header(id: int) -> bytes:
    """What comes before a value that was written with the schema of this id."""
    return bytes([_MAGIC]) + id.to_bytes(HEADER_BYTES - 1, "big")


@lru_cache(maxsize=1000)
def _header_id(kind: Kind, content: bytes | None) -> tuple[HeaderId, bytes] | None:
    """With what comes before the value: Protobuf's indexes. None: this is no id."""
    if content is None:
        return None
    if kind != "guid":
        return (HeaderId(kind, int.from_bytes(content, "big")), b"") if len(content) == _NUMBER_BYTES else None
    if len(content) < _GUID_BYTES or content[0] != _GUID_MAGIC:
        return None
    return HeaderId(kind, str(UUID(bytes=content[1:_GUID_BYTES]))), content[_GUID_BYTES:]
