"""Terms of ``--select`` and ``--exclude``: ``[+](id|glob|stream)[+]``, with all upstream and all downstream tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType

from flowctl.errors import UsageError
from flowctl.resolve.dag import Needs, downstream, reachable
from flowctl.spec.suggest import nearest

#: The ids of the tables of each stream, by its name.
Groups = Mapping[str, Sequence[str]]
_TERMS = "Terms are ids, globs or streams: orders, +daily_*, customers+"


class NoTableMatches(UsageError):
    """A term that matches none of the tables ``ids``."""

    def __init__(self, message: str, *, hint: str, ids: Sequence[str]) -> None:
        super().__init__(message, hint=hint)
        self.ids = ids


def selected(
    edges: Needs, select: Sequence[str], exclude: Sequence[str], groups: Groups = MappingProxyType({})
) -> frozenset[str]:
    """Returns the selected ids: those of ``select`` (all if empty) minus those of ``exclude``.

    Raises :class:`UsageError` if a term matches no table or nothing is left.
    """
    chosen = _union(edges, select, "--select", groups) if select else frozenset(edges)
    left = chosen - _union(edges, exclude, "--exclude", groups)
    if edges and not left:
        raise UsageError("nothing is selected", hint="Exclude less: --exclude removes everything that --select matches")
    return left


def matching(
    edges: Needs, terms: Sequence[str], option: str, within: frozenset[str], groups: Groups = MappingProxyType({})
) -> frozenset[str]:
    """Returns the ids in ``within`` that match ``terms``. Raises :class:`UsageError` for a term that matches none of
    them, so that no term is ignored silently."""
    found: set[str] = set()
    for term in terms:
        meant = _one_term(edges, term, option, groups)
        if not meant & within:
            raise UsageError(f"{option} {term}: not among the selected tables", hint="Select it too, with --select")
        found |= meant & within
    return frozenset(found)


def _union(edges: Needs, terms: Sequence[str], option: str, groups: Groups) -> frozenset[str]:
    return frozenset().union(*(_one_term(edges, term, option, groups) for term in terms))


def _one_term(edges: Needs, term: str, option: str, groups: Groups) -> frozenset[str]:
    glob = term.removeprefix("+").removesuffix("+")
    if not glob.strip():
        raise UsageError(f"{option} {term!r} names no table", hint=_TERMS)
    matches = [table_id for table_id in edges if fnmatchcase(table_id, glob) or table_id in groups.get(glob, ())]
    if not matches:
        names = [*edges, *groups]
        hint = nearest(term.strip("+"), names, _TERMS)
        raise NoTableMatches(f"{option} {term}: no table matches", hint=hint, ids=tuple(edges))
    found = set(matches)
    if term.startswith("+"):
        found.update(*(reachable(table_id, edges) for table_id in matches))
    if term.endswith("+"):
        below = downstream(edges)
        found.update(*(reachable(table_id, below) for table_id in matches))
    return frozenset(found)
