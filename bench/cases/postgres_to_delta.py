"""The bulk load, which dominates most runs, and the upper limit of a single stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench import sources
from bench.case import Case, Competitor, Faster, Prepared, Setting, World
from bench.contents import equals, postgres
from bench.programs import dlt, flowctl, pyspark
from bench.programs.postgres import psql_nowhere

TITLE = "PostgreSQL → Delta, bulk"
DLT_CONNECTORX = "dlt, connectorx"
DLT_PYARROW = "dlt, pyarrow"


def prepare(world: World) -> Prepared:
    rows = sources.lineitem(world)
    facts = f"TPC-H `lineitem`, {rows:,} rows × {len(sources.LINEITEM_TYPES)} columns"
    return Prepared(rows, facts, (postgres(world.postgres, "lineitem"),), "l_extendedprice")


def spec(setting: Setting) -> Mapping[str, Any]:
    return {
        "connections": {"pg": flowctl.postgres(setting.world.postgres), "lake": flowctl.LAKE},
        "tables": {"lineitem": {"from": "pg:public.lineitem", "to": "lake", "mode": "truncate"}},
    }


def _bulk(setting: Setting) -> Mapping[str, Any]:
    return {**pyspark.jdbc(setting.world.postgres), "table": "lineitem", "name": "lineitem"}


def by_dlt(backend: str, table: str = "lineitem") -> Competitor:
    def task(setting: Setting) -> Mapping[str, Any]:
        return {"source": setting.world.postgres, "schema": "public", "tables": [table], "backend": backend}

    return Competitor(
        f"dlt, {backend}",
        f"{dlt.SQL}, backend {backend}; {dlt.DELTA}",
        dlt.load(task),
        equals(dlt.in_lake(table)),
        missing=dlt.missing,
    )


CASE = Case(
    name="postgres-to-delta",
    title=TITLE,
    says="A whole table into a Delta table that does not exist yet, on local disk.",
    prepare=prepare,
    needs=("postgres",),
    competitors=(
        flowctl.on_spark(spec, check=equals(flowctl.in_lake("lineitem"))),
        flowctl.on_sail(spec, check=equals(flowctl.in_lake("lineitem"))),
        Competitor("plain PySpark", pyspark.JDBC, pyspark.script("bulk", _bulk), equals(pyspark.in_lake("lineitem"))),
        by_dlt("pyarrow"),
        by_dlt("connectorx"),
        Competitor(
            "psql to nowhere", r"`\copy … to /dev/null (format binary)`: one stream, nothing is written", psql_nowhere
        ),
    ),
    targets=(
        Faster("flowctl", 1.6, than="plain PySpark"),
        Faster("flowctl", 2, than=DLT_PYARROW),
        Faster("flowctl", 1, than=DLT_CONNECTORX),
        Faster("flowctl on Sail", 2, than=DLT_CONNECTORX),
    ),
)
