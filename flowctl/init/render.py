"""Decisions as YAML. One line for each table and one comment above it, unless something is to be decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowctl.init.decision import Decision
from flowctl.init.names import object_reference
from flowctl.init.place import Place
from flowctl.model.table_info import ObjectName
from flowctl.spec.names import ObjectSyntax
from flowctl.spec.node import flow_text
from flowctl.spec.template import literal
from flowctl.text import paragraph

_WIDTH = 120
_DELETED = (
    "Rows that the source deletes stay with mode merge; deletes: {detect: missing_keys, every: 24h} removes them."
)


@dataclass(frozen=True)
class Outline:
    """What is written around the tables. ``syntax`` is how objects of the source are named; ``spark`` the engine's URL
    (empty: the default), and ``not_on_sail`` why it is not Sail; ``title`` the comment at the top, without secrets."""

    flow: str
    title: str
    source: Place
    target: Place
    syntax: ObjectSyntax
    spark: str = ""
    views: tuple[ObjectName, ...] = ()
    not_on_sail: str = ""


@dataclass(frozen=True)
class Draft:
    """``lines`` gives the first line of each table's entry, by id, in order; the first of the file is 1."""

    text: str
    lines: Mapping[str, int]


def render(outline: Outline, decisions: Sequence[Decision]) -> Draft:
    """The whole file. Tables that are left out are at the end, as comments."""
    moved = [one for one in decisions if not one.left_out]
    left_out = [one for one in decisions if one.left_out]
    lines = [*_head(outline, moved), "", "tables:" if moved else "tables: {}"]
    places = {}
    for one in moved:
        lines += _comment("", one.reason) if one.reason else []
        lines += [line for question in one.decide for line in _comment("decide: ", question)]
        places[one.id] = len(lines) + 1
        lines += _entry(outline, one)
    if left_out:
        lines += [
            "",
            *_comment("", "Left out; remove the # in front of an entry when what is said above it is solved."),
        ]
    for one in left_out:
        lines += _comment("", one.left_out)
        lines += [f"  # {line.removeprefix('  ')}" for line in _entry(outline, one)]
    if outline.views:
        names = ", ".join(_plain(object_reference(view)) for view in outline.views)
        lines += ["", *_comment("decide: ", f"views are read only if named; there are: {names}")]
    return Draft("\n".join(lines) + "\n", places)


def _head(outline: Outline, moved: Sequence[Decision]) -> list[str]:
    lines = [f"# {_plain(outline.title)}", "version: 1", f"flow: {flow_text(outline.flow)}"]
    if any(one.mode == "merge" for one in moved):
        lines.insert(1, f"# {_DELETED}")
    lines.append("state: state  # positions, run history; keep it")
    if outline.spark:
        lines.append(f"spark: {{url: {flow_text(outline.spark)}}}  # no Java needed; without this line, Apache Spark")
    elif outline.not_on_sail:
        lines.append(f"# Apache Spark: {_plain(outline.not_on_sail)}")
    lines += ["", "connections:"]
    for place in (outline.source, outline.target):
        lines.append(f"  {flow_text(place.name)}: {flow_text({'type': place.type, **place.options})}")
    if moved:
        lines += ["", f"defaults: {flow_text({'to': outline.target.name})}"]
    return lines


def _entry(outline: Outline, one: Decision) -> list[str]:
    table: dict[str, Any] = {"from": _source(outline, one.object), "mode": one.mode}
    if one.key:
        table["key"] = list(map(literal, one.key))
    if one.cursor:
        table["cursor"] = {"column": literal(one.cursor), **({"nulls": "always"} if one.reads_nulls else {})}
    if one.format:
        table["format"] = dict(one.format)
    columns: dict[str, Any] = {}
    if one.exclude:
        columns["exclude"] = list(map(literal, one.exclude))
    if one.rename:
        columns["rename"] = {name: literal(new) for name, new in one.rename.items()}
    if one.as_text:
        columns["types"] = dict.fromkeys(one.as_text, "string")
    if columns:
        table["columns"] = columns
    return _lines(one.id, table, "  ")


def _lines(key: str, value: Any, indent: str) -> list[str]:
    """On one line, or with a line for each key if that would be too long."""
    line = f"{indent}{flow_text(key)}: {flow_text(value)}"
    if len(line) <= _WIDTH or not isinstance(value, dict):
        return [line]
    inside = [one for name, item in value.items() for one in _lines(name, item, indent + "  ")]
    return [f"{indent}{flow_text(key)}:", *inside]


def _source(outline: Outline, object: ObjectName) -> Any:
    name = outline.source.name
    if outline.syntax == "dotted":
        return f"{name}:{literal(object_reference(object))}"
    path = "/".join(object.parts)
    if path.strip() != path:
        return {"connection": name, "path": literal(path)}
    return f"{name}:{literal(path)}"


def _comment(label: str, text: str) -> list[str]:
    indent = len(label)
    return [f"  # {label if at == 0 else ' ' * indent}{line}" for at, line in enumerate(_wrapped(label, text))]


def _wrapped(label: str, text: str) -> list[str]:
    return paragraph(_plain(text), _WIDTH - 4 - len(label))


def _plain(text: str) -> str:
    """On one line: names may have line breaks, which would end the comment."""
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)
