"""Messages as the brokers send them, and as dead letters keep them."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Protocol

from flowctl.connectors.kafka.schema_ids import Headers, Role, named_value, schema_id
from flowctl.connectors.kafka.unfit import NO_TIME, Refused
from flowctl.connectors.letters import MESSAGE_COLUMNS, landed_name
from flowctl.connectors.source import PLACE_COLUMN, TIME_COLUMN
from flowctl.text import bytes_in_json

if TYPE_CHECKING:
    import pyarrow as pa


class Message(Protocol):
    """As ``confluent_kafka.Message``. ``timestamp`` is its kind (0: there is none) and milliseconds since 1970 (-1:
    its producer has sent none)."""

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


#: A part of each message.
Part = Callable[[Sequence[Message]], list[Any]]


def _each(name: str) -> Part:
    called = methodcaller(name)
    return lambda messages: list(map(called, messages))


values_of, keys_of = _each("value"), _each("key")
_times = _each("timestamp")
_headers = _each("headers")
_PARTS: Mapping[str, Part] = {
    "_topic": _each("topic"),
    "_partition": _each("partition"),
    "_offset": _each("offset"),
    "_timestamp": lambda messages: milliseconds(messages, are_letters=True),
    "_key": keys_of,
    "_value": values_of,
    "_headers": lambda messages: [headers_text(message.headers()) for message in messages],
    "_schema_id": lambda messages: list(map(schema_id, named_values(messages, "value"))),
}
#: What messages have, by the name of its column in a table, and in a letter.
PARTS: Mapping[str, Part] = {
    "value": values_of,
    **_PARTS,
    "_timestamp": lambda messages: milliseconds(messages),
    **{landed_name(name): part for name, part in _PARTS.items()},
    PLACE_COLUMN: _PARTS["_offset"],
    TIME_COLUMN: lambda messages: milliseconds(messages),
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


def milliseconds(messages: Sequence[Message], *, are_letters: bool = False) -> list[int | None]:
    """None where the topic keeps no times, and where none was sent. A time that no calendar has raises
    :class:`~.unfit.Refused`; a letter has none then."""
    given = [at if kind and at != _NONE else None for kind, at in _times(messages)]
    usable = [at if at is not None and _FIRST <= at <= _LAST else None for at in given]
    if not are_letters and None in usable:
        refused = [number for number, at in enumerate(given) if at is not None and usable[number] is None]
        if refused:
            raise Refused(dict.fromkeys(refused, NO_TIME))
    return usable


def named_values(messages: Sequence[Message], role: Role) -> list[bytes | None]:
    """Values or keys, with the schemas that headers name."""
    parts = (values_of if role == "value" else keys_of)(messages)
    if not any(_headers(messages)):
        return parts
    return [named_value(one, message.headers(), role) for one, message in zip(parts, messages, strict=True)]


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
    if sum(map(len, filter(None, values_of(messages)))) < most_bytes:
        yield messages
        return
    start = size = 0
    for at, message in enumerate(messages):
        size += len(message.value() or b"")
        if size >= most_bytes:
            yield messages[start : at + 1]
            start, size = at + 1, 0
    if start < len(messages):
        yield messages[start:]


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
#: What producers send if a message has no time. Source: `RecordBatch.NO_TIMESTAMP` of Kafka's clients.
_NONE = -1
#: The first millisecond of the year 1, and the last of the year 9999.
_FIRST, _LAST = -62_135_596_800_000, 253_402_300_799_999
