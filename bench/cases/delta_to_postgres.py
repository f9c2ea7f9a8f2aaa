"""The bulk load out of a Delta table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench import sources
from bench.case import Case, Competitor, Prepared, Relation, Setting, World
from bench.contents import delta, equals, postgres
from bench.programs import dlt, flowctl, ingestr, pyspark, sling


def _lake(world: World) -> Path:
    return world.folder / "source"


def _prepare(world: World) -> Prepared:
    rows = sources.lineitem_in_delta(world, _lake(world) / "lineitem")
    facts = f"TPC-H `lineitem`, {rows:,} rows × {len(sources.LINEITEM_TYPES)} columns"
    return Prepared(rows, facts, (delta(_lake(world) / "lineitem"),), "l_extendedprice", sources.LINEITEM_TYPES)


def _spec(setting: Setting) -> Mapping[str, Any]:
    return {
        "connections": {
            "lake": {"type": "delta", "path": str(_lake(setting.world))},
            "dst": flowctl.postgres(setting.database),
        },
        "tables": {"lineitem": {"from": "lake:lineitem", "to": "dst:public.lineitem", "mode": "truncate"}},
    }


def _script(setting: Setting) -> Mapping[str, Any]:
    return {**pyspark.jdbc(setting.database), "path": str(_lake(setting.world) / "lineitem"), "table": "lineitem"}


def _task(setting: Setting) -> Mapping[str, Any]:
    return {"delta": str(_lake(setting.world) / "lineitem"), "name": "lineitem", "target": setting.database}


def _in_database(schema: str) -> Callable[[Setting], tuple[Relation, ...]]:
    return lambda setting: (postgres(setting.database, f"{schema}.lineitem"),)


CASE = Case(
    name="delta-to-postgres",
    title="Delta → PostgreSQL, bulk",
    says="A whole Delta table on local disk, as `deltalake` writes it, into a table that does not exist yet.",
    prepare=_prepare,
    needs=("postgres",),
    competitors=(
        flowctl.on_spark(_spec, check=equals(_in_database("public")), database=True),
        flowctl.on_sail(_spec, check=equals(_in_database("public")), database=True),
        Competitor(
            "plain PySpark",
            f"{pyspark.LOCAL}; `write.jdbc`, 10,000 rows a batch, `reWriteBatchedInserts`",
            pyspark.script("delta_to_jdbc", _script),
            equals(_in_database("public")),
            database=True,
        ),
        Competitor(
            "dlt, pyarrow",
            "a resource over `deltalake`'s batches of at most 100,000 rows; postgres destination",
            dlt.load(_task),
            equals(_in_database("bench")),
            missing=dlt.missing,
            database=True,
        ),
        Competitor(
            "Sling",
            f"{sling.HOW}; reads Delta through DuckDB's program and extension",
            sling.run(
                lambda _: "file://",
                lambda setting: setting.database,
                lambda setting: f"file://{_lake(setting.world) / 'lineitem'}",
                "public.lineitem",
                "--src-options",
                "format: delta",
            ),
            equals(_in_database("public")),
            missing=sling.missing,
            database=True,
        ),
        ingestr.cannot("read tables in Delta"),
    ),
)
