"""`validate --connect`: whether what the spec names is there and may be read."""

from __future__ import annotations

from flowctl.diagnostics import Diagnostic, in_order
from flowctl.errors import FlowctlError, SpecError
from flowctl.observe.observation import Request, observe
from flowctl.observe.world import Observed
from flowctl.spec.spec import Spec, SqlSource, TableSpec


def check(spec: Spec) -> list[Diagnostic]:
    """Every connection that cannot be opened, every object that is not there or may not be read, sorted by place.
    Reads metadata only: no row leaves a source."""
    try:
        world, resolved = observe(spec, Request(estimate="none"))
    except SpecError as error:
        return list(error.diagnostics)
    except FlowctlError as error:
        return [Diagnostic(error.message, error.hint, error.mark, "unreachable")]
    found = list(resolved.warnings)
    found.extend(
        _unreachable(table, world.unexpanded[table.id]) for table in spec.tables if table.id in world.unexpanded
    )
    for table in resolved.tables:
        found.extend(_missing(table, world.tables[table.id]))
    return list(in_order(found))


def _missing(table: TableSpec, seen: Observed) -> list[Diagnostic]:
    if seen.error is not None:
        return [_unreachable(table, seen.error)]
    if seen.source is not None or isinstance(table.source, SqlSource):
        return []
    hint = "Correct `from`, or let the connection's user see it"
    return [Diagnostic(f"{table.source} does not exist", hint, table.mark_of("from"), "missing-object")]


def _unreachable(table: TableSpec, error: FlowctlError) -> Diagnostic:
    return Diagnostic(error.message, error.hint, error.mark or table.mark_of("from"), "unreachable")
