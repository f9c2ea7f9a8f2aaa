"""What cannot be done with a table that is written to a log: its rows are not read back, and it has no sidecars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flowctl.connectors import registry
from flowctl.diagnostics import Diagnostic
from flowctl.spec.spec import Spec, SqlSource, TableSpec


def check(spec: Spec, tables: Sequence[TableSpec]) -> Iterator[Diagnostic]:
    for table in spec.tables:
        if _is_log(spec, table):
            yield from _rejects_rows(table)
    by_id = {table.id: table for table in tables}
    for table in tables:
        for ref in table.source.refs if isinstance(table.source, SqlSource) else ():
            if ref in by_id and _is_log(spec, by_id[ref]):
                yield Diagnostic(
                    f"`{table.id}` reads `{ref}`, which is written to {by_id[ref].target}: a topic is not read back",
                    f"Write `{ref}` to a database or Delta, and its topic from there; or read what `{ref}` reads",
                    table.mark_of("from.sql"),
                    "reads-a-log",
                )


def _rejects_rows(table: TableSpec) -> Iterator[Diagnostic]:
    if table.keeps_bad_rows:
        yield Diagnostic(
            f"format.on_fail: {table.target} has no place for quarantined rows beside a topic",
            "Remove `format.on_fail`, or write the table to a database or Delta first",
            table.mark_of("format.on_fail"),
            "no-sidecars",
        )
    for check in table.expect:
        if check.on_fail == "quarantine" and table.dead_letters is None:
            yield Diagnostic(
                f"{check.name}: {table.target} has no place for quarantined rows beside a topic",
                "Set `on_fail: fail` or warn, or write the table to a database or Delta first",
                check.mark,
                "no-sidecars",
            )


def _is_log(spec: Spec, table: TableSpec) -> bool:
    can = registry.capabilities(spec.connections[table.target.connection].type).target
    return can is not None and can.is_log
