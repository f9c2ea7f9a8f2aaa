"""JSON Schema errors as messages: what is wrong, what to write instead, and the place in the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from flowctl.diagnostics import Diagnostic
from flowctl.redaction import without_passwords
from flowctl.spec.node import Node, flow_text, scalar_text
from flowctl.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from jsonschema import ValidationError

LATER_HINT = "Remove it; it comes with a later version"
_KINDS = {
    "object": "a map",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}
_EXAMPLES = {
    "object": "Write `key: value` pairs below it",
    "array": "Put it in brackets, as in [a, b]",
    "string": "Put it in quotes",
    "integer": "Write digits without quotes",
    "boolean": "Write true or false without quotes",
}


def diagnose(error: ValidationError, root: Node, label: str = "", using: str = "") -> Iterator[Diagnostic]:
    """``error`` occurred in the plain values of ``root``; ``label`` names ``root`` in messages, ``using`` is the
    condition under which the schema applies (``with mode merge``). One JSON Schema error may become several findings:
    it lists all unknown keys of a map at once."""
    path = list(error.absolute_path)
    node = root.at(path)
    name = _name(label, path)
    schema = error.schema if isinstance(error.schema, dict) else {}
    if "x-message" in schema:
        yield Diagnostic(schema["x-message"], schema.get("x-hint", ""), node.place, "not-together")
        return
    match error.validator:
        case "additionalProperties":
            yield from _unknown_keys(node, schema, name)
        case "required" | "dependentRequired":
            yield from _missing(error, node, schema, name, using)
        case _ if "propertyNames" in error.absolute_schema_path:
            yield _bad_name(error, node, schema)
        case "enum" | "const":
            yield _unknown_value(error, node, schema, name, using)
        case "type":
            yield _wrong_type(error, node, schema, name)
        case "pattern":
            yield _wrong_form(error, node, schema, name)
        case _:
            message, hint = _limit(error, name)
            yield Diagnostic(message, hint, node.mark, "out-of-range")


def _unknown_keys(node: Node, schema: dict[str, Any], name: str) -> Iterator[Diagnostic]:
    known = schema.get("properties", {})
    usable = [option for option, child in known.items() if not (isinstance(child, dict) and "not" in child)]
    for key, child in node.entries.items():
        if key in known:
            continue
        if key in schema.get("x-later", ()):
            yield Diagnostic(f"`{key}` is not in this version", LATER_HINT, child.place, "not-in-this-version")
        else:
            where = f" in {name}" if name else ""
            hint = did_you_mean(key, usable, "There are: ")
            yield Diagnostic(f"unknown key `{without_passwords(key)}`{where}", hint, child.place, "unknown-key")


def _missing(error: ValidationError, node: Node, schema: dict[str, Any], name: str, using: str) -> Iterator[Diagnostic]:
    """jsonschema reports each missing key as an error of its own, and names the key in the message only."""
    key = error.message.split("'")[1]
    examples = schema.get("properties", {}).get(key, {}).get("examples", ["…"])
    what = f"{name or 'the spec'} has no `{key}`" + (f", needed {using}" if using else "")
    yield Diagnostic(what, f"Add `{key}: {flow_text(examples[0])}`", node.place, "missing-key")


def _bad_name(error: ValidationError, node: Node, schema: dict[str, Any]) -> Diagnostic:
    written = str(error.instance)
    what = f"`{without_passwords(written)}` is not a valid {schema.get('title', 'name')}"
    return Diagnostic(what, schema.get("x-expected", ""), node.entries[written].place, "bad-name")


def _unknown_value(error: ValidationError, node: Node, schema: dict[str, Any], name: str, using: str) -> Diagnostic:
    allowed = [scalar_text(value) for value in schema.get("enum", [schema.get("const")])]
    hint = did_you_mean(_text(error.instance), allowed, "Use one of: " if len(allowed) > 1 else "Write ")
    if expected := schema.get("x-expected"):  # the value may be one of the intended map
        written = flow_text(error.instance) if isinstance(error.instance, str) and error.instance else "…"
        written = without_passwords(written)
        hint = expected.replace("{value}", written)
    what = f"{name} cannot be {_show(error.instance)}" + (f" {using}" if using else "")
    return Diagnostic(what, hint, node.mark, "unknown-value")


def _wrong_type(error: ValidationError, node: Node, schema: dict[str, Any], name: str) -> Diagnostic:
    limit: Any = error.validator_value
    expected: list[str] = limit if isinstance(limit, list) else [limit]
    kinds = " or ".join(_KINDS[kind] for kind in expected)
    hint = schema.get("x-expected") or _EXAMPLES.get(expected[0], "")
    if node.value is None:
        hint = f"Write a value, or remove the key. {hint}"
    shown = "a plain value" if schema.get("writeOnly") else _show(error.instance)
    return Diagnostic(f"{name or 'the spec'} is {shown}, not {kinds}", hint, node.mark, "wrong-type")


def _wrong_form(error: ValidationError, node: Node, schema: dict[str, Any], name: str) -> Diagnostic:
    written = str(error.instance)
    if written in schema.get("x-later", ()):
        return Diagnostic(f"{name}: {written} is not in this version", LATER_HINT, node.mark, "not-in-this-version")
    may_be_secret = schema.get("writeOnly") or any(sign in written for sign in ("@", "://"))
    shown = "this" if may_be_secret else _show(written)
    what = f"{name}: {shown} is not a valid {schema.get('title', 'value')}"
    return Diagnostic(what, schema.get("x-expected", ""), node.mark, "wrong-form")


def _limit(error: ValidationError, name: str) -> tuple[str, str]:
    limit: Any = error.validator_value
    match error.validator:
        case "minimum":
            return f"{name} is less than {limit}", f"Write {limit} or more"
        case "maximum":
            return f"{name} is greater than {limit}", f"Write {limit} or less"
        case "minLength" | "minItems" | "minProperties" if limit == 1:
            return f"{name} is empty", "Write a value, or remove the key"
        case "minItems" | "maxItems":
            return (
                f"{name} has {len(cast(list[Any], error.instance))} entries, not {limit}",
                f"Write {limit}, as in [low, high]",
            )
        case "maxLength":
            return f"{name} is longer than {limit}", f"Write {limit} character"
        case "uniqueItems":
            return f"{name} names something twice", "Remove one of them"
        case _:
            return f"{name}: {error.message}", "See `flowctl schema`"


def _name(label: str, path: Sequence[str | int]) -> str:
    dotted = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    whole = ".".join(filter(None, (label, dotted)))
    return f"`{whole}`" if whole else ""


def _text(value: Any) -> str:
    return scalar_text(value) if not isinstance(value, dict | list) else ""


def _show(value: Any) -> str:
    match value:
        case dict():
            return "a map"
        case list():
            return "a list"
        case str():
            return f"'{without_passwords(value)}'"  # in the wrong place, a URL may have one in plain text
        case _:
            return scalar_text(value)
