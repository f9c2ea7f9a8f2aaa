"""What must hold between the tables of one spec: distinct ids, distinct targets, references without a cycle.

A pattern is still one entry here. Errors that depend on its tables are reported when those are known
(:mod:`flowctl.resolve`), in the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from flowctl.diagnostics import Diagnostic, Mark
from flowctl.spec import limits
from flowctl.spec.names import is_pattern, pattern_ids, placeholder_values
from flowctl.spec.node import Node
from flowctl.spec.spec import SqlSource, TableSpec
from flowctl.spec.suggest import did_you_mean
from flowctl.spec.template import fill_placeholders, placeholders


def check_flow(entries: Mapping[str, Node], tables: Sequence[TableSpec]) -> Iterator[Diagnostic]:
    """``entries`` are all tables, including invalid ones: a reference to one of those is not a second error."""
    exact = [id for id in entries if not is_pattern(id)]
    yield from _repeated_ids(entries)
    yield from _repeated_targets(tables)
    yield from unknown_references(tables, exact, [id for id in entries if is_pattern(id)])
    yield from cycles(tables)


def same_target(first: TableSpec, second: TableSpec) -> Diagnostic:
    """``second`` is written to the target of ``first``, an earlier entry."""
    return Diagnostic(
        f"`{first.id}` and `{second.id}` are both written to {second.target}",
        f"Give one of them another `to`; `{first.id}` is at {first.mark}",
        second.mark_of("to"),
        "same-target",
    )


def unknown_references(
    tables: Sequence[TableSpec], exact: Collection[str], patterns: Collection[str]
) -> Iterator[Diagnostic]:
    """References to ids that are neither in ``exact`` nor can be created by one of ``patterns``."""
    may_exist: list[Callable[[str], object]] = [pattern_ids(id) for id in patterns]
    for table in tables:
        for reference in _references(table):
            if reference not in exact and not any(matches(reference) for matches in may_exist):
                yield Diagnostic(
                    f"`{table.id}` reads `{reference}`, which is not a table of this flow",
                    did_you_mean(reference, exact, "Tables are: "),
                    _sql_place(table),
                    "unknown-table",
                )


def cycles(tables: Sequence[TableSpec]) -> Iterator[Diagnostic]:
    """Each cycle once, at the first of its tables in the file. Tables of patterns read no other tables."""
    by_id = {table.id: table for table in tables}
    done: set[str] = set()
    for table in tables:
        yield from _walk(table.id, by_id, [], done)


def _repeated_ids(entries: Mapping[str, Node]) -> Iterator[Diagnostic]:
    seen: dict[str, str] = {}
    for id, node in entries.items():
        first = seen.setdefault(id.casefold(), id)
        if first != id:
            hint = f"Rename one of them; `{first}` is at {entries[first].place}"
            yield Diagnostic(f"table ids `{first}` and `{id}` differ only in case", hint, node.place, "duplicate-name")


def _repeated_targets(tables: Sequence[TableSpec]) -> Iterator[Diagnostic]:
    seen: dict[tuple[str, ...], TableSpec] = {}
    for table in tables:
        values = placeholder_values(table.id, table.source)
        parts = tuple(fill_placeholders(part, values) for part in table.target.parts)
        if is_pattern(table.id) and not any(map(placeholders, parts)):
            what = f"all tables of `{table.id}` have the same target"
            yield Diagnostic(what, "Put ${table} or ${id} into `to`", table.mark_of("to"), "same-target")
            continue
        first = seen.setdefault((table.target.connection, *parts), table)
        if first is not table:
            yield same_target(first, table)


def _walk(id: str, by_id: Mapping[str, TableSpec], path: list[str], done: set[str]) -> Iterator[Diagnostic]:
    if id in path:
        cycle = [*path[path.index(id) :], id]
        what = f"tables read each other: {' → '.join(cycle)}"
        yield Diagnostic(what, "Let one of them read something else", _sql_place(by_id[id]), "cycle")
        return
    if id in done or id not in by_id:
        return
    if len(path) >= limits.CHAIN:
        what = f"more than {limits.CHAIN} tables read one another in a chain"
        yield Diagnostic(what, "Let some of them read more directly", _sql_place(by_id[id]), "too-deep")
        done.add(id)
        return
    path.append(id)
    for reference in _references(by_id[id]):
        yield from _walk(reference, by_id, path, done)
    path.pop()
    done.add(id)


def _references(table: TableSpec) -> tuple[str, ...]:
    return table.source.refs if isinstance(table.source, SqlSource) else ()


def _sql_place(table: TableSpec) -> Mark:
    return table.mark_of("from.sql")
