"""What is not supported on Sail (``spark.url: sail``, pysail 0.7), each gap with its reason.

A gap that the spec alone shows is an error of ``validate``; one that only the source or the target shows stops the
table in the plan. This module has the gaps that hold for every connector; connectors declare their own (:class:`Gap`).
Everything else behaves as on Apache Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from flowctl.connectors import registry
from flowctl.connectors.gaps import Gap
from flowctl.diagnostics import Diagnostic
from flowctl.engine.session import SAIL
from flowctl.expect.kinds import kinds
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.spec.spec import Spec, SqlSource, TableSpec
from flowctl.storage.options import credentials
from flowctl.storage.urls import scheme

HINT = "Run this flow with spark.url local[*]"

GAPS: Mapping[str, str] = {
    "sql": "integer overflow is not detected there",
    "columns.add": "integer overflow is not detected there",
    **{f"expect.{key}": check.gaps[SAIL] for key, check in kinds().items() if SAIL in check.gaps},
    "storage": "it takes one set of credentials for all object storage",
    "float": "it formats floating-point numbers differently from Spark, so row hashes would not match",
    "case": "it does not distinguish upper and lower case in names of columns, also if one is renamed",
}


def check(spec: Spec, tables: Sequence[TableSpec]) -> Iterator[Diagnostic]:
    """Yields a diagnostic for each feature in the spec that Sail does not support; nothing for other engines."""
    if spec.spark.url != SAIL:
        return
    for table in tables:
        for gap in (*_asked(table), *_connectors_gaps(spec, table)):
            yield Diagnostic(
                f"{table.id}: {gap.key} is not supported on Sail: {gap.reason}",
                HINT,
                table.mark_of(gap.key),
                "not-on-sail",
            )
    if _has_several_credentials(spec):
        yield Diagnostic(f"storage is not supported on Sail: {GAPS['storage']}", HINT, None, "not-on-sail")


def _asked(table: TableSpec) -> Iterator[Gap]:
    """Gaps in what any table may require of an engine, whatever its connectors."""
    if isinstance(table.source, SqlSource):
        yield Gap("from", GAPS["sql"])
    if table.columns.add:
        yield Gap("columns.add", GAPS["columns.add"])
    for check in table.expect:
        if SAIL in check.gaps:
            yield Gap("expect", check.gaps[SAIL])


def _connectors_gaps(spec: Spec, table: TableSpec) -> Iterator[Gap]:
    for name in table.connections:
        connection = spec.connections[name]
        yield from registry.capabilities(connection.type).gaps(SAIL, connection, table, spec.base_dir)


def _has_several_credentials(spec: Spec) -> bool:
    """Whether the storage that the tables need has more than one set of credentials. A URL without an entry has those
    of the environment, in whose place Sail would get the ones of an entry for another URL of its kind."""
    used = {name for table in spec.tables for name in table.connections}
    roots = [root for name in sorted(used) if (root := registry.storage(spec.connections[name])) is not None]
    urls = [url for url in (spec.state.url, *map(str, roots)) if scheme(url) != "file"]
    given = {url: found for url in urls if (found := credentials(url, spec.storage))}
    without = {scheme(url) for url in urls if url not in given}
    return len({repr(sorted(found.items())) for found in given.values()}) > 1 or not without.isdisjoint(
        map(scheme, given)
    )


def hashed_floats(table: TableSpec, columns: Sequence[Column]) -> list[str]:
    """The floating-point columns that would be part of this table's row hashes."""
    hashes = table.mode == "scd2" or (table.mode == "append" and table.cursor is not None)
    return [column.name for column in columns if hashes and _has_float(column.type)]


def same_but_for_case(columns: Sequence[Column]) -> list[str]:
    """The first names that differ only in case from each other; empty if there are none."""
    by_letters: dict[str, list[str]] = {}
    for column in columns:
        by_letters.setdefault(column.name.lower(), []).append(column.name)
    return next((names for names in by_letters.values() if len(names) > 1), [])


def _has_float(kind: types.DataType) -> bool:
    match kind:
        case types.Array(item):
            return _has_float(item)
        case types.Struct(fields):
            return any(_has_float(of) for _, of in fields)
        case _:
            return kind in (types.FLOAT, types.DOUBLE)
