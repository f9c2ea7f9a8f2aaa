"""A table with 500 columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg

from bench.case import Case, Competitor, Prepared, Setting, World
from bench.cases.postgres_to_delta import by_dlt
from bench.contents import equals, postgres
from bench.programs import flowctl, pyspark

_COLUMNS = 500
_ROWS = 200_000
#: Column types in rotation: type, and expression over row number ``n`` and column number ``{0}``. A row must fit into
#: 8 KiB.
_KINDS = (
    ("int", "(n * {0}) % 1000003"),
    ("bigint", "n * 7919 + {0}"),
    ("numeric(12,2)", "((n * {0}) % 999983) / 100.0"),
    ("double precision", "n / (1.0 + {0})"),
    ("text", "CASE WHEN (n + {0}) % 10 <> 0 THEN 'v' || (n * {0}) % 9973 END"),
    ("date", "date '2020-01-01' + ((n + {0}) % 2000)::int"),
    ("timestamp", "timestamp '2020-01-01' + ((n * {0}) % 100000) * interval '1 second'"),
    ("boolean", "(n + {0}) % 3 = 0"),
)


def _prepare(world: World) -> Prepared:
    rows = max(100, round(_ROWS * world.scale))
    kinds = [_KINDS[number % len(_KINDS)] for number in range(1, _COLUMNS)]
    columns = ", ".join(f"c{number:03} {kind}" for number, (kind, _) in enumerate(kinds, 1))
    values = ", ".join(expression.format(number) for number, (_, expression) in enumerate(kinds, 1))
    with psycopg.connect(world.postgres, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE wide (id bigint PRIMARY KEY, {columns})".encode())
        connection.execute(f"INSERT INTO wide SELECT n, {values} FROM generate_series(1, {rows}::bigint) AS n".encode())
        connection.execute("VACUUM ANALYZE wide")
    return Prepared(
        rows, f"{rows:,} rows × {_COLUMNS} columns of eight types", (postgres(world.postgres, "wide"),), "id"
    )


def _spec(setting: Setting) -> Mapping[str, Any]:
    return {
        "connections": {"pg": flowctl.postgres(setting.world.postgres), "lake": flowctl.LAKE},
        "tables": {"wide": {"from": "pg:public.wide", "to": "lake", "mode": "truncate"}},
    }


def _bulk(setting: Setting) -> Mapping[str, Any]:
    return {**pyspark.jdbc(setting.world.postgres), "table": "wide", "name": "wide"}


CASE = Case(
    name="wide",
    title="Wide table, PostgreSQL → Delta",
    says="A whole table of 500 columns into a Delta table that does not exist yet.",
    prepare=_prepare,
    needs=("postgres",),
    competitors=(
        flowctl.on_spark(_spec, check=equals(flowctl.in_lake("wide"))),
        flowctl.on_sail(_spec, check=equals(flowctl.in_lake("wide"))),
        Competitor("plain PySpark", pyspark.JDBC, pyspark.script("bulk", _bulk), equals(pyspark.in_lake("wide"))),
        by_dlt("pyarrow", "wide"),
        by_dlt("connectorx", "wide"),
    ),
)
