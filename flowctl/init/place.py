"""The source and the target as the command line names them: a URL, or a path."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from flowctl.connectors import registry
from flowctl.diagnostics import Mark
from flowctl.errors import UsageError
from flowctl.init.names import plain_name
from flowctl.spec import build
from flowctl.spec.findings import Findings
from flowctl.spec.given import read_given
from flowctl.spec.node import Node, plain
from flowctl.spec.schema import connector_schema
from flowctl.spec.secret_text import InlineSecret
from flowctl.spec.secrets import Masked, secret_references
from flowctl.spec.spec import Connection
from flowctl.spec.template import literal
from flowctl.storage.stores import by_scheme

Role = Literal["source", "target"]

#: What a folder, or the URL of one in an object store, means.
_FOLDER: Mapping[Role, str] = {"source": "files", "target": "delta"}


@dataclass(frozen=True)
class Place:
    """``options`` are the connection's keys, as a spec writes them: each secret is a reference to the environment
    variable that ``variables`` lists. ``given`` is the text with secrets, for ``--connection``; empty if there are
    none. ``connection`` can be opened now."""

    name: str
    type: str
    options: Mapping[str, Any]
    connection: Connection
    variables: tuple[str, ...] = ()
    given: str = ""


def place_of(text: str, role: Role, folder: Path, taken: str = "") -> Place:
    """``text`` as a connection of a spec in ``folder``, under another name than ``taken``. Raises :class:`UsageError`;
    no part of ``text`` that may be a secret is repeated."""
    mark, findings = Mark("source" if role == "source" else "--to", 0), Findings()
    if not text.strip():
        raise UsageError(f"{mark}: it is empty", hint=_HINTS[role])
    entry = read_given(_as_url(text, role), mark, findings)
    if findings.diagnostics:
        found = findings.sorted[0]
        raise UsageError(f"{mark}: {found.message}", hint=found.hint)
    type = entry.entries["type"].text
    capabilities = registry.capabilities(type)
    if (capabilities.source if role == "source" else capabilities.target) is None:
        raise UsageError(f"{mark}: connections of type {type} cannot be a {role} in this version", hint=_HINTS[role])
    if role == "source" and capabilities.source is not None and capabilities.source.position == "offsets":
        raise UsageError(f"{mark}: `init` does not describe connections of type {type}", hint=_HINTS[role])
    entry = _from_folder(entry, type, folder)
    name = _name(entry, type)
    name = f"{name}_{role}" if name.lower() == taken.lower() else name
    options, variables = _without_secrets(entry, name)
    return Place(
        name=name,
        type=type,
        options=options,
        connection=build.connection(name, entry, "option"),
        variables=tuple(variables),
        given=text if variables else "",
    )


_HINTS: Mapping[Role, str] = {
    "source": "Give the URL of a database, a database file, or a folder of files",
    "target": "Give a folder for Delta tables, or the URL of a database",
}


def _as_url(text: str, role: Role) -> str:
    """A path as the URL of what is there, or of what a target creates there."""
    scheme, separator, _ = text.partition("://")
    if separator and scheme in by_scheme():
        return f"{_FOLDER[role]}:{text}"
    if separator or text.lstrip().startswith("{") or _names_a_type(text):
        return text
    path = Path(text)
    kinds = [
        type
        for type, one in registry.all_capabilities().items()
        if (one.source if role == "source" else one.target) is not None and one.recognizes(path)
    ]
    if role == "target":
        return f"{_kind_of_target(text, kinds) if not path.is_dir() else _FOLDER[role]}:{text}"
    if not path.exists():
        named = "the source" if "@" in text else text  # it may be a URL with a password that lacks its //
        raise UsageError(f"{named}: there is no such file or folder", hint="Correct the path, or give a URL")
    if not kinds:
        command = shlex.join(["flowctl", "init", str(path.parent), "--select", path.name])
        hint = f"Give the folder of a file that holds rows, as CSV does: {command}"
        raise UsageError(f"{text} is not a database file", hint=hint)
    if len(kinds) > 1:
        raise UsageError(f"{text} is read by {' and '.join(kinds)}", hint=f"Write {kinds[0]}:{text}")
    return f"{kinds[0]}:{text}"


def _kind_of_target(text: str, kinds: Sequence[str]) -> str:
    """Of what is no folder yet: ``kinds`` are those of an existing file. A suffix of databases is not one of a folder's
    name, unless a slash follows."""
    if kinds:
        return kinds[0]
    path, every = Path(text), registry.all_capabilities()
    named = [type for type, one in every.items() if path.suffix.lower() in one.suffixes and not text.endswith("/")]
    if len(named) == 1:
        return named[0]
    if named:
        given, file = ("the target", "FILE") if "@" in text else (text, text)  # as of a source
        ways = " or ".join(f"{type}:{file}" for type in named)
        raise UsageError(f"{given} may be a file of {' or of '.join(named)}", hint=f"Write {ways}")
    if path.exists():
        raise UsageError(f"{text} is a file, but no database", hint=_HINTS["target"])
    return _FOLDER["target"]


def _names_a_type(text: str) -> bool:
    return text.partition(":")[0] in registry.all_capabilities() and ":" in text


def _from_folder(entry: Node, type: str, folder: Path) -> Node:
    """A relative local path starts from the current folder on the command line, and from the spec's in a spec."""
    key = connector_schema(type)["x-url"]["key"]
    node = entry.entries.get(key)
    if key != "path" or node is None or isinstance(node.value, Masked) or not isinstance(node.value, str):
        return entry
    if "://" in node.value or Path(node.value).is_absolute() or secret_references(node.value):
        return entry
    path = os.path.relpath(Path(node.value).absolute(), folder.absolute())
    return replace(entry, value={**entry.entries, key: replace(node, value=path)})


def _name(entry: Node, type: str) -> str:
    """After the database, the file or the folder."""
    options = {key: node.text for key, node in entry.entries.items() if key != "type"}
    value = options.get("database") or options.get(connector_schema(type)["x-url"]["key"], "")
    path = re.split(r"[?#]", value, maxsplit=1)[0] if "://" in value else value
    if path in ("", "."):
        path = Path.cwd().name
    if "://" in path and "/" not in path.partition("://")[2].rstrip("/") and "database" not in options:
        path = path if path.partition("://")[0] in by_scheme() else ""
    return plain_name(Path(path.rstrip("/")).name.partition(".")[0], type)


def _without_secrets(entry: Node, name: str) -> tuple[dict[str, Any], list[str]]:
    variables: list[str] = []

    def text(node: Node) -> str:
        value = node.value
        if not isinstance(value, Masked):
            return node.text if secret_references(node.text) else literal(node.text)
        written = ""
        for part in value.hidden.parts:
            if isinstance(part, InlineSecret):
                number = f"_{len(variables) + 1}" if variables else ""
                variables.append(f"{re.sub(r'[^A-Z0-9]', '_', name.upper())}_PASSWORD{number}")
                written += f"${{secret:env:{variables[-1]}}}"
            else:
                written += str(part)
        return written

    def option(node: Node) -> Any:
        if node.entries:
            return {key: option(child) for key, child in node.entries.items()}
        return text(node) if isinstance(node.value, str) else plain(node)

    return {key: option(node) for key, node in entry.entries.items() if key != "type"}, variables
