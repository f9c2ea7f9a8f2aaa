"""What Sail cannot do with Delta tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from flowctl.connectors.delta.features import demanding_features, is_unnamed
from flowctl.connectors.gaps import UNREACHABLE, Gap, unreachable
from flowctl.engine.session import SAIL
from flowctl.model import types
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column, TableInfo
from flowctl.spec.spec import Connection, TableSpec

GAPS: Mapping[str, str] = {
    "layout.cluster_by": "it cannot create clustered tables",
    "path": UNREACHABLE,
    "partition": "it writes negative decimals in partition values as text that no reader understands",
    "widen": "files of the narrower type would have to be read as the wider one",
    "protocol": "the version implies features of which the table may use some, and only Spark can list them",
    "features": "flowctl writes the log entry there, and these features require more of a commit",
}


def of_spec(engine: str, connection: Connection, table: TableSpec, base_dir: str) -> Iterator[Gap]:
    """See :class:`flowctl.connectors.base.Capabilities`."""
    if engine == SAIL and table.target.connection == connection.name:  # flowctl's process reads a source
        if table.layout.cluster_by:
            yield Gap("layout.cluster_by", GAPS["layout.cluster_by"])
        yield from unreachable("/".join([str(connection.options["path"]), *table.target.parts]), base_dir)


def of_write(
    engine: str,
    there: TableInfo | None,
    partitioned: Sequence[Column],
    changes: Sequence[SchemaChange],
    *,
    rebuilds: bool,
) -> Gap | None:
    """See :meth:`flowctl.connectors.target.TargetRules.gap`; ``partitioned`` are the table's partition columns."""
    if engine != SAIL:
        return None
    widened = [change.column for change in changes if change.action == "widen"]
    if there is not None and widened and not rebuilds:
        return Gap("on_schema_change", GAPS["widen"], f"widening {', '.join(widened)}")
    if decimals := [column.name for column in partitioned if isinstance(column.type, types.Decimal)]:
        return Gap("layout.partition_by", GAPS["partition"], f"partitions by {', '.join(decimals)}")
    if there is None:
        return None
    if demanding := demanding_features(there.extra["features"], there.extra["properties"]):
        return Gap("to", GAPS["features"], f"a table with {', '.join(demanding)}")
    needed = [change.column for change in changes if change.action == "enable"]
    if needed and is_unnamed(there.extra.get("writer_version", 0)):
        return Gap("to", GAPS["protocol"], f"{', '.join(needed)} in a table of an old writer version")
    return None
