"""A YAML document as a tree of values that keep their place in the file, from reading to the last check."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from flowctl.diagnostics import Mark

YamlScalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Node:
    """``mark`` is the place of the value, ``key_mark`` that of its key (None in lists and at the top).
    ``origin`` is the layer that an inherited value comes from: ``defaults`` or a pattern's id; empty for a value of
    the entry itself. Maps keep the order of the file; treat them as frozen."""

    value: YamlScalar | dict[str, Node] | list[Node]
    mark: Mark
    key_mark: Mark | None = None
    origin: str = ""

    @property
    def place(self) -> Mark:
        """Where an error about the whole entry points: its key, if it has one."""
        return self.key_mark or self.mark

    @property
    def entries(self) -> dict[str, Node]:
        """The map's entries; none if this is not a map."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> list[Node]:
        """The list's items; none if this is not a list."""
        return self.value if isinstance(self.value, list) else []

    @property
    def text(self) -> str:
        """The scalar as text; empty for maps, lists and null."""
        return "" if self.value is None or isinstance(self.value, dict | list) else scalar_text(self.value)

    def get(self, path: str) -> Node | None:
        """The node at a dotted path of keys, or None."""
        found: Node | None = self
        for key in path.split("."):
            found = found.entries.get(key) if found else None
        return found

    def at(self, path: list[str | int]) -> Node:
        """The deepest existing node along ``path``, as JSON Schema reports it."""
        found = self
        for step in path:
            match found.value:
                case dict() as entries if step in entries:
                    found = entries[str(step)]
                case list() as items if isinstance(step, int) and step < len(items):
                    found = items[step]
                case _:
                    break
        return found


def scalar_text(value: YamlScalar) -> str:
    """As YAML 1.2 writes it: ``true``, ``5``, ``text``."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)


def flow_text(value: Any) -> str:
    """Plain values as YAML's flow style writes them, on one line."""
    match value:
        case dict():
            return "{" + ", ".join(f"{flow_text(key)}: {flow_text(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(flow_text, value)) + "]"
        case str():
            is_plain = _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT
            if is_plain:
                return value
            if '"' in value and value.isprintable() and not set(value) & {"'", "\\"}:
                return f"'{value}'"
            return _UNPRINTABLE.sub(_escape, json.dumps(value, ensure_ascii=False))
        case _:
            return scalar_text(value)


#: Texts that need no quotes for any YAML reader, 1.1 or 1.2.
_PLAIN = re.compile(r"[A-Za-z_…][A-Za-z0-9_./-]*(:[A-Za-z_][A-Za-z0-9_./-]*)?")
_NOT_TEXT = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


#: What YAML does not allow in a document, or takes for a line break, and JSON leaves as it is.
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def plain(node: Node) -> Any:
    """The bare values: what JSON would contain."""
    match node.value:
        case dict() as entries:
            return {key: plain(child) for key, child in entries.items()}
        case list() as items:
            return [plain(child) for child in items]
        case value:
            return value


def leaves(node: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    """Every scalar and list below ``node`` with its dotted path; empty maps too."""
    if node.entries:
        for key, child in node.entries.items():
            yield from leaves(child, f"{path}.{key}" if path else key)
    else:
        yield path, node


def texts(node: Node) -> Iterator[Node]:
    """Every text below ``node``, in maps and lists alike, in no order."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        match found.value:
            case str():
                yield found
            case dict() as entries:
                waiting.extend(entries.values())
            case list() as items:
                waiting.extend(items)


def with_origin(node: Node, origin: str) -> Node:
    """The same tree, with every node inherited from ``origin``."""
    match node.value:
        case dict() as entries:
            value: Any = {key: with_origin(child, origin) for key, child in entries.items()}
        case list() as items:
            value = [with_origin(child, origin) for child in items]
        case value:
            pass
    return replace(node, value=value, origin=origin)


def without(node: Node, path: str) -> Node:
    """The same map without the key at a dotted path."""
    key, _, rest = path.partition(".")
    entries = dict(node.entries)
    if rest and key in entries:
        entries[key] = without(entries[key], rest)
    else:
        entries.pop(key, None)
    return replace(node, value=entries)
