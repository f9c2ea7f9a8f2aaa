"""What a flow cannot do on Sail (``spark.url: sail``, pysail 0.7), each with its reason: this is the whole list.

What the spec alone tells is an error of ``validate``; what only the source or the target tells stops the table in the
plan. Anything that is not here behaves as on Apache Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from flowctl.connectors.files.formats import format_of
from flowctl.diagnostics import Diagnostic
from flowctl.engine.session import SAIL, reachable
from flowctl.errors import TableError
from flowctl.expect.kinds import kinds
from flowctl.model import types
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column
from flowctl.spec.secrets import without_references
from flowctl.spec.spec import Connection, ObjectSource, Spec, SqlSource, TableSpec
from flowctl.storage.options import credentials

HINT = "Run this flow with spark.url local[*]"

GAPS: Mapping[str, str] = {
    "sql": "integer overflow is not detected there",
    "columns.add": "integer overflow is not detected there",
    **{f"expect.{key}": check.gaps[SAIL] for key, check in kinds().items() if SAIL in check.gaps},
    "format": "it reads Parquet only as exactly as flowctl promises",
    "format.csv": "pyarrow reads CSV for it, with doubled quotes and one sign as delimiter",
    "layout.cluster_by": "it cannot make clustered tables",
    "partition": "it writes negative decimals of a partition as text that no reader can read",
    "path": "it cannot reach a path with other characters than letters, digits and . _ - / = + ~ @ :",
    "storage": "it takes one set of credentials for all object storage",
    "widen": "files of the narrower type would have to be read as the wider one",
    "float": "it writes floating-point numbers as other text than Spark, so row hashes would not match",
    "protocol": "the version stands for features of which the table may use some, and only Spark names these",
    "features": "the commits there are flowctl's own, and these features ask more of a commit",
}


def check(spec: Spec, tables: Sequence[TableSpec]) -> Iterator[Diagnostic]:
    """Everything in the spec that the flow's engine would not keep a promise about; nothing for other engines."""
    if spec.spark.url != SAIL:
        return
    for table in tables:
        for path, gap in _asked(table, spec.connections):
            yield Diagnostic(
                f"{table.id}: {path} cannot be on Sail: {GAPS[gap]}", HINT, table.mark_of(path), "not-on-sail"
            )
    for connection in spec.connections.values():
        path = without_references(str(connection.options.get("path", "")), "x")  # whose values nobody knows here
        if not reachable(path) and connection.type != "sqlite":
            what = f"connections.{connection.name}.path cannot be on Sail: {GAPS['path']}"
            yield Diagnostic(what, HINT, connection.mark, "not-on-sail")
    if len(_stores(spec)) > 1:
        yield Diagnostic(f"storage cannot be on Sail: {GAPS['storage']}", HINT, None, "not-on-sail")


def is_unordered(table: TableSpec, spark_url: str) -> bool:
    """Whether nothing tells the order of the rows of files: Sail reads all but CSV by itself."""
    if spark_url != SAIL or not isinstance(table.source, ObjectSource):
        return False
    try:
        return not format_of(table.source.parts[-1], table.format).is_common_csv
    except TableError:
        return False  # the plan stops the table and says why


def _asked(table: TableSpec, connections: Mapping[str, Connection]) -> Iterator[tuple[str, str]]:
    """(key of the spec, gap)"""
    source = table.source
    if isinstance(source, SqlSource):
        yield "from", "sql"
    if table.columns.add:
        yield "columns.add", "columns.add"
    for check in table.expect:
        if SAIL in check.gaps:
            yield "expect", f"expect.{check.key}"
    if isinstance(source, ObjectSource) and connections[source.connection].type == "files":
        yield from _format_gaps(source, table)
    if table.layout.cluster_by:
        yield "layout.cluster_by", "layout.cluster_by"
    if connections[table.target.connection].type == "delta" and not reachable("/".join(table.target.parts)):
        yield "to", "path"


def _format_gaps(source: ObjectSource, table: TableSpec) -> Iterator[tuple[str, str]]:
    try:
        format = format_of("/".join(source.parts), table.format)
    except TableError:
        return  # the source's own error tells more
    if format.name == "csv" and not format.is_common_csv:
        yield "from", "format.csv"
    elif format.name not in ("csv", "parquet"):
        yield "from", "format"


def _stores(spec: Spec) -> set[str]:
    """The different credentials of what Spark has to reach."""
    urls = [spec.state.url, *(str(one.options["path"]) for one in spec.connections.values() if "path" in one.options)]
    return {repr(sorted(found.items())) for url in urls if (found := credentials(url, spec.storage))}


def hashed_floats(table: TableSpec, columns: Sequence[Column]) -> list[str]:
    """The floating-point columns that a row hash of this table would hold."""
    hashes = table.mode == "scd2" or (table.mode == "append" and table.cursor is not None)
    return [column.name for column in columns if hashes and _has_float(column.type)]


def _has_float(kind: types.DataType) -> bool:
    match kind:
        case types.Array(item):
            return _has_float(item)
        case types.Struct(fields):
            return any(_has_float(of) for _, of in fields)
        case _:
            return kind in (types.FLOAT, types.DOUBLE)


def widened(changes: Sequence[SchemaChange]) -> list[str]:
    return [change.column for change in changes if change.action == "widen"]
