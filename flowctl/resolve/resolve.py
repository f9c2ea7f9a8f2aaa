"""From the spec's entries to the tables of the run: expand, check, order, select; each a pure pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from flowctl.connectors import registry
from flowctl.diagnostics import Diagnostic, in_order
from flowctl.errors import SpecError
from flowctl.model.table_info import ObjectName
from flowctl.resolve import capabilities, dag, places, sail, select
from flowctl.resolve.dag import Needs
from flowctl.resolve.expand import expand, substituted
from flowctl.spec.names import is_pattern, pattern_ids
from flowctl.spec.spec import Spec, TableSpec

#: Whether a pattern can make an id: the placeholders' values, or None.
IdMatcher = Callable[[str], Mapping[str, str] | None]


@dataclass(frozen=True)
class Resolved:
    """``tables`` is every table of the flow in DAG order, ``selected`` the ids this run is about, ``needs`` the edges.
    ``full_refresh`` are the ids to be read anew, ``unmatched`` the patterns that match nothing though they should.
    ``warnings`` are for people."""

    tables: tuple[TableSpec, ...]
    needs: Needs
    selected: frozenset[str]
    full_refresh: frozenset[str] = frozenset()
    warnings: tuple[Diagnostic, ...] = ()
    unmatched: tuple[TableSpec, ...] = ()


def resolve(
    spec: Spec,
    discovered: Mapping[str, Sequence[ObjectName]],
    select_terms: Sequence[str] = (),
    exclude_terms: Sequence[str] = (),
    full_refresh: Sequence[str] = (),
) -> Resolved:
    """``discovered`` holds the objects that each pattern's source matches, by the pattern's id; a pattern that is not
    in it could not be listed: its tables may exist, and are not among the result's.

    :class:`SpecError` with all findings when the tables do not fit together, :class:`UsageError` for a bad term.
    """
    expansion = expand(spec.tables, discovered)
    unlisted = [pattern_ids(table.id) for table in spec.tables if is_pattern(table.id) and table.id not in discovered]
    found = in_order((*expansion.diagnostics, *_findings(expansion.tables, spec, unlisted)))
    errors = [finding for finding in found if finding.severity == "error"]
    if errors:
        raise SpecError(errors)
    tables = dag.in_order(expansion.tables)
    edges = dag.needs(tables)
    chosen = select.selected(edges, select_terms, exclude_terms)
    refreshed = select.matching(edges, full_refresh, "--full-refresh", within=chosen)
    return Resolved(tables, edges, chosen, refreshed, found, expansion.unmatched)


def refusals(spec: Spec) -> tuple[Diagnostic, ...]:
    """What no plan of the spec would do, whatever is found in the systems: for `validate`. A pattern stands for each
    of its tables."""
    patterns = [substituted(table, _ANY_NAMES) for table in spec.tables if is_pattern(table.id)]
    tables = [*expand(spec.tables, {}).tables, *patterns]
    asked = capabilities.check(tables, spec.connections, registry.capabilities)
    return in_order((*asked, *sail.check(spec, tables)))


_ANY_NAMES = {"table": "any", "schema": "any", "connection": "any", "id": "any"}


def _findings(tables: Sequence[TableSpec], spec: Spec, unlisted: Sequence[IdMatcher]) -> Iterator[Diagnostic]:
    yield from places.check(spec, tables)
    yield from dag.unknown_references(tables, lambda ref: any(matches(ref) for matches in unlisted))
    yield from dag.cycles(tables)
    yield from capabilities.check(tables, spec.connections, registry.capabilities)
    yield from sail.check(spec, tables)
