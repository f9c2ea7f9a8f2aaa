"""What the messages of a topic are, by a table's `format` and the registry: their columns, and what decodes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flowctl.connectors.avro import AvroSchema
from flowctl.connectors.csv_dialect import dialect_of
from flowctl.connectors.exact import require_possible
from flowctl.connectors.kafka.conversion import Payload
from flowctl.connectors.kafka.encodings.csv import CsvDecoder
from flowctl.connectors.kafka.encodings.decoder import Decoder
from flowctl.connectors.kafka.encodings.json import JsonDecoder
from flowctl.connectors.kafka.encodings.json_schema import JsonSchema, RegisteredJsonDecoder
from flowctl.connectors.kafka.encodings.json_values import require_readable
from flowctl.connectors.kafka.encodings.protobuf import ProtobufSchema
from flowctl.connectors.kafka.encodings.written import OneWriter, RegisteredWriters, Writers, WrittenDecoder
from flowctl.connectors.kafka.registry import Registry, Schema
from flowctl.connectors.kafka.schema_ids import Role, SchemaId
from flowctl.connectors.kafka.unfit import NAMES, Unreadable, other_schema
from flowctl.connectors.source import Relation
from flowctl.connectors.written_fields import Field, WriterSchema
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.spec.suggest import nearest
from flowctl.spec.topics import WITH_FIELDS

#: Columns that every message has, besides its value.
METADATA = frozenset({"_key", "_partition", "_offset", "_timestamp", "_headers", "_op"})
#: By role, the id and the version of the schema that a table was planned by.
Pins = Mapping[Role, tuple[int, int]]


@dataclass(frozen=True)
class Payloads:
    """``registry`` is None if the connection has none; schema files are relative to ``base_dir``."""

    registry: Registry | None = None
    base_dir: str = "."

    def of(self, relation: Relation, topic: str, pins: Pins | None = None) -> tuple[Payload, Pins]:
        """The messages of ``topic`` by the schemas of ``pins``, or by the newest, whose pins are returned. Raises
        ``TableError`` for declarations that no message can meet, and for schemas that do not exist."""
        format, known = relation.format, pins or {}
        kind = format.get("type", "raw")
        if kind == "csv":
            declared = _declared(format["schema"], kind)
            for column in declared:
                require_possible(Column(column.name, types.STRING), column)
            return Payload(declared, values=CsvDecoder(declared, dialect_of(format))), {}
        if kind not in WITH_FIELDS:
            return Payload(key=relation.key), {}
        envelope = format.get("envelope", "")
        columns, values, pin = self._part(kind, format, topic, "value", envelope, known.get("value"))
        made: dict[Role, tuple[int, int]] = {"value": pin} if pin else {}
        if "key" not in format:
            ordered = bool(format.get("source_order"))
            return Payload(
                columns,
                (),
                envelope,
                relation.key,
                has_source_order=ordered,
                on_truncate=str(format.get("on_truncate", "apply")) if envelope == "debezium" else "",
                values=values,
                registered=tuple(made),
            ), made
        options = format["key"]
        of_key, keys, pin = self._part(options.get("type", kind), options, topic, "key", "", known.get("key"))
        _require_key(relation, of_key)
        both = {column.name for column in columns} & {column.name for column in of_key}
        if both and "schema" in format and "schema" in options:
            raise TableError(
                f"{', '.join(sorted(both))} is declared in format.schema and in format.key.schema",
                hint="Declare it in one of them: the value's field, or the key's",
            )
        declared = tuple(column for column in columns if column.name not in both)  # a tombstone has only the key's
        if pin:
            made["key"] = pin
        payload = Payload(declared, of_key, envelope, relation.key, values=values, keys=keys, registered=tuple(made))
        return payload, made

    def _part(
        self,
        kind: str,
        options: Mapping[str, Any],
        topic: str,
        role: Role,
        envelope: str,
        pin: tuple[int, int] | None,
    ) -> tuple[tuple[Column, ...], Decoder, tuple[int, int] | None]:
        """The columns of values or of keys, what decodes them, and the schema that they were planned by."""
        declared = _declared(options.get("schema", {}), kind)
        if kind == "json" and not options.get("registry"):
            require_readable(declared)
            return declared, JsonDecoder(), None
        message = str(options.get("message", ""))
        if "schema_file" in options:
            file = Path(self.base_dir, str(options["schema_file"]))
            reader = _of_file(kind, file, message, role)
            writers: Writers = OneWriter(reader)
            found = None
        else:
            registry, subject = self._registry(), str(options.get("subject", f"{topic}-{role}"))
            found = self._found(registry, subject, kind, pin)
            reader = _registered(kind, found, found.id, message, role)

            def made(id: SchemaId) -> WriterSchema | None:
                one = registry.by_id(id)
                if one is not None and one.kind.lower() != kind:
                    raise Unreadable(other_schema(id, one.kind.capitalize(), found.kind.capitalize()))
                return None if one is None else _registered(kind, one, id, message, role, or_first=True)

            followed = (lambda schema: {}) if declared else (lambda schema: _row(schema, envelope))
            writers = RegisteredWriters(registry, made, subject, found.version, reader, followed)
        columns = declared or tuple(field.column(name) for name, field in _row(reader, envelope).items())
        if not columns:
            what = f"the schema of {topic} is no envelope of {NAMES[envelope]}"
            raise TableError(what, hint="Remove `format.envelope`")
        _require_free(columns, topic)
        used = (found.id, found.version) if found else None
        if kind == "json":
            require_readable(columns)
            return columns, RegisteredJsonDecoder(writers, JsonDecoder()), used
        return columns, WrittenDecoder(writers, reader), used

    def _registry(self) -> Registry:
        if self.registry is None:
            raise TableError(
                "the connection has no `registry` to look the schema up in",
                hint="Add `registry: {url: …}` to the connection, or `schema_file` to `format`",
            )
        return self.registry

    def _found(self, registry: Registry, subject: str, kind: str, pin: tuple[int, int] | None) -> Schema:
        if pin:
            found = registry.by_id(pin[0])
            if found is None:
                what = f"the registry does not have schema {pin[0]} any more, by which the plan was made"
                raise TableError(what, hint="Plan again")
            found = Schema(found.id, pin[1], found.kind, found.text, found.references)
        else:
            found = registry.latest(subject)
        if found is None:
            known = registry.subjects()
            raise TableError(
                f"the registry {registry.url} has no subject {subject}",
                hint=nearest(subject, known, "Register a schema, or set `format.subject`"),
            )
        if found.kind.lower() != kind:
            raise TableError(
                f"the schema of {subject} is {found.kind.capitalize()}, and the table says `type: {kind}`",
                hint=f"Set `type: {found.kind.lower()}`",
            )
        return found


def _of_file(kind: str, file: Path, message: str, role: Role) -> WriterSchema:
    """What a file of Protobuf imports is looked for beside it."""
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        what = f"schema_file {file} cannot be read: {error}"
        raise TableError(what, hint="Correct `format.schema_file`") from error
    if kind == "avro":
        return AvroSchema(text, value=role)
    return ProtobufSchema(text, message=message, folder=str(file.parent.absolute()))


def _registered(
    kind: str, found: Schema, id: SchemaId, message: str, role: Role, *, or_first: bool = False
) -> WriterSchema:
    match kind:
        case "avro":
            return AvroSchema(found.text, found.references, value=role)
        case "protobuf":
            return ProtobufSchema(found.text, found.references, message, id=id, or_first=or_first)
        case _:
            return JsonSchema(found.text)


def _row(schema: WriterSchema, envelope: str) -> Mapping[str, Field]:
    """The fields that become columns."""
    part = {"debezium": "after", "maxwell": "data"}.get(envelope)
    if part is None:
        return schema.fields
    return schema.fields[part].fields if part in schema.fields else {}


def _declared(declared: Mapping[str, str], kind: str) -> tuple[Column, ...]:
    columns = tuple(Column(name, types.parse(of), native=kind) for name, of in declared.items())
    if taken := sorted(METADATA & set(declared)):
        raise TableError(
            f"format.schema declares {', '.join(taken)}: that is where the message is in its topic",
            hint="Leave it out of format.schema",
        )
    return columns


def _require_free(columns: tuple[Column, ...], topic: str) -> None:
    if taken := sorted(METADATA & {column.name for column in columns}):
        raise TableError(
            f"the schema of {topic} has {', '.join(taken)}: that is where the message is in its topic",
            hint="Declare the other fields in `format.schema`",
        )


def _require_key(relation: Relation, of_key: tuple[Column, ...]) -> None:
    """A tombstone has nothing but its key."""
    if lacking := [name for name in relation.key if name not in {column.name for column in of_key}]:
        raise TableError(
            f"key column {', '.join(lacking)} is not in the messages' keys, which have"
            f" {', '.join(column.name for column in of_key)}",
            hint="Set `key` to columns of the messages' keys",
        )
