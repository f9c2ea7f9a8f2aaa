"""A connection given as one text, by ``--connection`` or in an environment variable, as an entry of ``connections``.

The text is a URL, as ``x-url`` in the connector's schema describes it, or a map in YAML's flow style (JSON is one). It
may contain secrets: they are masked here, and no error repeats any part of the text but names of keys and types.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache

from flowctl.diagnostics import Diagnostic, Mark
from flowctl.spec.document import parse_document
from flowctl.spec.findings import Findings
from flowctl.spec.messages import LATER_HINT
from flowctl.spec.node import Node, leaves
from flowctl.spec.schema import connector_schema, connector_types, later_types
from flowctl.spec.secrets import has_unclear_password, mask, mask_passwords, names_a_secret
from flowctl.spec.suggest import nearest

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?")
_KEY = re.compile(r"[\w.-]{1,100}")
_UNCLEAR_PASSWORD = "the password contains one of / ? #"


def read_given(text: str, mark: Mark, findings: Findings) -> Node:
    """The entry, each of whose values is at ``mark``. With an error, reported here, it is an empty map: later passes
    report nothing at the same mark."""
    text = text.strip()
    before = len(findings.diagnostics)
    if not text:
        findings.error(mark, "the connection is empty", f"Write {_forms()}, or remove it", "given-connection")
        entry = None
    elif text.startswith("{"):
        entry = _read_map(text, mark, findings)
    else:
        entry = _read_url(text, mark, findings)
    if entry is None or len(findings.diagnostics) > before:
        return Node({}, mark, mark)
    return entry


def hide_values(diagnostics: Iterable[Diagnostic], entry: Node) -> Iterator[Diagnostic]:
    """``diagnostics`` about a given ``entry`` without its values: any of them may be a secret in the wrong place."""
    values = [leaf for _, leaf in leaves(entry) if leaf.text]
    for found in diagnostics:
        message = found.message
        for leaf in values:  # in messages, quotes are around texts only
            shown = f"'{leaf.text}'" if isinstance(leaf.value, str) else leaf.text
            message = re.sub(rf"(?<= ){re.escape(shown)}(?=[ ,]|$)", "this value", message)
        yield replace(found, message=message)


def _read_url(text: str, mark: Mark, findings: Findings) -> Node | None:
    scheme = _SCHEME.match(text)
    type = _types_by_scheme().get(scheme[1]) if scheme else None
    if scheme is None or type is None:
        findings.error(mark, *_unknown_scheme(scheme))
        return None
    form = connector_schema(type)["x-url"]
    value = text if "schemes" in form else text[scheme.end() :]
    return Node({"type": Node(type, mark), form["key"]: _hide(value, mark, findings)}, mark, mark)


def _unknown_scheme(scheme: re.Match[str] | None) -> tuple[str, str, str]:
    """Without ``//``, what is before the colon may be anything."""
    if scheme is None or scheme[2] is None:
        return "the connection is no URL", f"Write {_forms()}", "given-connection"
    if scheme[1] in later_types():
        return f"connections of type {scheme[1]} are not in this version", LATER_HINT, "not-in-this-version"
    hint = nearest(scheme[1], _types_by_scheme(), f"Write {_forms()}")
    return f"no connection type has URLs with {scheme[1]}://", hint, "unknown-connection-type"


def _read_map(text: str, mark: Mark, findings: Findings) -> Node | None:
    root, diagnostics = parse_document(text, mark.file)
    keys = list(_keys(root)) if root is not None else []
    if root is None or diagnostics or not root.entries or not all(map(_KEY.fullmatch, keys)):
        what = "the connection cannot be read as a map"
        hint = "Write {type: …, …} in YAML or JSON: a blank after each colon, values with special characters in quotes"
        findings.error(mark, what, hint, "given-connection")
        return None
    written = root.entries.get("type")
    type = written.text if written is not None else ""
    properties = connector_schema(type)["properties"] if type in connector_types() else {}

    def read(node: Node, path: str) -> Node:
        if node.entries:
            entries = {key: read(child, f"{path}.{key}" if path else key) for key, child in node.entries.items()}
            return Node(entries, mark, mark)
        if names_a_secret(path, properties) and node.value is not None and not isinstance(node.value, dict | list):
            if isinstance(node.value, str):
                return Node(mask(node.value), mark, mark)
            findings.error(mark, f"`{path}` of the connection is not text", "Put it in quotes", "wrong-type")
        return _hide(node.value, mark, findings) if isinstance(node.value, str) else replace(node, mark=mark)

    return read(root, "")


def _keys(node: Node) -> Iterator[str]:
    for key, child in node.entries.items():
        yield key
        yield from _keys(child)


def _hide(text: str, mark: Mark, findings: Findings) -> Node:
    if has_unclear_password(text):
        hint = "Write %2F, %3F or %23 for the character itself"
        findings.error(mark, f"the URL of the connection cannot be read: {_UNCLEAR_PASSWORD}", hint, "bad-url")
    return Node(mask_passwords(text), mark, mark)


@cache
def _types_by_scheme() -> dict[str, str]:
    """Each type is a scheme of its own; some have further ones."""
    further = {type: connector_schema(type)["x-url"].get("schemes", ()) for type in connector_types()}
    return {scheme: type for type, schemes in further.items() for scheme in (type, *schemes)}


def _forms() -> str:
    examples = [connector_schema(type)["x-url"]["example"] for type in connector_types()]
    return f"a URL such as {', '.join(examples)}, or {{type: …, …}}"
