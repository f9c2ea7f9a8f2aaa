"""One self-contained JSON Schema for editors, composed of the envelope and all connection types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowctl.spec.schema import connector_schema, connector_types, envelope

_TEMPLATE = {"type": "string", "pattern": r"\{\{", "description": "A value made from vars."}


def editor_schema() -> dict[str, Any]:
    """The envelope, with each connection described by its ``type`` and each table by its ``mode``.

    An editor sees one entry at a time, as it is written: no key of a table is required, because it may be inherited;
    null, which removes an inherited value, is allowed for each key; and a value with ``{{ }}`` may replace any other.
    """
    document = dict(envelope())
    definitions = dict(document["$defs"])
    modes = definitions.pop("modes")
    for role_name in ("stream_table", "topic_table", "polled_table"):  # an editor does not see what `from` names
        definitions.pop(role_name)
    stream = definitions.pop("stream")
    for type in connector_types():
        own = connector_schema(type)["$defs"].get("stream", {})
        stream = {**stream, "properties": {**stream["properties"], **own.get("properties", {})}}
    definitions["stream"] = stream
    definitions |= {f"connection_{type}": _fragment(type) for type in connector_types()}
    definitions |= {f"mode_{mode}": {"properties": definition["properties"]} for mode, definition in modes.items()}
    definitions["table"] = {
        **_allow_null(definitions["table"]),
        "allOf": [_when("mode", mode, f"mode_{mode}") for mode in modes],
    }
    connections = document["properties"]["connections"]
    entry = {
        **connections["additionalProperties"],
        "properties": {"type": {"enum": list(connector_types()), "description": "Which kind of system this is."}},
        "allOf": [_when("type", type, f"connection_{type}") for type in connector_types()],
    }
    tables = {**document["properties"]["tables"], "additionalProperties": {"$ref": "#/$defs/table"}}
    properties = {
        **document["properties"],
        "connections": {**connections, "additionalProperties": entry},
        "streams": {**document["properties"]["streams"], "additionalProperties": {"$ref": "#/$defs/stream"}},
        "tables": tables,
    }
    whole = _allow_templates({**document, "properties": properties, "$defs": definitions})
    return {**whole, "$defs": {**whole["$defs"], "template": _TEMPLATE}}


def _fragment(type: str) -> dict[str, Any]:
    return {key: value for key, value in connector_schema(type).items() if key not in ("$schema", "$id", "$defs")}


def _allow_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The same map, with null allowed for each key at every depth."""
    properties = {
        key: {"anyOf": [_allow_null(child) if "properties" in child else child, {"type": "null"}]}
        for key, child in schema["properties"].items()
    }
    described = {key: {**_annotations(schema["properties"][key]), **child} for key, child in properties.items()}
    return {**schema, "properties": described}


def _allow_templates(schema: Any) -> Any:
    """The same schema, with a template allowed wherever a value is restricted to a type, a pattern or an enum."""
    if not isinstance(schema, Mapping):
        return schema
    filled = {keyword: _allow_templates_in(keyword, value) for keyword, value in schema.items()}
    if not filled.keys() & {"pattern", "enum"} and filled.get("type") not in ("integer", "number", "boolean"):
        return filled
    shown = _annotations(filled)
    kind = {keyword: value for keyword, value in filled.items() if keyword not in shown}
    return {**shown, "anyOf": [kind, {"$ref": "#/$defs/template"}]}


def _allow_templates_in(keyword: str, value: Any) -> Any:
    match keyword:
        case "properties" | "patternProperties" | "$defs":
            return {name: _allow_templates(child) for name, child in value.items()}
        case "additionalProperties" | "items" | "then":
            return _allow_templates(value)
        case "anyOf" | "allOf":
            return [_allow_templates(child) for child in value]
        case _:
            return value


def _annotations(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords that editors display; they look for them outside `anyOf`."""
    return {key: schema[key] for key in ("description", "default") if key in schema}


def _when(key: str, value: str, definition: str) -> dict[str, Any]:
    condition = {"properties": {key: {"const": value}}, "required": [key]}
    return {"if": condition, "then": {"$ref": f"#/$defs/{definition}"}}
