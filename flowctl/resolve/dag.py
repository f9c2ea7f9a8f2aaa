"""Dependencies between tables: an edge for each ``ref()``, and the order in which the tables can run."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from flowctl.spec.spec import SqlSource, TableSpec

#: Table id → ids of the tables it reads, sorted.
Needs = Mapping[str, tuple[str, ...]]


def needs(tables: Sequence[TableSpec]) -> Needs:
    """The edges. References to tables not in ``tables`` are left out."""
    ids = {table.id for table in tables}
    return {
        table.id: tuple(sorted(ids.intersection(table.source.refs))) if isinstance(table.source, SqlSource) else ()
        for table in tables
    }


def in_order(tables: Sequence[TableSpec]) -> tuple[TableSpec, ...]:
    """Topological order: every table after those it needs, ties broken by id. Members of a cycle are left out."""
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
    """The same edges, reversed."""
    below: dict[str, list[str]] = {table_id: [] for table_id in edges}
    for table_id, above in edges.items():
        for upper in above:
            below[upper].append(table_id)
    return {table_id: tuple(sorted(dependents)) for table_id, dependents in below.items()}


def reachable(start: str, edges: Needs) -> frozenset[str]:
    """All ids reachable from ``start``, including itself."""
    seen, waiting = {start}, [start]
    while waiting:
        for other in edges[waiting.pop()]:
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return frozenset(seen)
