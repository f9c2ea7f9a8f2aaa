"""Messages as the brokers send them, and as dead letters keep them."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Literal, Protocol
from uuid import UUID

from flowctl.connectors.letters import MESSAGE_COLUMNS, landed_name
from flowctl.connectors.source import PLACE_COLUMN, TIME_COLUMN
from flowctl.text import bytes_in_json

if TYPE_CHECKING:
    import pyarrow as pa

#: The byte before the id, and the bytes of both. Source: "Wire format" in the documentation of Confluent's registry.
_MAGIC, HEADER_BYTES = 0, 5
Headers = list[tuple[str, bytes | None]]
Role = Literal["value", "key"]


@dataclass(frozen=True)
class HeaderId:
    """The id of a schema in a header: Apicurio's global id, or that of the content; or Confluent's GUID."""

    kind: Literal["globalId", "contentId", "guid"]
    value: int | str

    def __str__(self) -> str:
        return f"{self.value} ({self.kind})"


#: That of a schema in a registry. A number is Confluent's.
SchemaId = int | HeaderId


class NamedValue(bytes):
    """What was written with the schema whose id is in a header of its message."""

    schema: HeaderId


class Message(Protocol):
    """As ``confluent_kafka.Message``. ``timestamp`` is its kind (0: there is none) and milliseconds since 1970."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def headers(self) -> Any: ...


@dataclass(frozen=True)
class Letter:
    """A dead letter as a message: ``row`` has the columns of :data:`MESSAGE_COLUMNS`."""

    row: Mapping[str, Any]

    def topic(self) -> str | None:
        return str(self.row["_topic"])

    def partition(self) -> int | None:
        return int(self.row["_partition"])

    def offset(self) -> int | None:
        return int(self.row["_offset"])

    def timestamp(self) -> tuple[int, int]:
        at = self.row["_timestamp"]
        return (0, 0) if at is None else (1, round((at - _EPOCH) / dt.timedelta(milliseconds=1)))

    def key(self) -> bytes | None:
        return self.row["_key"]  # type: ignore[no-any-return]

    def value(self) -> bytes | None:
        return self.row["_value"]  # type: ignore[no-any-return]

    def headers(self) -> Headers | None:
        return headers_from_text(self.row["_headers"])


_PARTS: Mapping[str, Callable[[Message], Any]] = {
    "_topic": lambda message: message.topic(),
    "_partition": lambda message: message.partition(),
    "_offset": lambda message: message.offset(),
    "_timestamp": lambda message: milliseconds(message, is_letter=True),
    "_key": lambda message: message.key(),
    "_value": lambda message: message.value(),
    "_headers": lambda message: headers_text(message.headers()),
    "_schema_id": lambda message: schema_id(named_value(message.value(), message.headers(), "value")),
}
#: What a message has, by the name of its column in a table, and in a letter.
PARTS: Mapping[str, Callable[[Message], Any]] = {
    "value": _PARTS["_value"],
    **_PARTS,
    "_timestamp": lambda message: milliseconds(message),
    **{landed_name(name): part for name, part in _PARTS.items()},
    PLACE_COLUMN: _PARTS["_offset"],
    TIME_COLUMN: lambda message: milliseconds(message),
}


@cache
def native_types() -> Mapping[str, pa.DataType]:
    """The types of :data:`PARTS`, before any conversion."""
    import pyarrow as pa

    binary = {"value": pa.binary(), "_key": pa.binary(), "_value": pa.binary()}
    places = {"_topic": pa.string(), "_partition": pa.int32(), "_offset": pa.int64(), "_schema_id": pa.int64()}
    kinds = {**places, "_timestamp": pa.timestamp("ms", tz="UTC"), "_headers": pa.string(), **binary}
    own = {PLACE_COLUMN: kinds["_offset"], TIME_COLUMN: kinds["_timestamp"]}
    return {**kinds, **{landed_name(name): kind for name, kind in kinds.items()}, **own}


def letters(rows: pa.RecordBatch) -> list[Message]:
    """``rows`` have the columns of :data:`MESSAGE_COLUMNS`."""
    return [Letter(row) for row in rows.select([column.name for column in MESSAGE_COLUMNS]).to_pylist()]


def milliseconds(message: Message, *, is_letter: bool = False) -> int | None:
    """None where the topic keeps no times. A time that no calendar has raises ``pyarrow.ArrowInvalid``; a letter has
    none then."""
    import pyarrow as pa

    kind, at = message.timestamp()
    is_usable = 0 <= at <= _LAST
    if kind and not is_usable and not is_letter:
        raise pa.ArrowInvalid("a message is not of this era")
    return at if kind and is_usable else None


def named_value(value: bytes | None, headers: Headers | None, role: Role) -> bytes | None:
    """A :class:`NamedValue` if a header names its schema; the last one counts."""
    if value is None or not headers:
        return value
    for name, content in reversed(headers):
        if name in _ID_HEADERS[role] and (found := _header_id(_ID_HEADERS[role][name], content)):
            id, indexes = found
            made = NamedValue(indexes + value if indexes else value)
            made.schema = id
            return made
    return value


#: The headers of a message that name the schema of its value or key. Sources: `KafkaSerdeHeaders` of Apicurio, and
#: `header_schema_id_serializer` of Confluent's client.
_ID_HEADERS: Mapping[Role, Mapping[str, Literal["globalId", "contentId", "guid"]]] = {
    "value": {
        "apicurio.value.globalId": "globalId",
        "apicurio.value.contentId": "contentId",
        "__value_schema_id": "guid",
    },
    "key": {"apicurio.key.globalId": "globalId", "apicurio.key.contentId": "contentId", "__key_schema_id": "guid"},
}
_NUMBER_BYTES, _GUID_MAGIC, _GUID_BYTES = 8, 1, 17


@lru_cache(maxsize=1000)
def _header_id(kind: Literal["globalId", "contentId", "guid"], content: bytes | None) -> tuple[HeaderId, bytes] | None:
    """With what comes before the value: Protobuf's indexes. None: this is no id."""
    if content is None:
        return None
    if kind != "guid":
        return (HeaderId(kind, int.from_bytes(content, "big")), b"") if len(content) == _NUMBER_BYTES else None
    if len(content) < _GUID_BYTES or content[0] != _GUID_MAGIC:
        return None
    return HeaderId(kind, str(UUID(bytes=content[1:_GUID_BYTES]))), content[_GUID_BYTES:]


def schema_id(value: bytes | None) -> int | None:
    """The id of a registry's schema that a value begins with; None if it begins with none."""
    if value is None or isinstance(value, NamedValue) or len(value) < HEADER_BYTES or value[0] != _MAGIC:
        return None
    return int.from_bytes(value[1:HEADER_BYTES], "big")


def header(id: int) -> bytes:
    """What comes before a value that was written with the schema of this id."""
    return bytes([_MAGIC]) + id.to_bytes(HEADER_BYTES - 1, "big")


def headers_text(headers: Headers | None) -> str | None:
    """Headers may have any bytes, and one name several times."""
    return None if not headers else json.dumps([_shown(*header) for header in headers], ensure_ascii=False)


def headers_from_text(text: str | None) -> Headers | None:
    return None if text is None else [(one["key"], _bytes(one)) for one in json.loads(text)]


def _shown(key: str, value: bytes | None) -> dict[str, str | None]:
    return {"key": key, **({"value": None} if value is None else bytes_in_json(value))}


def _bytes(header: Mapping[str, Any]) -> bytes | None:
    if "base64" in header:
        return base64.b64decode(header["base64"])
    return None if header["value"] is None else str(header["value"]).encode()


def parts(messages: Sequence[Message], most_bytes: int) -> Iterator[Sequence[Message]]:
    """In order, each of limited size."""
    start = size = 0
    for at, message in enumerate(messages):
        size += len(message.value() or b"")
        if size >= most_bytes:
            yield messages[start : at + 1]
            start, size = at + 1, 0
    if start < len(messages):
        yield messages[start:]


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
#: The last millisecond of the year 9999.
_LAST = 253_402_300_799_999
