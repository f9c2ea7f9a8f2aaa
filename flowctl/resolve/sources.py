"""Sources that the spec alone shows to be unreadable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flowctl.connectors import registry
from flowctl.diagnostics import Diagnostic
from flowctl.spec.spec import Spec, SqlSource, TableSpec


def check(spec: Spec, tables: Sequence[TableSpec]) -> Iterator[Diagnostic]:
    """Checks the ``tables`` that do not come from a pattern; a pattern's table is stopped on its own, in the plan."""
    written = {table.id for table in spec.tables}
    for table in tables:
        if table.id not in written or isinstance(table.source, SqlSource):
            continue
        source = registry.capabilities(spec.connections[table.source.connection].type).source
        if source is not None and (refused := source.refuses(table)):
            what, hint = refused
            yield Diagnostic(f"{table.id}: {what}", hint, table.mark_of("from"), "unreadable")
