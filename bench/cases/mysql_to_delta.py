"""The bulk load out of MariaDB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from bench import sources
from bench.case import Case, Competitor, Prepared, Setting, World
from bench.contents import csv, equals
from bench.programs import dlt, flowctl, ingestr, pyspark, sling


def _prepare(world: World) -> Prepared:
    rows = sources.lineitem_in_mysql(world)
    facts = f"TPC-H `lineitem`, {rows:,} rows × {len(sources.LINEITEM_TYPES)} columns"
    loaded = csv(sources.generated(world.scale, "lineitem"), sources.LINEITEM_TYPES)
    return Prepared(rows, facts, (loaded,), "l_extendedprice", sources.LINEITEM_TYPES)


def _spec(setting: Setting) -> Mapping[str, Any]:
    return {
        "connections": {"my": flowctl.mysql(setting.world.mysql), "lake": flowctl.LAKE},
        "tables": {"lineitem": {"from": "my:lineitem", "to": "lake", "mode": "truncate"}},
    }


def _bulk(setting: Setting) -> Mapping[str, Any]:
    """A fetch size makes the driver read by a cursor, rather than the whole table at once."""
    parts = urlsplit(setting.world.mysql)
    url = f"jdbc:mysql://{parts.hostname}:{parts.port}{parts.path}?useCursorFetch=true&useSSL=false"
    access = {"user": parts.username or "", "secret": "BENCH_MYSQL_PASSWORD", "driver": "com.mysql.cj.jdbc.Driver"}
    return {"url": url, **access, "table": "lineitem", "name": "lineitem"}


def _by_dlt(backend: str) -> Competitor:
    def task(setting: Setting) -> Mapping[str, Any]:
        return {"source": setting.world.mysql, "tables": ["lineitem"], "backend": backend}

    how = f"{dlt.SQL}, backend {backend}; {dlt.DELTA}"
    return Competitor(f"dlt, {backend}", how, dlt.load(task), equals(dlt.in_lake("lineitem")), missing=dlt.missing)


CASE = Case(
    name="mysql-to-delta",
    title="MySQL → Delta, bulk",
    says="A whole table of a MariaDB server into a Delta table that does not exist yet, on local disk.",
    prepare=_prepare,
    needs=("mysql",),
    competitors=(
        flowctl.on_spark(_spec, check=equals(flowctl.in_lake("lineitem"))),
        flowctl.on_sail(_spec, check=equals(flowctl.in_lake("lineitem"))),
        Competitor(
            "plain PySpark",
            pyspark.JDBC,
            pyspark.script("bulk", _bulk, pyspark.MYSQL),
            equals(pyspark.in_lake("lineitem")),
            missing=pyspark.missing(pyspark.MYSQL),
        ),
        _by_dlt("pyarrow"),
        _by_dlt("connectorx"),
        sling.cannot("write tables in Delta"),
        ingestr.cannot("write tables in Delta"),
    ),
)
