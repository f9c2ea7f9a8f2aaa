"""The bulk load between two databases of one server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bench.case import Case, Competitor, Faster, Relation, Setting
from bench.cases.postgres_to_delta import prepare
from bench.contents import equals, postgres
from bench.programs import dlt, flowctl, ingestr, sling
from bench.programs.postgres import psql_psql


def _spec(setting: Setting) -> Mapping[str, Any]:
    return {
        "connections": {
            "pg": flowctl.postgres(setting.world.postgres),
            "dst": flowctl.postgres(setting.database),
        },
        "tables": {"lineitem": {"from": "pg:public.lineitem", "to": "dst:public.lineitem", "mode": "truncate"}},
    }


def _task(setting: Setting) -> Mapping[str, Any]:
    return {
        "source": setting.world.postgres,
        "schema": "public",
        "tables": ["lineitem"],
        "target": setting.database,
    }


def _source(setting: Setting) -> str:
    return setting.world.postgres


def _target(setting: Setting) -> str:
    return setting.database


def _in_database(schema: str) -> Callable[[Setting], tuple[Relation, ...]]:
    return lambda setting: (postgres(setting.database, f"{schema}.lineitem"),)


CASE = Case(
    name="postgres-to-postgres",
    title="PostgreSQL → PostgreSQL, bulk",
    says="A whole table into a table that does not exist yet, in another database of the same server.",
    prepare=prepare,
    needs=("postgres",),
    competitors=(
        flowctl.on_spark(_spec, check=equals(_in_database("public")), database=True),
        flowctl.on_sail(_spec, check=equals(_in_database("public")), database=True),
        Competitor(
            "Sling",
            sling.HOW,
            sling.run(_source, _target, lambda _: "public.lineitem", "public.lineitem"),
            equals(_in_database("public")),
            missing=sling.missing,
            database=True,
        ),
        Competitor(
            "dlt, pyarrow",
            f"{dlt.SQL}, backend pyarrow; postgres destination",
            dlt.load(_task),
            equals(_in_database("bench")),
            missing=dlt.missing,
            database=True,
        ),
        Competitor(
            "ingestr",
            ingestr.HOW,
            ingestr.ingest(_source, _target, "public.lineitem", "bench.lineitem"),
            equals(_in_database("bench")),
            missing=ingestr.missing,
            database=True,
        ),
        Competitor(
            "psql to psql",
            "`COPY … (FORMAT binary)` out of one and into the other: one stream, no bookkeeping",
            psql_psql,
            equals(_in_database("public")),
            database=True,
        ),
    ),
    targets=(
        Faster("flowctl", 2.5, than="Sling"),
        Faster("flowctl on Sail", 2.5, than="Sling"),
        Faster("flowctl on Sail", 0.6, than="psql to psql"),
    ),
)
