"""From the spec's entries to the tables of the run: expand, check, order, select. Each is a pure pass.

With nothing discovered, this is all that `validate` does after loading the spec, and the first thing `plan` does: both
refuse what no run could do, in the same words, before any system is queried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from flowctl.diagnostics import Diagnostic, in_order
from flowctl.errors import SpecError, UsageError
from flowctl.model.backfill import Backfill
from flowctl.model.table_info import Estimate, ObjectName
from flowctl.resolve import dag, logs, names, places, sail, select, sources, stores
from flowctl.resolve.dag import Needs
from flowctl.resolve.expand import expand, substitute
from flowctl.spec.names import PLACEHOLDERS, is_pattern
from flowctl.spec.semantics import unknown_references
from flowctl.spec.spec import Spec, TableSpec, stream_of


@dataclass(frozen=True)
class PlanOptions:
    """The terms of ``--select``, ``--exclude`` and ``--full-refresh``, and how rows are estimated. ``stream``: only the
    tables of this stream. ``backfill``: the selected tables read this range again."""

    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    full_refresh: tuple[str, ...] = ()
    estimate: Estimate = "stats"
    stream: str = ""
    backfill: Backfill | None = None


@dataclass(frozen=True)
class Resolved:
    """``tables`` are all tables of the flow in DAG order, ``needs`` the edges, ``selected`` the ids in this run,
    ``full_refresh`` the ids to refresh in full, ``backfill`` the range that the selected ones read, ``unmatched`` the
    patterns that match nothing and lack ``allow_none``."""

    tables: tuple[TableSpec, ...]
    needs: Needs
    selected: frozenset[str]
    full_refresh: frozenset[str] = frozenset()
    unmatched: tuple[TableSpec, ...] = ()
    backfill: Backfill | None = None


def resolve(spec: Spec, discovered: Mapping[str, Sequence[ObjectName]], options: PlanOptions | None = None) -> Resolved:
    """``discovered`` holds the objects that each pattern matches, by the pattern's id. A pattern missing from it was
    not listed: it is checked as a single table, and the result contains none of its tables.

    Raises :class:`SpecError` with all findings if the tables are inconsistent, :class:`UsageError` for a bad term.
    """
    options = options or PlanOptions()
    expansion = expand(spec.tables, discovered)
    unlisted = [table for table in spec.tables if is_pattern(table.id) and table.id not in discovered]
    if found := in_order((*expansion.diagnostics, *_check(spec, expansion.tables, unlisted))):
        raise SpecError(found)
    tables = dag.in_order(expansion.tables)
    edges = dag.needs(tables)
    groups = {name: [table.id for table in tables if stream_of(table) == name] for name in spec.streams}
    chosen = select.selected(edges, options.select, options.exclude, groups)
    if options.stream:
        chosen &= frozenset(groups[options.stream])
    refreshed = select.matching(edges, options.full_refresh, "--full-refresh", within=chosen, groups=groups)
    if options.backfill is not None:
        _refuse_streams([table for table in tables if table.id in chosen], options.backfill)
    return Resolved(tables, edges, chosen, refreshed, expansion.unmatched, options.backfill)


def _refuse_streams(tables: Sequence[TableSpec], backfill: Backfill) -> None:
    if streamed := next((table.id for table in tables if stream_of(table)), None):
        what = f"{backfill}: {streamed} reads a change stream, which has no ranges"
        raise UsageError(what, hint=f"Read it again with `flowctl state resnapshot`, or leave out {streamed}")


def _check(spec: Spec, tables: Sequence[TableSpec], unlisted: Sequence[TableSpec]) -> Iterator[Diagnostic]:
    ids = [table.id for table in tables]
    yield from places.check(spec, tables)
    yield from unknown_references(tables, ids, [pattern.id for pattern in unlisted])
    yield from names.check(spec, tables)
    yield from sources.check(spec, tables)
    yield from logs.check(spec, tables)
    yield from stores.check(spec)
    yield from sail.check(spec, [*tables, *map(_as_one_table, unlisted)])


def _as_one_table(pattern: TableSpec) -> TableSpec:
    """A representative table of ``pattern``, under the pattern's own id."""
    return replace(substitute(pattern, dict.fromkeys(PLACEHOLDERS, "any")), id=pattern.id)
