"""The published JSON Schemas, and the errors of a node against each.

Two passes. The envelope knows no connector; `schemas/connectors/<type>.schema.json` describes one connection type
(closed) and, in its ``source`` and ``target`` definitions, what tables that read or write such a connection may
specify. What an expectation may specify is defined by the checks (:mod:`flowctl.expect`). A closed envelope over closed
fragments would reject everything, so they are never put into one ``allOf``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowctl.diagnostics import Diagnostic
from flowctl.expect.kinds import kinds
from flowctl.spec.messages import diagnose
from flowctl.spec.node import Node, plain

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator, ValidationError

Schema = Mapping[str, Any]


@cache
def schema_file(name: str) -> Schema:
    """One published schema as it is written: ``flow.schema.json``, ``connectors/delta.schema.json``."""
    document: Schema = json.loads((_folder() / name).read_text(encoding="utf-8"))
    return document


@cache
def envelope() -> Schema:
    """``flow.schema.json``, with the checks of :mod:`flowctl.expect` in an entry of ``expect``."""
    document = schema_file("flow.schema.json")
    entry = document["$defs"]["expectation"]
    checks = {key: check.schema for key, check in kinds().items()}
    properties = {"column": entry["properties"]["column"], **checks, "on_fail": entry["properties"]["on_fail"]}
    whole = {**entry, "additionalProperties": False, "properties": properties}
    return {**document, "$defs": {**document["$defs"], "expectation": whole}}


@cache
def flow_schema() -> Schema:
    """The envelope with every ``$ref`` replaced by its target."""
    document = envelope()
    inlined: Schema = _inline(document, document["$defs"])
    return inlined


@cache
def connector_types() -> tuple[str, ...]:
    """The connection types of this version, sorted."""
    return tuple(sorted(path.name.partition(".")[0] for path in (_folder() / "connectors").glob("*.schema.json")))


def connector_schema(type: str) -> Schema:
    return schema_file(f"connectors/{type}.schema.json")


def definition(name: str) -> Schema:
    """One of the envelope's ``$defs``."""
    found: Schema = flow_schema()["$defs"][name]
    return found


def storage_schemas() -> Mapping[str, Schema]:
    """What an entry of ``storage`` may specify, by a regular expression of its URL prefix."""
    found: Mapping[str, Schema] = flow_schema()["properties"]["storage"]["patternProperties"]
    return found


def storage_schema(prefix: str) -> Schema:
    """For the entry with this URL prefix; one without properties for a store that takes none."""
    found = (schema for pattern, schema in storage_schemas().items() if re.match(pattern, prefix))
    return next(found, {"properties": {}})


def later_types() -> Sequence[str]:
    """Connection types that are reserved for later versions."""
    found: Sequence[str] = flow_schema()["x-later-types"]
    return found


def object_syntax(type: str) -> str:
    """``dotted`` or ``path``: how objects of this connection type are written."""
    found: str = connector_schema(type)["x-object"]
    return found


def role(type: str, side: str) -> Schema | None:
    """What tables may specify when a connection of this type is their ``source`` or ``target``; None: it cannot be
    one."""
    found: Schema | None = connector_schema(type)["$defs"].get(side)
    return None if found is None or found.get("x-later") else found


def source_modes(type: str) -> tuple[str, ...]:
    """The modes of tables that read from this type: all, unless it names some."""
    properties = (role(type, "source") or {}).get("properties", {})
    return tuple(properties.get("mode", {}).get("enum", definition("modes")))


def target_modes(type: str) -> tuple[str, ...]:
    """The modes that a target of this type supports, even if writing to it comes in a later version."""
    target = connector_schema(type)["$defs"].get("target")
    return tuple(target["properties"]["mode"]["enum"]) if target else ()


def check(node: Node, schema_name: str, label: str = "") -> list[Diagnostic]:
    """The errors of ``node`` against the named schema: ``flow``, or a connection type. ``label`` is put before the
    paths."""
    errors = _validator(schema_name).iter_errors(plain(node))
    return [found for error in errors for found in diagnose(error, node, label)]


def check_stream(node: Node, type: str, label: str) -> list[Diagnostic]:
    """The errors of an entry of ``streams`` whose connection has this type."""
    errors = _validator(f"stream of {type}").iter_errors(plain(node))
    return [found for error in errors for found in diagnose(error, node, label)]


def stream_schema(type: str) -> Schema:
    """What a stream of a connection of this type may specify: the common keys, and those of the type."""
    common, own = definition("stream"), connector_schema(type)["$defs"]["stream"]
    return {**common, "properties": {**common["properties"], **own["properties"]}}


def check_table(node: Node, label: str, roles: Mapping[str, str]) -> list[Diagnostic]:
    """The errors of a merged entry against the schema of tables in these roles (``mode:merge``, ``source:postgres``,
    …), each with its wording for messages. Remove the keys that a role forbids (``false``, see :func:`forbidden`)
    first."""
    value = plain(node)
    return [
        found
        for name, using in {"table": "", **roles}.items()
        for error in _table_errors(name, value)
        for found in diagnose(error, node, label, using)
    ]


@cache
def forbidden(role_name: str) -> tuple[str, ...]:
    """Dotted paths of the keys that a role cannot use."""
    return tuple(_forbidden(_role_schema(role_name)))


def modes_with(path: str) -> list[str]:
    """The modes that can use the key at ``path``."""
    modes: Mapping[str, Schema] = flow_schema()["$defs"]["modes"]
    own = {path} | {path[:at] for at, char in enumerate(path) if char == "."}
    return [mode for mode in modes if own.isdisjoint(forbidden(f"mode:{mode}"))]


def _table_errors(name: str, value: Mapping[str, Any]) -> Iterator[ValidationError]:
    """Tables of one flow share many values; a value that was accepted once under a key is not checked again."""
    fresh = {key: item for key, item in value.items() if (name, key, repr(item)) not in _ACCEPTED}
    errors = list(_validator(name).iter_errors(fresh))
    if not errors:
        _ACCEPTED.update((name, key, repr(item)) for key, item in fresh.items())
    yield from errors
    yield from _validator(f"{name} keys").iter_errors(value)


_ACCEPTED: set[tuple[str, str, str]] = set()


@cache
def _validator(name: str) -> Draft202012Validator:
    from jsonschema import Draft202012Validator

    match name:
        case "flow":
            return Draft202012Validator({key: value for key, value in flow_schema().items() if key != "$defs"})
        case "table keys":
            return Draft202012Validator(_require_only(["from", "to", "mode"]))
        case _ if name.endswith(" keys"):
            return Draft202012Validator(_require_only(_role_schema(name.removesuffix(" keys")).get("required", [])))
        case _ if name.startswith("stream of "):
            return Draft202012Validator(stream_schema(name.removeprefix("stream of ")))
        case "table" | "sql_source" | "stream_table" | "topic_table" | "polled_table":
            return Draft202012Validator(definition(name))
        case _ if ":" in name:
            properties = _role_schema(name).get("properties", {})
            # a target's modes are data, for a better message than an enum's: see `target_modes`
            return Draft202012Validator({"properties": {key: properties[key] for key in properties if key != "mode"}})
        case _:
            return Draft202012Validator(connector_schema(name))


def _require_only(keys: Sequence[str]) -> Schema:
    """A schema that only requires these keys; the examples are for the message."""
    known = definition("table")["properties"]
    return {"required": keys, "properties": {key: {"examples": known[key]["examples"]} for key in keys}}


def _role_schema(name: str) -> Schema:
    kind, _, which = name.partition(":")
    match kind:
        case "mode":
            schema: Schema = flow_schema()["$defs"]["modes"][which]
        case "stream_mode":  # the key is the source's own, and the times those of the commits
            schema = {key: value for key, value in flow_schema()["$defs"]["modes"][which].items() if key != "required"}
        case "sql_source" | "stream_table" | "topic_table" | "polled_table":
            schema = definition(kind)
        case _:
            schema = role(which, kind) or {}
    return schema


def _forbidden(schema: Any, path: str = "") -> Iterator[str]:
    if schema is False:
        yield path
    elif isinstance(schema, Mapping):
        for key, child in schema.get("properties", {}).items():
            yield from _forbidden(child, f"{path}.{key}" if path else key)


def _inline(schema: Any, definitions: Schema) -> Any:
    """Keys next to a ``$ref`` override its target; ``properties`` are merged. Resolving references while validating
    takes longer than everything else."""
    match schema:
        case {"$ref": str(reference), **siblings}:
            target = _inline(definitions[reference.removeprefix("#/$defs/")], definitions)
            own = _inline(siblings, definitions)
            united = {**target.get("properties", {}), **own.get("properties", {})}
            return {**target, **own, **({"properties": united} if united else {})}
        case dict():
            return {key: _inline(value, definitions) for key, value in schema.items()}
        case list():
            return [_inline(value, definitions) for value in schema]
        case _:
            return schema


def _folder() -> Path:
    """The wheel contains the schemas inside the package; in an editable install they are next to it."""
    package = Path(__file__).parent.parent
    installed = package / "_schemas"
    return installed if installed.is_dir() else package.parent / "schemas"
