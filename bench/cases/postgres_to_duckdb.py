"""The bulk load into a DuckDB file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bench import peers
from bench.case import Case, Command, Competitor, Relation, Setting
from bench.cases.postgres_to_delta import prepare
from bench.contents import duckdb, equals, postgres
from bench.programs import dlt, flowctl, ingestr, sling

_FILE = "lineitem.duckdb"


def _spec(setting: Setting) -> Mapping[str, Any]:
    return {
        "connections": {"pg": flowctl.postgres(setting.world.postgres), "dst": {"type": "duckdb", "path": _FILE}},
        "tables": {"lineitem": {"from": "pg:public.lineitem", "to": "dst:lineitem", "mode": "truncate"}},
    }


def _source(setting: Setting) -> str:
    return setting.world.postgres


def _target(setting: Setting) -> str:
    return f"duckdb:///{setting.folder / _FILE}"


def _into(schema: str) -> Callable[[Setting], tuple[Relation, ...]]:
    return lambda setting: (duckdb(setting.folder / _FILE, f"{schema}.lineitem"),)


def _by_dlt(backend: str) -> Competitor:
    def task(setting: Setting) -> Mapping[str, Any]:
        source = {"source": setting.world.postgres, "schema": "public", "tables": ["lineitem"], "backend": backend}
        return {**source, "target": _target(setting)}

    how = f"{dlt.SQL}, backend {backend}; duckdb destination"
    return Competitor(f"dlt, {backend}", how, dlt.load(task), equals(_into("bench")), missing=dlt.missing)


def _duckdb(setting: Setting) -> Command:
    scan = postgres(setting.world.postgres, "lineitem").sql
    argv = (peers.python("check"), str(peers.HERE / "plain_duckdb.py"), str(setting.folder / _FILE), scan)
    return Command(argv, setting.folder)


CASE = Case(
    name="postgres-to-duckdb",
    title="PostgreSQL → DuckDB, bulk",
    says="A whole table into a DuckDB file that does not exist yet.",
    prepare=prepare,
    needs=("postgres",),
    competitors=(
        flowctl.on_spark(_spec, check=equals(_into("main"))),
        flowctl.on_sail(_spec, check=equals(_into("main"))),
        _by_dlt("pyarrow"),
        _by_dlt("connectorx"),
        Competitor(
            "Sling",
            f"{sling.HOW}; writes through DuckDB's program",
            sling.run(_source, _target, lambda _: "public.lineitem", "main.lineitem"),
            equals(_into("main")),
            missing=sling.missing,
        ),
        Competitor(
            "ingestr",
            ingestr.HOW,
            ingestr.ingest(_source, _target, "public.lineitem", "bench.lineitem"),
            equals(_into("bench")),
            missing=ingestr.missing,
        ),
        Competitor(
            "DuckDB alone",
            "`CREATE TABLE … AS FROM postgres_scan(…)`: binary COPY from ranges of pages, no bookkeeping",
            _duckdb,
            equals(_into("main")),
            missing=lambda _: peers.missing("check"),
        ),
    ),
)
