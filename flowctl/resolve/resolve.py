"""From the spec's entries to the tables of the run: expand, check, order, select; each a pure pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from flowctl.connectors import registry
from flowctl.diagnostics import Diagnostic, in_order
from flowctl.errors import SpecError
from flowctl.model.table_info import ObjectName
from flowctl.resolve import capabilities, dag, select
from flowctl.resolve.dag import Needs
from flowctl.resolve.expand import expand
from flowctl.spec.names import is_pattern
from flowctl.spec.spec import Spec, TableSpec


@dataclass(frozen=True)
class Resolved:
    """``tables`` is every table of the flow in DAG order, ``selected`` the ids this run is about, ``needs`` the edges.
    ``full_refresh`` are the ids to be read anew. ``warnings`` are for people."""

    tables: tuple[TableSpec, ...]
    needs: Needs
    selected: frozenset[str]
    full_refresh: frozenset[str] = frozenset()
    warnings: tuple[Diagnostic, ...] = ()


def resolve(
    spec: Spec,
    discovered: Mapping[str, Sequence[ObjectName]],
    select_terms: Sequence[str] = (),
    exclude_terms: Sequence[str] = (),
    full_refresh: Sequence[str] = (),
) -> Resolved:
    """``discovered`` holds the objects that each pattern's source matches, by the pattern's id.

    :class:`SpecError` with all findings when the tables do not fit together, :class:`UsageError` for a bad term.
    """
    expansion = expand(spec.tables, discovered)
    found = in_order((*expansion.diagnostics, *_findings(expansion.tables, spec)))
    errors = [finding for finding in found if finding.severity == "error"]
    if errors:
        raise SpecError(errors)
    tables = dag.in_order(expansion.tables)
    edges = dag.needs(tables)
    chosen = select.selected(edges, select_terms, exclude_terms)
    refreshed = select.known({id: above for id, above in edges.items() if id in chosen}, full_refresh, "--full-refresh")
    return Resolved(tables, edges, chosen, refreshed, found)


def check_offline(spec: Spec) -> tuple[Diagnostic, ...]:
    """What can be said without looking at any source, for ``validate``: patterns are checked as they are written."""
    exact = [table for table in spec.tables if not is_pattern(table.id)]
    found = [*_capabilities(spec.tables, spec), *dag.cycles(exact)]
    if len(exact) == len(spec.tables):
        found.extend(dag.unknown_references(exact))
    return in_order(found)


def _findings(tables: Sequence[TableSpec], spec: Spec) -> Iterator[Diagnostic]:
    yield from _one_writer(tables)
    yield from dag.unknown_references(tables)
    yield from dag.cycles(tables)
    yield from _capabilities(tables, spec)


def _capabilities(tables: Sequence[TableSpec], spec: Spec) -> Iterator[Diagnostic]:
    return capabilities.check(tables, spec.connections, registry.capabilities)


def _one_writer(tables: Sequence[TableSpec]) -> Iterator[Diagnostic]:
    first: dict[str, TableSpec] = {}
    for table in tables:
        earlier = first.setdefault(str(table.target).lower(), table)
        if earlier is not table:
            yield Diagnostic(
                f"{table.id} and {earlier.id} ({earlier.mark}) both write {table.target}",
                "Give one of them another `to`",
                table.mark_of("to"),
                "shared-target",
            )
