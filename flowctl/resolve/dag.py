"""Which table needs which: an edge for each ``ref()``, and the order in which they can run."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches

from flowctl.diagnostics import Diagnostic
from flowctl.spec.spec import SqlSource, TableSpec

#: Table id → ids of the tables it reads, sorted.
Needs = Mapping[str, tuple[str, ...]]


def needs(tables: Sequence[TableSpec]) -> Needs:
    """The edges; references to unknown tables are left out (:func:`unknown_references` names them)."""
    ids = {table.id for table in tables}
    return {
        table.id: tuple(sorted(ids.intersection(table.source.refs))) if isinstance(table.source, SqlSource) else ()
        for table in tables
    }


def in_order(tables: Sequence[TableSpec]) -> tuple[TableSpec, ...]:
    """Every table after those it needs; by id where the edges leave a choice. Members of a cycle are left out."""
    by_id = {table.id: table for table in tables}
    edges = needs(tables)
    waiting = {table_id: len(above) for table_id, above in edges.items()}
    below = downstream(edges)
    ready = sorted(table_id for table_id, count in waiting.items() if count == 0)
    ordered: list[TableSpec] = []
    while ready:
        table_id = heapq.heappop(ready)
        ordered.append(by_id[table_id])
        for dependent in below[table_id]:
            waiting[dependent] -= 1
            if waiting[dependent] == 0:
                heapq.heappush(ready, dependent)
    return tuple(ordered)


def downstream(edges: Needs) -> Needs:
    """The same edges the other way round."""
    below: dict[str, list[str]] = {table_id: [] for table_id in edges}
    for table_id, above in edges.items():
        for upper in above:
            below[upper].append(table_id)
    return {table_id: tuple(sorted(dependents)) for table_id, dependents in below.items()}


def reachable(start: str, edges: Needs) -> frozenset[str]:
    """All ids that can be reached from ``start``, itself included."""
    seen, waiting = {start}, [start]
    while waiting:
        for other in edges[waiting.pop()]:
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return frozenset(seen)


def unknown_references(
    tables: Sequence[TableSpec], may_exist: Callable[[str], bool] = lambda ref: False
) -> Iterator[Diagnostic]:
    """References to tables that are not there, and not among those that ``may_exist`` though nobody could look."""
    ids = sorted(table.id for table in tables)
    for table in tables:
        if isinstance(table.source, SqlSource):
            for ref in table.source.refs:
                if ref not in ids and not may_exist(ref):
                    close = get_close_matches(ref, ids, 1)
                    yield Diagnostic(
                        f"{table.id}: ref('{ref}') names no table of this flow",
                        f"Did you mean {close[0]!r}?" if close else "List the tables with `flowctl plan`",
                        table.mark_of("from.sql"),
                        "unknown-reference",
                    )


def cycles(tables: Sequence[TableSpec]) -> Iterator[Diagnostic]:
    """One finding for each cycle, at its first table, with its whole path."""
    ordered = {table.id for table in in_order(tables)}
    edges = needs(tables)
    reported: set[str] = set()
    for table in tables:
        if table.id not in ordered and table.id not in reported and (path := _path_back(table.id, edges)):
            reported.update(path)
            yield Diagnostic(
                f"{table.id} reads itself: {' → '.join(path)}",
                "Break the circle: one of these tables must not read the next",
                table.mark_of("from.sql"),
                "cycle",
            )


def _path_back(start: str, edges: Needs) -> list[str]:
    """The shortest way from ``start`` back to it; empty when there is none (it only hangs below a cycle)."""
    came_from: dict[str, str] = {}
    waiting = [start]
    for table_id in waiting:
        for upper in edges[table_id]:
            if upper == start:
                path = [start, table_id]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return path[::-1]
            if upper not in came_from:
                came_from[upper] = table_id
                waiting.append(upper)
    return []
