"""What holds between tables: ids that differ, targets that differ, references without a cycle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowctl.diagnostics import Mark
from flowctl.spec import limits
from flowctl.spec.findings import Findings
from flowctl.spec.names import is_pattern, pattern_ids, placeholder_values
from flowctl.spec.node import Node
from flowctl.spec.spec import SqlSource, TableSpec
from flowctl.spec.suggest import did_you_mean
from flowctl.spec.template import fill_placeholders, placeholders


def check_flow(entries: Mapping[str, Node], tables: Sequence[TableSpec], findings: Findings) -> None:
    """``entries`` are all tables, the broken ones too: a reference to one of those is no second error."""
    _check_ids(entries, findings)
    _check_targets(tables, findings)
    _check_references(entries, tables, findings)
    _check_cycles(tables, findings)


def _check_ids(entries: Mapping[str, Node], findings: Findings) -> None:
    seen: dict[str, str] = {}
    for id, node in entries.items():
        first = seen.setdefault(id.casefold(), id)
        if first != id:
            hint = f"Rename one of them; `{first}` stands at {entries[first].place}"
            message = f"table ids `{first}` and `{id}` differ only in case"
            findings.error(node.place, message, hint, "duplicate-name")


def _check_targets(tables: Sequence[TableSpec], findings: Findings) -> None:
    seen: dict[tuple[str, ...], TableSpec] = {}
    for table in tables:
        values = placeholder_values(table.id, table.source)
        parts = tuple(fill_placeholders(part, values) for part in table.target.parts)
        place = table.mark_of("to")
        if is_pattern(table.id) and not any(map(placeholders, parts)):
            hint = "Put ${table} or ${id} into `to`"
            findings.error(place, f"all tables of `{table.id}` have the same target", hint, "same-target")
            continue
        first = seen.setdefault((table.target.connection, *parts), table)
        if first is not table:
            hint = f"Give one of them another `to`; `{first.id}` stands at {first.mark}"
            message = f"`{first.id}` and `{table.id}` are both written to {table.target}"
            findings.error(place, message, hint, "same-target")


def _check_references(entries: Mapping[str, Node], tables: Sequence[TableSpec], findings: Findings) -> None:
    made = [pattern_ids(id) for id in entries if is_pattern(id)]
    exact = [id for id in entries if not is_pattern(id)]
    for table in tables:
        for reference in _references(table):
            if reference not in exact and not any(matches(reference) for matches in made):
                hint = did_you_mean(reference, exact, "Tables are: ")
                message = f"`{table.id}` reads `{reference}`, which is no table of this flow"
                findings.error(_sql_place(table), message, hint, "unknown-table")


def _check_cycles(tables: Sequence[TableSpec], findings: Findings) -> None:
    """Each cycle once, at the first of its tables in the file."""
    by_id = {table.id: table for table in tables}
    done: set[str] = set()
    for table in tables:
        path: list[str] = []
        _walk(table.id, by_id, path, done, findings)


def _walk(id: str, by_id: Mapping[str, TableSpec], path: list[str], done: set[str], findings: Findings) -> None:
    if id in path:
        cycle = [*path[path.index(id) :], id]
        hint = "Let one of them read something else"
        findings.error(_sql_place(by_id[id]), f"tables read each other: {' → '.join(cycle)}", hint, "cycle")
        return
    if id in done or id not in by_id:
        return
    if len(path) >= limits.CHAIN:
        what = f"more than {limits.CHAIN} tables read one another in a row"
        findings.error(_sql_place(by_id[id]), what, "Let some of them read more directly", "too-deep")
        done.add(id)
        return
    path.append(id)
    for reference in _references(by_id[id]):
        _walk(reference, by_id, path, done, findings)
    path.pop()
    done.add(id)


def _references(table: TableSpec) -> tuple[str, ...]:
    return table.source.refs if isinstance(table.source, SqlSource) else ()


def _sql_place(table: TableSpec) -> Mark:
    return table.mark_of("from.sql")
