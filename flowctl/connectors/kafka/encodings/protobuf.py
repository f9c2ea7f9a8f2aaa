"""Schemas of Protobuf: their fields in flowctl's types, and values written with them.

Source of the types: "Scalar Value Types" and "Field Presence" in the Protobuf documentation; of the indexes before a
value: "Wire format" in the documentation of Confluent's registry; of the name before a value whose schema is in one of
Apicurio's headers: its `ProtobufSerializer`.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowctl.connectors.kafka.schema_ids import HeaderId, SchemaId, type_reference
from flowctl.connectors.kafka.unfit import NO_MESSAGE, Unreadable, other_schema
from flowctl.connectors.written_fields import Field, record
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.types import Decimal

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

Get = Callable[[Any], Any]
_FILE = "flowctl_schema.proto"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_WRAPPERS = re.compile(r"google\.protobuf\.(Double|Float|Int64|UInt64|Int32|UInt32|Bool|String|Bytes)Value")
_AS_JSON = "maps and messages of any type are read as JSON"


class ProtobufSchema:
    """The first message of ``text``, or the ``message`` of this name (``or_first``: if there is one). ``references``
    are the files that it imports, by their names; others are in ``folder``. ``id``: values begin with the numbers of
    their message in the file, as a registry's do (0: they do not), or with its name if the id is one of Apicurio's."""

    def __init__(
        self,
        text: str,
        references: Mapping[str, str] | None = None,
        message: str = "",
        *,
        id: SchemaId = 0,
        folder: str = "",
        or_first: bool = False,
    ) -> None:
        from google.protobuf.message_factory import GetMessageClass

        self._file = compiled(text, tuple((references or {}).items()), folder)
        self._id = id
        found = _message(self._file, message, or_first=or_first)
        self.name = str(found.full_name)
        self._class = GetMessageClass(found)
        is_by_type = isinstance(id, HeaderId) and id.kind != "guid"
        self._types = _types_of(self._file) if is_by_type else {}
        self.fields, self._gets = _fields_of(found, ())

    def parsed(self, data: bytes) -> Mapping[str, Any]:
        """What a message does not know is ignored, as everywhere in Protobuf."""
        from google.protobuf.message import DecodeError

        if self._id:
            name, data = self._named_by_type(data) if self._types else self._named(data)
            if name != self.name:
                raise Unreadable(other_schema(self._id, name, self.name))
        try:
            found = self._class.FromString(data)
        except DecodeError as error:
            raise ValueError("the bytes are no value of the message") from error
        return {name: get(found) for name, get in self._gets.items()}

    def _named(self, data: bytes) -> tuple[str, bytes]:
        """The name of the message that the indexes before it name, and the rest. Raises ``ValueError``."""
        count, at = _zigzag(data, 0)
        if not 0 <= count <= len(data):
            raise ValueError("there are not so many indexes")
        indexes = []
        for _ in range(count):
            index, at = _zigzag(data, at)
            indexes.append(index)
        messages, found = list(self._file.message_types_by_name.values()), None
        for index in indexes or [0]:
            if not 0 <= index < len(messages):
                raise ValueError("the file has no such message")
            found = messages[index]
            messages = list(found.nested_types)
        assert found is not None, "there is at least one index"
        return str(found.full_name), data[at:]

    def _named_by_type(self, data: bytes) -> tuple[str, bytes]:
        """As :meth:`_named`, by the type's name before it. Raises ``Unreadable``."""
        for reference, name in self._types.items():
            if data.startswith(reference):
                return name, data[len(reference) :]
        raise Unreadable(NO_MESSAGE)


def _types_of(file: FileDescriptor) -> dict[bytes, str]:
    """The messages of ``file``, each by what Apicurio writes before its values: a name without those of the messages
    that it is in, so that an outer one counts before an inner one."""
    outer = list(file.message_types_by_name.values())
    found = (*(one for one in _messages(outer) if one not in outer), *outer)
    return {type_reference(str(one.name).encode()): str(one.full_name) for one in found}


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
    found = shift = 0
    for end in range(at, min(at + 10, len(data))):
        found |= (data[end] & 0x7F) << shift
        shift += 7
        if data[end] < 0x80:
            return (found >> 1) ^ -(found & 1), end + 1
    raise ValueError("the number has no end")


@lru_cache(maxsize=100)
def compiled(text: str, references: tuple[tuple[str, str], ...] = (), more: str = "") -> FileDescriptor:
    """What ``text`` declares, with the files that it imports: ``references``, and those in the folder ``more``. By the
    compiler itself, apart: it writes its errors to its own standard error, and takes a third of a second."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    with tempfile.TemporaryDirectory(prefix="flowctl-proto-") as folder:
        for name, content in (*references, (_FILE, text)):
            file = Path(folder, name)
            if not file.resolve().is_relative_to(Path(folder).resolve()):
                raise TableError(f"the schema refers to {name}, which is no name of a file", hint="Register it again")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        made = Path(folder, "made")
        places = [f"-I{place}" for place in (folder, more, _own_files()) if place]
        command = [sys.executable, "-m", "grpc_tools.protoc", *places, f"--descriptor_set_out={made}"]
        command += ["--include_imports", _FILE]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if ".proto:" in line] or done.stderr.splitlines()
            why = said[0].strip().removeprefix(f"{folder}/") if said else "the compiler does not say why"
            raise TableError(f"the schema is not valid Protobuf: {why}", hint="Correct the schema")
        files = FileDescriptorSet.FromString(made.read_bytes()).file
    pool = DescriptorPool()
    for one in files:
        pool.Add(one)
    return pool.FindFileByName(_FILE)


def _own_files() -> Path:
    """Where the compiler's `google/protobuf/*.proto` are."""
    import grpc_tools

    return Path(str(grpc_tools.__file__)).parent / "_proto"


def _message(file: FileDescriptor, name: str, *, or_first: bool) -> Descriptor:
    listed = list(_messages(file.message_types_by_name.values()))
    if not listed:
        raise TableError("the schema has no message", hint="Add one, or use another schema")
    if not name:
        return listed[0]
    for one in listed:
        if name in (one.full_name, one.name):
            return one
    if or_first:
        return listed[0]
    names = ", ".join(one.full_name for one in listed)
    raise TableError(f"the schema has no message {name}", hint=f"Set `format.message` to one of {names}")


def _messages(found: Sequence[Descriptor]) -> list[Descriptor]:
    return [one for message in found for one in (message, *_messages(message.nested_types))]


def _fields_of(message: Descriptor, outer: tuple[str, ...]) -> tuple[dict[str, Field], dict[str, Get]]:
    """The fields, and how each is got from a message. ``outer`` are the messages that it is in."""
    fields, gets = {}, {}
    for one in message.fields:
        field, part = _field_of(one, (*outer, message.full_name))
        is_list = one.is_repeated and not _is_map(one)
        fields[one.name] = field.array() if is_list else field
        gets[one.name] = _get_all(one.name, part) if is_list else _get(one, part)
    return fields, gets


def _get(field: FieldDescriptor, part: Get) -> Get:
    name, has_presence = field.name, field.has_presence and not _is_map(field)

    def get(message: Any) -> Any:
        return None if has_presence and not message.HasField(name) else part(getattr(message, name))

    return get


def _get_all(name: str, part: Get) -> Get:
    return lambda message: [part(value) for value in getattr(message, name)]


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _field_of(field: FieldDescriptor, outer: tuple[str, ...]) -> tuple[Field, Get]:
    """The field as if it were not repeated, and what a parser returns of its value."""
    inner = _record_of(field, outer)
    if inner is None:
        return _plain_field(field), lambda value: value
    fields, gets = inner
    return record(fields, _native(field)), lambda value: {name: get(value) for name, get in gets.items()}


def _record_of(field: FieldDescriptor, outer: tuple[str, ...]) -> tuple[dict[str, Field], dict[str, Get]] | None:
    """The fields of a message that become the fields of a record; None for all else, and for one that is in itself."""
    message = field.message_type
    if message is None or _is_map(field) or not message.fields or message.full_name in outer:
        return None
    return None if message.full_name.startswith("google.protobuf.") else _fields_of(message, outer)


def _plain_field(field: FieldDescriptor) -> Field:
    kinds, native = _kinds(), _native(field)
    if field.enum_type is not None:
        return Field(types.STRING, "enum", convert=_enum(field))
    if field.message_type is None:
        return Field(kinds[field.type], native)
    if _is_map(field):
        return Field(types.STRING, "map", _AS_JSON, True, _map_json(field))
    name = field.message_type.full_name
    if name == "google.protobuf.Timestamp":
        return Field(types.TIMESTAMP, native, convert=_instant)
    if name == "google.protobuf.Duration":
        convert: Get = lambda value: value.ToJsonString()  # noqa: E731
        return Field(types.STRING, native, "a duration is read as text", True, convert)
    if _WRAPPERS.fullmatch(name):
        return Field(kinds[field.message_type.fields[0].type], native, convert=lambda value: value.value)
    return Field(types.STRING, native, _AS_JSON, True, _json)


def _kinds() -> Mapping[int, Any]:
    from google.protobuf.descriptor import FieldDescriptor as Of

    return {
        Of.TYPE_DOUBLE: types.DOUBLE,
        Of.TYPE_FLOAT: types.FLOAT,
        Of.TYPE_BOOL: types.BOOL,
        Of.TYPE_STRING: types.STRING,
        Of.TYPE_BYTES: types.BINARY,
        **dict.fromkeys((Of.TYPE_INT32, Of.TYPE_SINT32, Of.TYPE_SFIXED32), types.INT32),
        **dict.fromkeys((Of.TYPE_INT64, Of.TYPE_SINT64, Of.TYPE_SFIXED64), types.INT64),
        **dict.fromkeys((Of.TYPE_UINT32, Of.TYPE_FIXED32), types.INT64),
        **dict.fromkeys((Of.TYPE_UINT64, Of.TYPE_FIXED64), Decimal(20, 0)),
    }


def _native(field: FieldDescriptor) -> str:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    if field.message_type is not None:
        return str(field.message_type.full_name)
    return str(FieldDescriptorProto.Type.Name(field.type)).removeprefix("TYPE_").lower()


def _enum(field: FieldDescriptor) -> Get:
    """The name; of a number that the schema does not know, the number."""
    names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
    return lambda number: names.get(number, str(number))


def _instant(value: Any) -> dt.datetime:
    """Raises ``ValueError`` where a timestamp would lose digits."""
    if value.nanos % 1000:
        raise ValueError("no instant in microseconds")
    return _EPOCH + dt.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)


def _json(value: Any) -> str:
    from google.protobuf.json_format import MessageToJson

    return str(MessageToJson(value, preserving_proto_field_name=True, indent=None, ensure_ascii=False))


def _map_json(field: FieldDescriptor) -> Get:
    """In the order of the keys: a map has none."""
    kind = field.message_type.fields_by_name["value"]
    enum = _enum(kind) if kind.enum_type is not None else None

    def plain(value: Any) -> Any:
        if kind.message_type is not None:
            return json.loads(_json(value))
        if enum is not None:
            return enum(value)
        return base64.b64encode(value).decode() if isinstance(value, bytes) else value

    return lambda found: json.dumps({str(key): plain(found[key]) for key in sorted(found)}, ensure_ascii=False)
