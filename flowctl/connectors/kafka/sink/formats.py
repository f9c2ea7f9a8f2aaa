"""How the rows of a topic are encoded, by `to.format`: the one place that chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from flowctl.connectors.kafka.registry import NOT_ALLOWED, Kind, Registry, Schema
from flowctl.connectors.kafka.schema_ids import header
from flowctl.connectors.kafka.sink import avro_values, json_schema, protobuf_schema, protobuf_values
from flowctl.connectors.kafka.sink.keys import KeyForm
from flowctl.connectors.kafka.sink.messages import Form, Serializer
from flowctl.connectors.kafka.sink.schema import RowType
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model.mode import Mode
from flowctl.model.table_info import Column
from flowctl.spec.topic_layout import MessageFormat, TopicLayout


@dataclass(frozen=True)
class Language:
    """A language of schemas. ``describe`` makes the text of a row's schema from the versions of its subject, the newest
    first; if it has made the newest of the same columns, it makes the same again. It raises ``TableError`` for columns
    that the language does not have. ``serializer`` takes such a text, and the bytes that come before each value."""

    kind: Kind
    describe: Callable[[RowType, Iterable[Schema]], str]
    serializer: Callable[[str, bytes], Serializer]


LANGUAGES: Mapping[MessageFormat, Language] = {
    "json": Language("JSON", json_schema.schema_text, json_schema.RegisteredJsonSerializer),
    "avro": Language("AVRO", avro_values.schema_text, avro_values.AvroSerializer),
    "protobuf": Language("PROTOBUF", protobuf_schema.schema_text, protobuf_values.ProtobufSerializer),
}


@dataclass(frozen=True)
class Part:
    """A part of a message that has a schema: its value, or its key. ``is_fixed``: equal values must have equal bytes
    for ever, so the schema depends on nothing but the columns."""

    subject: str
    row: RowType
    language: Language
    is_fixed: bool = False

    def text(self, registry: Registry) -> str:
        return self.language.describe(self.row, () if self.is_fixed else registry.versions(self.subject))


@dataclass(frozen=True)
class TopicRows:
    """What is written to a topic: the columns of values, keys and headers."""

    topic: str
    layout: TopicLayout
    columns: tuple[Column, ...]
    key: tuple[Column, ...]
    headers: tuple[Column, ...]
    is_merged: bool

    @property
    def values(self) -> Part:
        return self._part(self.layout.subject or f"{self.topic}-value", RowType(self.topic, self.columns))

    @property
    def keys(self) -> Part:
        """A merge takes messages with the same key for the same row, so its keys have no nulls, and one schema."""
        row = RowType(f"{self.topic}_key", self.key, nullable=not self.is_merged)
        return self._part(f"{self.topic}-key", row, is_fixed=self.is_merged)

    @property
    def parts(self) -> list[Part]:
        """The parts whose schemas are registered."""
        if not self.layout.registry or not self.columns:
            return []
        return [self.values, *([self.keys] if self.key else [])]

    def _part(self, subject: str, row: RowType, *, is_fixed: bool = False) -> Part:
        return Part(subject, row, LANGUAGES[self.layout.format], is_fixed)


def topic_rows(topic: str, layout: TopicLayout, mode: Mode, key: Sequence[str], columns: Sequence[Column]) -> TopicRows:
    """``key`` is the table's; ``columns`` are those of a batch. Without any, nothing is written but a void."""
    by_name, is_merged = {column.name: column for column in columns}, mode == "merge"
    of_key = (key if is_merged else layout.key) if columns else ()
    return TopicRows(
        topic,
        layout,
        tuple(columns),
        tuple(by_name[name] for name in of_key),
        tuple(by_name[name] for name in layout.headers if name in by_name),
        is_merged,
    )


def form_of(rows: TopicRows, registry: Registry | None) -> Form:
    """How ``rows`` become messages. Registers the schemas that they have."""
    form = Form(rows.columns, rows.key, rows.headers)
    if not rows.parts:
        return form
    form = replace(form, values=_register(rows.values, registry)[0])
    if not rows.key:
        return form
    keys, id = _register(rows.keys, registry)
    return replace(form, keys=keys, key_schema=id)


def confirm_schemas(rows: TopicRows, registry: Registry | None, before: KeyForm | None) -> str:
    """What :func:`form_of` would register, for people; empty: nothing. Raises :class:`StoppedByPolicy` for a schema
    that its subject does not allow, and for keys that would not be those of ``before``."""
    new = []
    for one in rows.parts:
        known = _require_registry(registry)
        standing = known.assess(one.subject, one.text(known), one.language.kind)
        if standing.kind == "refused":
            what = f"subject {one.subject} does not allow the schema of these columns as version {standing.version}"
            raise StoppedByPolicy(what, hint=NOT_ALLOWED)
        if one.is_fixed and standing.id is not None and before and (why := before.refuse_schema(standing.id)):
            raise StoppedByPolicy(f"{rows.topic}: {why[0]}", hint=why[1])
        if standing.kind == "new":
            new.append(f"version {standing.version} of {one.subject}")
    return f"registers {' and '.join(new)}" if new else ""


def _register(one: Part, registry: Registry | None) -> tuple[Serializer, int]:
    known = _require_registry(registry)
    text = one.text(known)
    id = known.register(one.subject, text, one.language.kind)
    return one.language.serializer(text, header(id)), id


def _require_registry(registry: Registry | None) -> Registry:
    if registry is None:
        raise TableError("the connection has no registry for the schema", hint="Add `registry: {url: …}` to it")
    return registry
