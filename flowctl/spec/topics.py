"""What JSON Schema cannot express about a table that reads a topic, or writes one: how messages are encoded, and their
keys."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from flowctl.diagnostics import Diagnostic
from flowctl.spec.findings import Findings
from flowctl.spec.node import Node
from flowctl.spec.references import ConnectionTypes
from flowctl.spec.schema import object_syntax
from flowctl.spec.spec import TableSpec, TopicSource

#: The types of `format` whose messages have fields.
WITH_FIELDS = ("json", "avro", "protobuf")
_ADD_REGISTRY = "Add `registry: {url: …}` to the connection"
_OF_SCHEMAS = ("registry", "subject", "schema_file", "message")
_OF_CSV = ("delimiter", "quote", "null_value", "encoding", "multiline")


def check_topic(table: Node, findings: Findings) -> None:
    format, kind, key = table.get("format"), table.get("format.type"), table.get("format.key")
    name = kind.text if kind else "raw"
    if format is not None and name == "csv":
        _check_csv(format, kind or format, findings)
    elif format is not None:
        for part in (one for one in _OF_CSV if one in format.entries):
            what, hint = f"`{part}` is of `type: csv`", "Remove it, or use `type: csv`"
            findings.error(format.entries[part].place, what, hint, "unusable-key")
        _check_encoding(format, kind or format, name, findings)
    if key is not None and name in WITH_FIELDS:
        own = key.entries.get("type")
        _check_encoding(key, own or key, own.text if own else name, findings)
    _check_rows(table, name, findings)


def check_written(table: Node, findings: Findings) -> None:
    """How a table writes topics: its own, and that of its dead letters."""
    _check_compaction(table, findings)
    format = table.get("to.format")
    if format is None or "type" not in format.entries:
        return
    kind, registry = format.entries["type"].text, format.entries.get("registry")
    is_registered = kind != "json" if registry is None else registry.value is True
    if registry is not None and kind != "json" and not is_registered:
        what = f"messages of `type: {kind}` cannot be read without their schema"
        findings.error(registry.place, what, "Remove `registry: false`, or use `type: json`", "unusable-key")
    elif "subject" in format.entries and not is_registered:
        what, hint = "`subject` is of a registry, which is not used", "Remove it, or set `registry: true`"
        findings.error(format.entries["subject"].place, what, hint, "unusable-key")


def _check_compaction(table: Node, findings: Findings) -> None:
    """A compacted topic keeps the last message of each key, and takes none without one."""
    mode, policy = table.entries.get("mode"), _compaction(table, "to")
    if policy is not None and mode is not None and mode.text == "append" and table.get("to.key") is None:
        what, hint = "a compacted topic takes no messages without a key", "Add `key: […]` to `to`, or remove it"
        findings.error(policy, what, hint, "unusable-value")
    if (policy := _compaction(table, "dead_letters.to")) is not None:
        what = "a compacted topic loses dead letters, and takes none without a key"
        findings.error(policy, what, "Remove it", "unusable-value")


def _compaction(table: Node, to: str) -> Node | None:
    """The `cleanup.policy` with which a topic is created, if it is compacted."""
    config = table.get(f"{to}.create.config")
    policy = config.entries.get("cleanup.policy") if config is not None else None
    return policy if policy is not None and "compact" in policy.text else None


def check_registries(registries: Collection[str], tables: Sequence[TableSpec]) -> Iterator[Diagnostic]:
    """``registries`` are the connections that have one."""
    for table in tables:
        layout = table.layout.topic
        if layout.registry and table.target.connection not in registries:
            asks = "registry: true" if layout.format == "json" else f"type: {layout.format}"
            what = f"`{asks}` needs a schema, and `{table.target.connection}` has no registry for it"
            path = "registry" if layout.format == "json" else "type"
            yield Diagnostic(what, _ADD_REGISTRY, table.mark_of(f"to.format.{path}"), "missing-key")
        if not isinstance(table.source, TopicSource) or table.source.connection in registries:
            continue
        kind, key = table.format.get("type", "raw"), table.format.get("key")
        parts = [(kind, table.format, "format")]
        parts += [(key.get("type", kind), key, "format.key")] if key is not None else []
        for name, options, path in parts:
            if _needs_registry(name, options):
                what = f"`type: {name}` needs a schema, and `{table.source.connection}` has no registry for it"
                file = {"avro": "orders.avsc", "protobuf": "orders.proto"}.get(name)
                hint = f"{_ADD_REGISTRY}, or `schema_file: {file}` to `{path}`" if file else _ADD_REGISTRY
                yield Diagnostic(what, hint, table.mark_of(f"{path}.type"), "missing-key")


def check_groups(tables: Sequence[TableSpec]) -> Iterator[Diagnostic]:
    """A group has one offset for each partition of a topic."""
    seen: dict[tuple[str, tuple[str, ...], str], TableSpec] = {}
    for table in tables:
        source = table.source
        if isinstance(source, TopicSource) and source.group:
            first = seen.setdefault((source.connection, source.parts, source.group), table)
            if first is not table:
                what = f"`{first.id}` and `{table.id}` show the offsets of one topic in one group"
                hint = f"Give one of them another `group`; `{first.id}` is at {first.mark}"
                yield Diagnostic(what, hint, table.mark_of("from.group"), "same-group")


def check_truncates(tables: Sequence[TableSpec], connections: ConnectionTypes) -> Iterator[Diagnostic]:
    for table in tables:
        format = table.format
        if format.get("envelope") == "debezium" and format.get("on_truncate", "apply") == "apply":
            what, hint = keeps_its_rows(table, connections), "Set `on_truncate: fail` or `ignore` in `format`"
            if what:
                yield Diagnostic(what, hint, table.mark_of("format.on_truncate"), "truncate-topic")


def keeps_its_rows(table: TableSpec, connections: ConnectionTypes) -> str:
    """Why a truncate of its source cannot remove the table's rows; empty if it can, or adds one. A topic keeps its
    messages, and nobody knows which keys they have."""
    type = connections[table.target.connection]
    if table.mode == "append" or type is None or object_syntax(type) != "topic":
        return ""
    return f"`{table.id}` writes {table.target}, a topic, whose rows cannot be removed when its source is truncated"


def _needs_registry(kind: str, options: Mapping[str, Any]) -> bool:
    return bool(options.get("registry", kind in ("avro", "protobuf") and "schema_file" not in options))


def _check_encoding(options: Node, place: Node, kind: str, findings: Findings) -> None:
    """``options`` are those of values or of keys, whose type is ``kind``."""
    given = {name: part for name in ("schema", *_OF_SCHEMAS) if (part := options.entries.get(name))}
    if kind not in WITH_FIELDS:
        for part in given.values():
            what = f"messages of type {kind} have no fields"
            findings.error(part.place, what, "Use `type: json`, csv, avro or protobuf", "unusable-key")
        return
    is_registered = kind != "json" and "schema_file" not in given
    if "registry" in given:
        is_registered = given["registry"].value is True
    if kind == "json":
        _check_json(given, place, is_registered, findings)
    elif is_registered and "schema_file" in given:
        what, hint = (
            "`schema_file` is for messages without a registry",
            "Keep one of `schema_file` and `registry: true`",
        )
        findings.error(given["registry"].place, what, hint, "not-together")
    elif not is_registered and "schema_file" not in given:
        what = "nothing says which fields the messages have"
        findings.error(given["registry"].place, what, "Add `schema_file`, or remove `registry: false`", "missing-key")
    if "subject" in given and not is_registered:
        hint = "Remove it, or set `registry: true`" if kind == "json" else "Remove it, or the `schema_file`"
        findings.error(given["subject"].place, "`subject` is of a registry, which is not used", hint, "unusable-key")
    if "message" in given and kind != "protobuf":
        findings.error(given["message"].place, "`message` is for `type: protobuf`", "Remove it", "unusable-key")


def _check_csv(options: Node, place: Node, findings: Findings) -> None:
    """A message is one record, without a line that names its fields."""
    for name in (one for one in _OF_SCHEMAS if one in options.entries):
        findings.error(
            options.entries[name].place, f"`{name}` cannot be used with `type: csv`", "Remove it", "unusable-key"
        )
    schema = options.entries.get("schema")
    if not (schema and schema.entries):
        hint = "Add `schema: {user_id: bigint, url: string}` with all fields, in their order"
        findings.error(place, "`type: csv` needs a `schema`: messages have no header", hint, "missing-key")
    for name in ("delimiter", "quote"):
        sign = options.entries.get(name)
        if sign is not None and not (len(sign.text) == 1 and sign.text.isascii()):
            what = f"`{name}` of messages is one ASCII character"
            findings.error(sign, what, "Use one, such as `,` or `|`", "unusable-value")


def _check_json(given: Mapping[str, Node], place: Node, is_registered: bool, findings: Findings) -> None:
    if "schema_file" in given:
        what = "`schema_file` is for messages of type avro and protobuf"
        findings.error(given["schema_file"].place, what, "Declare the fields in `schema`", "unusable-key")
    schema = given.get("schema")
    if not is_registered and not (schema and schema.entries):
        hint = "Add `schema: {user_id: bigint, url: string}` with the fields to read"
        findings.error(place, "`type: json` needs a `schema`", hint, "missing-key")


def _check_rows(table: Node, kind: str, findings: Findings) -> None:
    """Messages replace rows by key only if it is known how: an envelope says what was deleted, and a message without
    one is deleted by a tombstone, which has nothing but its key."""
    format, mode = table.get("format"), table.entries.get("mode")
    parts = [part for name in ("envelope", "key") if format and (part := format.entries.get(name))]
    for part in parts if kind not in WITH_FIELDS else ():
        what = f"`envelope` and `key` cannot be used with `type: {kind}`"
        findings.error(part.place, what, "Use `type: json`, avro or protobuf", "unusable-key")
    if len(parts) == 2:
        what = "`key` cannot be used together with `envelope`, which has the whole row"
        findings.error(parts[1].place, what, "Keep one of the two", "not-together")
    if parts and parts[0].text == "maxwell" and kind in ("avro", "protobuf"):
        findings.error(parts[0], "Maxwell writes JSON", "Use `type: json`", "unusable-key")
    _check_order(table, findings)
    envelope = parts[0].text if parts else ""
    if format and (truncates := format.entries.get("on_truncate")) and envelope != "debezium":
        what, hint = "only the envelope of Debezium tells of truncates", "Add `envelope: debezium`, or remove it"
        if envelope == "maxwell":
            what, hint = "Maxwell sends nothing when a table is truncated", "Remove it"
        findings.error(truncates.place, what, hint, "unusable-key")
    if not mode or mode.text not in ("merge", "scd2"):
        return
    if format and (headers := format.entries.get("headers")):
        what = f"`headers` cannot be used with mode {mode.text}: they are of a message, not of the row"
        findings.error(headers.place, what, "Remove it", "unusable-key")
    _check_key(table, findings)
    if not (parts and kind in WITH_FIELDS):
        what = f"mode {mode.text} needs to know which row a message is about, and which was deleted"
        hint = "Use `type: json` with `envelope: debezium` or `maxwell`, or with `key: {schema: {id: bigint}}`"
        findings.error(format.place if format else table.entries["from"].place, what, hint, "missing-key")


def _check_order(table: Node, findings: Findings) -> None:
    order, mode, deletes = table.get("format.source_order"), table.entries.get("mode"), table.entries.get("deletes")
    if order is None or order.value is not True:
        return
    action = deletes.entries.get("action") if deletes else None
    if table.get("format.envelope") is None:
        what, hint = (
            "only an envelope tells the order of changes in their source",
            "Add `envelope: debezium`, or maxwell",
        )
    elif mode and mode.text == "append":
        what, hint = "mode append keeps every change, whatever its order", "Set `mode: merge` or scd2, or remove it"
    elif mode and mode.text == "merge" and (deletes is None or (action and action.text == "hard")):
        what = "`source_order` needs soft deletes: an old change would bring back a row that is gone"
        hint = "Add `deletes: {action: soft}`, or remove it"
    else:
        return
    findings.error(order.place, what, hint, "unusable-key")


def _check_key(table: Node, findings: Findings) -> None:
    """The key's columns are declared: in the message's key, or in the envelope's row. A registry tells them only to a
    plan."""
    where = "format.schema" if table.get("format.envelope") else "format.key.schema"
    declared, key, rename = table.get(where), table.entries.get("key"), table.get("columns.rename")
    if declared is None or key is None:
        return
    sources = {target.text: name for name, target in rename.entries.items()} if rename else {}
    for column in key.items:
        if sources.get(column.text, column.text) not in declared.entries:
            hint = f"Declare it there, or choose a key among {', '.join(declared.entries)}"
            findings.error(column, f"key column `{column.text}` is not in `{where}`", hint, "unknown-column")
