"""`docs/spec-reference.md`, made of the schemas: ``python -m flowctl.spec.reference > docs/spec-reference.md``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flowctl.spec.node import flow_text
from flowctl.spec.schema import connector_schema, connector_types, definition, flow_schema, modes_with, role

_TABLE_HEAD = ("| key | what | default |", "|---|---|---|")

_EXPRESSIONS = (
    "",
    "## Expressions and limits",
    "",
    "A value may hold Jinja2 expressions, `{{ … }}`, over `vars` and, in `from.sql`, `ref('id')`. Statements (`{% %}`)",
    "are not supported, and filters and methods of texts are a closed set (`upper`, `lower`, `replace`, `join`,",
    "`split`, `default`, `int`, `format`, `round` and their like). A large result is an error.",
    "",
    "`validate` is safe to run on specs of strangers: it opens nothing, and each file may have 4 MiB, 200,000 values",
    "(those that aliases repeat included) and 50 levels.",
)


def reference() -> str:
    """The whole page as Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    flow = flow_schema()
    yield "# Spec reference"
    yield ""
    yield "Made of the JSON Schemas in `schemas/` by `python -m flowctl.spec.reference`; change them, not this page."
    yield "A key marked * is required."
    yield from _section("The file", flow["description"], flow)
    yield from _EXPRESSIONS
    yield from _section("storage entries", "One entry per URL prefix.", definition("storage"))
    yield from _section("Tables", flow["properties"]["tables"]["description"], definition("table"), modes=True)
    yield from _section("Expectations", "One entry of `expect`: one check each.", definition("expectation"))
    for type in connector_types():
        schema = connector_schema(type)
        yield from _section(f"Connections of type `{type}`", schema["description"], schema)
        yield from _roles(type)
    yield from _later(flow)


def _section(title: str, text: str, schema: Mapping[str, Any], *, modes: bool = False) -> Iterator[str]:
    yield from ("", f"## {title}", "", text, "", *_TABLE_HEAD)
    for path, child, required in _keys(schema):
        what = child.get("description", "")
        if "enum" in child:
            what += f" One of {', '.join(f'`{flow_text(value)}`' for value in child['enum'])}."
        elif expected := child.get("x-expected"):
            what += f" {expected}."
        if modes and (able := modes_with(path)) != modes_with(path.rpartition(".")[0]):
            what += f" Mode {', '.join(able)} only."
        default = f"`{flow_text(child['default'])}`" if "default" in child else ""
        yield f"| `{path}`{'*' if required else ''} | {_cell(what)} | {_cell(default)} |"


def _keys(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """Every key with its dotted path, its schema and whether it must be there."""
    for key, child in schema.get("properties", {}).items():
        if not isinstance(child, Mapping) or "not" in child:
            continue
        here = f"{path}.{key}" if path else key
        yield here, child, key in schema.get("required", ())
        if here != "defaults":
            yield from _keys(child if "properties" in child else child.get("then", {}), here)


def _roles(type: str) -> Iterator[str]:
    source, target = role(type, "source"), role(type, "target")
    modes = ", ".join(target["properties"]["mode"]["enum"]) if target else ""
    yield ""
    yield "As a source: " + ("yes." if source is not None else "not in this version.")
    yield "As a target: " + (f"modes {modes}." if target else "not in this version.")


def _later(flow: Mapping[str, Any]) -> Iterator[str]:
    words = sorted({*flow["x-later"], *definition("table")["x-later"], *definition("from")["then"]["x-later"]})
    yield from ("", "## Not in this version", "", "Known words that answer so, with exit code 3.", "")
    yield f"- keys: {', '.join(f'`{word}`' for word in words)}"
    yield f"- connection types: {', '.join(f'`{type}`' for type in flow['x-later-types'])}"


def _cell(text: str) -> str:
    return text.strip().replace("|", "\\|")


if __name__ == "__main__":
    print(reference(), end="")
