"""Finds the definition of each connection: by ``--connection``, in ``FLOWCTL_CONN_NAME``, in the spec, in the user's
``connections.yaml``. The first that defines it applies as a whole: keys are never merged."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from flowctl.diagnostics import Mark
from flowctl.spec.document import read_document
from flowctl.spec.findings import Findings
from flowctl.spec.given import read_given
from flowctl.spec.names import split_reference
from flowctl.spec.node import Node, YamlScalar, flow_text, plain, texts
from flowctl.spec.schema import definition
from flowctl.spec.secrets import Masked
from flowctl.spec.spec import Origin
from flowctl.spec.suggest import did_you_mean
from flowctl.spec.template import render


@dataclass(frozen=True)
class Lookup:
    """``root`` is the spec's, with all connections that it lists or uses, as far as they are defined. ``given`` are
    those of the command line, as text with secrets hidden."""

    root: Node
    origins: Mapping[str, Origin]
    given: Mapping[str, str]


def variable_of(name: str) -> str:
    """The environment variable that defines the connection ``name``."""
    return "FLOWCTL_CONN_" + re.sub(r"[^A-Z0-9]", "_", name.upper())


def find_connections(
    root: Node, options: Mapping[str, str], variables: Mapping[str, YamlScalar], findings: Findings
) -> Lookup:
    """``root`` with ``{{ }}`` filled in, ``options`` the texts of ``--connection`` by name. ``variables`` fill the
    user's file, and nothing that the command line or the environment gives."""
    written = root.get("connections") or Node({}, root.mark)
    if not isinstance(written.value, dict):
        return Lookup(root, {}, {})
    used = _used_names(root)
    names = dict.fromkeys([*written.entries, *used])
    found: dict[str, tuple[Origin, Node]] = {name: ("spec", node) for name, node in written.entries.items()}
    given = {}
    for name, variable in _set_variables(names, findings).items():
        found[name] = ("variable", read_given(os.environ[variable], Mark(variable, 0), findings))
    for name, text in options.items():
        mark = Mark(f"--connection {name}=…", 0)
        if name in names:
            entry = read_given(text, mark, findings)
            found[name] = ("option", entry)
            given[name] = _shown(text, entry)
        else:
            hint = did_you_mean(name, names, "Name one that the spec lists or a table uses: ")
            findings.error(mark, f"the spec has no connection `{name}`", hint, "unknown-connection")
    if missing := [name for name in names if name not in found]:
        own = _read_user_file(missing, findings)
        filled = render(Node({"connections": own}, root.mark), variables, findings).entries["connections"]
        found |= {name: ("user_file", node) for name, node in filled.entries.items()}
    entries = {name: found[name][1] for name in names if name in found}
    effective = {**root.entries, "connections": replace(written, value=entries)}
    return Lookup(replace(root, value=effective), {name: origin for name, (origin, _) in found.items()}, given)


def _shown(text: str, entry: Node) -> str:
    """``text`` as it was written, if there is no secret in it."""
    return flow_text(plain(entry)) if any(isinstance(node.value, Masked) for node in texts(entry)) else text


def _used_names(root: Node) -> Iterator[str]:
    """The connections that tables and streams name. Streams, which tables name in the same way, are none."""
    sections = {key: node.entries for key, node in root.entries.items()}
    streams = sections.get("streams", {})
    tables = [*sections.get("tables", {}).values(), *([root.entries["defaults"]] if "defaults" in sections else [])]
    named = [table.get(key) for table in tables for key in ("from", "to", "dead_letters.to")]
    named += [stream.get(key) for stream in streams.values() for key in ("from", "snapshot.from")]
    pattern = definition("connection_name")["pattern"]
    for node in named:
        name, _ = split_reference((node.get("connection") or node).text if node else "")
        if re.search(pattern, name) and name not in streams:
            yield name


def _set_variables(names: Iterable[str], findings: Findings) -> Mapping[str, str]:
    """Connection to its variable, for those that are set."""
    by_variable: dict[str, list[str]] = {}
    for name in names:
        by_variable.setdefault(variable_of(name), []).append(name)
    found = {}
    for variable, sharing in by_variable.items():
        if variable not in os.environ:
            continue
        if len(sharing) > 1:
            what = f"{variable} means {' and '.join(f'`{name}`' for name in sharing)}"
            hint = "Rename one of these connections, or use --connection instead of the variable"
            findings.error(Mark(variable, 0), what, hint, "ambiguous-variable")
        else:
            found[sharing[0]] = variable
    return found


def _read_user_file(missing: Iterable[str], findings: Findings) -> Node:
    """The entries of the ``missing`` connections; others are not looked at. A file with errors defines all of them, at
    the place of an error: that one of them is missing would be a consequence."""
    before = len(findings.diagnostics)
    path, is_named = _user_file()
    mark = Mark(_shown_path(path), 1)
    if not is_named and not os.path.exists(path):  # noqa: PTH110 - false, no error, if the folder cannot be searched
        return Node({}, mark)
    root, diagnostics = read_document(path, mark.file)
    for found in diagnostics:
        if is_named and found.code == "unreadable-file":
            findings.extend([replace(found, hint="Check the path in FLOWCTL_CONNECTIONS")])
        elif found.code != "empty-file":
            findings.extend([found])
    if root is not None:
        _check_user_file(root, findings)
    if len(findings.diagnostics) > before:
        place = findings.diagnostics[before].mark or mark
        return Node({name: Node({}, place, place) for name in missing}, mark)
    entries = root.entries["connections"].entries if root is not None else {}
    return Node({name: entries[name] for name in missing if name in entries}, mark)


def _check_user_file(root: Node, findings: Findings) -> None:
    written = root.entries.get("connections")
    is_map = written is None or written.value is None or isinstance(written.value, dict)
    if not root.entries or not is_map:
        what = "the file has no map `connections`"
        findings.error(root, what, "Put the connections below `connections:`, as in a spec", "missing-key")
    for key, node in root.entries.items():
        if key != "connections":
            hint = "Remove it, or put it below `connections:`"
            findings.error(node.place, f"`{key}` is not allowed in a connections.yaml", hint, "user-file-key")


def _user_file() -> tuple[Path, bool]:
    """The file, and whether it is named by the user, so that it must exist."""
    if named := os.environ.get("FLOWCTL_CONNECTIONS"):
        return Path(named), True
    base = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(base) if Path(base).is_absolute() else Path("~/.config")  # as the XDG specification has it
    return Path(os.path.expanduser(folder / "flowctl" / "connections.yaml")), False  # noqa: PTH111 - never fails


def _shown_path(path: Path) -> str:
    home = os.path.expanduser("~")  # noqa: PTH111
    return f"~/{path.relative_to(home)}" if home != "~" and path.is_relative_to(home) else str(path)
