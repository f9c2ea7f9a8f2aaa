"""The effective entry of every table: ``defaults`` < pattern entries < the exact entry.

Maps merge at every depth, lists and scalars replace, ``null`` removes, ``from`` and ``expect`` replace whole. Every
inherited value keeps its origin, for errors and `validate --resolved`.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from flowctl.spec.names import is_glob, is_pattern, pattern_ids, split_reference
from flowctl.spec.node import Node, with_origin
from flowctl.spec.template import fill_placeholders

_WHOLE = ("from", "expect")


def effective_tables(root: Node) -> dict[str, Node]:
    """Id to merged entry, in the order of the file. Entries that are not maps are left out (the schema reports
    them)."""
    written = root.get("tables")
    defaults = root.get("defaults")
    base = with_origin(defaults, "defaults") if defaults and defaults.entries else None
    entries = {id: node for id, node in (written.entries if written else {}).items() if isinstance(node.value, dict)}
    patterns = [_Pattern(id, node, pattern_ids(id)) for id, node in entries.items() if is_pattern(id)]
    return {id: _effective(id, node, base, patterns) for id, node in entries.items()}


def inherited_values(root: Node) -> int:
    """An upper bound of the values that :func:`effective_tables` would merge into entries."""
    written, defaults = root.get("tables"), root.get("defaults")
    entries = written.entries if written else {}
    patterns = sum(_count(node) for id, node in entries.items() if is_pattern(id))
    return ((_count(defaults) if defaults else 0) + patterns) * len(entries)


def _count(node: Node) -> int:
    return 1 + sum(map(_count, (*node.entries.values(), *node.items)))


@dataclass(frozen=True)
class _Pattern:
    id: str
    entry: Node
    bind: Callable[[str], Mapping[str, str] | None]


def _effective(id: str, node: Node, defaults: Node | None, patterns: Sequence[_Pattern]) -> Node:
    layers = [defaults] if defaults else []
    if not is_pattern(id):
        for pattern in patterns:
            if inherited := _inherit_from(pattern, id, node):
                layers.append(with_origin(inherited, pattern.id))
    merged = Node({}, node.mark)
    for layer in [*layers, node]:
        merged = _merge(merged, layer)
    return merged


def _merge(under: Node, over: Node) -> Node:
    """``over`` on top of ``under``; both maps. The result has the place of ``over``."""
    entries = dict(under.entries)
    for key, node in over.entries.items():
        below = entries.get(key)
        if node.value is None:
            entries.pop(key, None)
        elif key not in _WHOLE and below is not None and isinstance(below.value, dict) and isinstance(node.value, dict):
            entries[key] = _merge(below, node)
        else:
            entries[key] = _prune(node)
    return Node(entries, over.mark, over.key_mark, over.origin)


def _prune(node: Node) -> Node:
    """A map without its remaining nulls, which removed nothing."""
    if not isinstance(node.value, dict):
        return node
    entries = {key: _prune(child) for key, child in node.value.items() if child.value is not None}
    return Node(entries, node.mark, node.key_mark, node.origin)


def _inherit_from(pattern: _Pattern, id: str, exact: Node) -> Node | None:
    """What ``exact`` inherits from a pattern that also creates its id: the pattern's keys, with ``from`` naming the one
    object. None if the pattern cannot create it: another object, or an excluded one."""
    entry, bound = pattern.entry, pattern.bind(id)
    source = entry.get("from")
    if bound is None or source is None or not isinstance(source.value, str):
        return None
    connection, object = split_reference(source.value)
    one = _object_of(object, bound)
    if one is None:
        return None
    own = exact.get("from")
    if own is not None and own.text != f"{connection}:{one}":
        return None
    excluded = entry.get("exclude")
    last = one.rpartition(".")[2]
    globs = [item.text for item in excluded.items] if excluded else []
    if any(fnmatch.fnmatchcase(name, glob) for glob in globs for name in (one, last)):
        return None
    entries = {**entry.entries, "from": replace(source, value=f"{connection}:{one}")}
    for key in ("exclude", "include_views", "allow_none"):  # of the pattern itself
        entries.pop(key, None)
    return replace(entry, value=entries)


def _object_of(pattern: str, bound: Mapping[str, str]) -> str | None:
    """``public.*`` with table=orders → ``public.orders``; None if it does not match, or remains a pattern."""
    parts = fill_placeholders(pattern, bound).split(".")
    names = dict(zip(("table", "schema"), reversed(range(len(parts))), strict=False))
    for name, at in names.items():
        if is_glob(parts[at]) and name in bound:
            if not fnmatch.fnmatchcase(bound[name], parts[at]):
                return None
            parts[at] = bound[name]
    return None if any(map(is_glob, parts)) else ".".join(parts)
