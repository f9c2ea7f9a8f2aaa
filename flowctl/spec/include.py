"""Gathers one flow from its files: the first may contain everything, included ones only connections and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from flowctl.spec import limits
from flowctl.spec.document import read_document
from flowctl.spec.findings import Findings
from flowctl.spec.node import Node

_SHARED = ("connections", "streams", "tables")


def gather(paths: Sequence[Path], findings: Findings) -> Node | None:
    """The root of ``paths[0]`` with the connections and tables of its includes, then of further paths, in that order.
    None if the first file cannot be read as a map."""
    root = _read(paths[0], findings)
    if root is None:
        return None
    size = _size(paths[0])
    for path in [*_list_files(root, paths[0], findings), *paths[1:]]:
        size += _size(path)
        if size > limits.FLOW_SIZE:
            what = f"the files of this flow have more than {limits.FLOW_SIZE:,} bytes"
            findings.error(root, what, "Use patterns and `defaults` for what repeats", "too-large")
            return root
        part = _read(path, findings)
        if part is not None:
            root = _join(root, part, findings)
    return root


def _read(path: Path, findings: Findings) -> Node | None:
    root, diagnostics = read_document(path, str(path))
    findings.extend(diagnostics)
    if root is not None and not isinstance(root.value, dict):
        findings.error(root, "a spec is a map of keys to values", "Start with `version: 1`", "wrong-type")
        return None
    return root


def _list_files(root: Node, path: Path, findings: Findings) -> list[Path]:
    """The files named by ``include``, each once; globs sorted by name."""
    found: dict[Path, None] = {}
    include = root.get("include")
    for entry in include.items if include else ():
        pattern = entry.text
        if "{{" in pattern:
            findings.error(entry, "`include` takes no {{ }}", "Write the path out", "template-in-include")
            continue
        is_glob = any(char in pattern for char in "*?[")
        if is_glob and (Path(pattern).is_absolute() or ("**" in pattern and ".." in Path(pattern).parts)):
            hint = f"Name a folder below {path.parent}, or the files themselves"
            findings.error(
                entry, f"`{limits.shown(pattern)}` looks for files outside of the spec's folder", hint, "include-glob"
            )
            continue
        matches = sorted(islice(path.parent.glob(pattern), limits.FILES)) if is_glob else [path.parent / pattern]
        if not matches or not matches[0].is_file():
            hint = f"Correct the path, which is relative to {path.parent}"
            findings.error(entry, f"`{pattern}` matches no file", hint, "include-without-file")
            continue
        found.update(dict.fromkeys(matches))
    if len(found) > limits.FILES:
        findings.error(root, f"`include` names more than {limits.FILES:,} files", "Join some of them", "too-large")
    return list(found)[: limits.FILES]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # reported when the file is read
        return 0


def _join(root: Node, part: Node, findings: Findings) -> Node:
    entries = dict(root.entries)
    for key, node in part.entries.items():
        if key not in _SHARED:
            hint = "Move it to the first file; included files hold connections and tables"
            findings.error(node.place, f"`{key}` is not allowed in an included file", hint, "include-key")
        elif key not in entries:
            entries[key] = node
        else:
            entries[key] = _unite(entries[key], node, key, findings)
    return replace(root, value=entries)


def _unite(first: Node, second: Node, section: str, findings: Findings) -> Node:
    entries = dict(first.entries)
    for name, node in second.entries.items():
        if name in entries:
            hint = f"Rename one of them; it is also defined at {entries[name].place}"
            findings.error(node.place, f"`{section}.{name}` is defined twice", hint, "duplicate-name")
        else:
            entries[name] = node
    return replace(first, value=entries)
