"""Local files into Delta: an SQLite file, CSV and Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench import sources
from bench.case import Case, Competitor, Prepared, Setting, World
from bench.contents import csv, equals
from bench.programs import dlt, flowctl, pyspark

_SAYS = "One file with the whole table, into a Delta table that does not exist yet, on local disk."
_TYPES = sources.LINEITEM_TYPES
#: INTEGER has 64 bits in SQLite.
_SQLITE_TYPES = {name: "BIGINT" if kind == "INTEGER" else kind for name, kind in _TYPES.items()}
_DECLARED = {name: sources.spark_type(kind) for name, kind in _TYPES.items()}


def _prepare(make: Callable[[float], Path], types: Mapping[str, str] = _TYPES) -> Callable[[World], Prepared]:
    def prepare(world: World) -> Prepared:
        make(world.scale)
        text = sources.generated(world.scale, "lineitem")
        with text.open("rb") as lines:
            rows = sum(1 for _ in lines) - 1
        facts = f"TPC-H `lineitem`, {rows:,} rows × {len(_TYPES)} columns"
        return Prepared(rows, facts, (csv(text, types),), "l_extendedprice", types)

    return prepare


def _sqlite_spec(setting: Setting) -> Mapping[str, Any]:
    path = str(sources.sqlite_lineitem(setting.world.scale))
    return {
        "connections": {"src": {"type": "sqlite", "path": path}, "lake": flowctl.LAKE},
        "tables": {"lineitem": {"from": "src:lineitem", "to": "lake", "mode": "truncate"}},
    }


def _sqlite_task(setting: Setting) -> Mapping[str, Any]:
    return {"source": f"sqlite:///{sources.sqlite_lineitem(setting.world.scale)}", "tables": ["lineitem"]}


SQLITE = Case(
    name="sqlite-to-delta",
    title="SQLite → Delta, bulk",
    says=_SAYS,
    prepare=_prepare(sources.sqlite_lineitem, _SQLITE_TYPES),
    competitors=(
        flowctl.on_spark(_sqlite_spec, check=equals(flowctl.in_lake("lineitem"))),
        flowctl.on_sail(_sqlite_spec, check=equals(flowctl.in_lake("lineitem"))),
        Competitor(
            "dlt, pyarrow",
            f"{dlt.SQL}, backend pyarrow; {dlt.DELTA}",
            dlt.load(_sqlite_task),
            equals(dlt.in_lake("lineitem")),
            missing=dlt.missing,
        ),
    ),
    notes=("Plain PySpark has no part in it: Spark has no reader for SQLite, and brings no JDBC driver for it.",),
)


def _files_spec(form: str) -> Callable[[Setting], Mapping[str, Any]]:
    def spec(setting: Setting) -> Mapping[str, Any]:
        file = sources.generated(setting.world.scale, "lineitem", form)
        table: dict[str, Any] = {"from": f"files:{file.name}", "to": "lake", "mode": "append"}
        if form == "csv":
            table["format"] = {"type": "csv", "schema": _DECLARED}
        return {
            "connections": {"files": {"type": "files", "path": str(file.parent)}, "lake": flowctl.LAKE},
            "tables": {"lineitem": table},
        }

    return spec


def _files_task(form: str) -> Callable[[Setting], Mapping[str, Any]]:
    def task(setting: Setting) -> Mapping[str, Any]:
        file = sources.generated(setting.world.scale, "lineitem", form)
        return {"files": str(file), "name": "lineitem", "types": dict(_TYPES)}

    return task


def _script_options(form: str) -> Callable[[Setting], Mapping[str, Any]]:
    def options(setting: Setting) -> Mapping[str, Any]:
        schema = ", ".join(f"{name} {kind}" for name, kind in _DECLARED.items())
        file = sources.generated(setting.world.scale, "lineitem", form)
        return {"path": str(file), "schema": schema, "name": "lineitem"}

    return options


def _files(form: str, title: str, reader: str, notes: tuple[str, ...] = ()) -> Case:
    spec = _files_spec(form)
    return Case(
        name=f"{form}-to-delta",
        title=f"{title} → Delta, bulk",
        says=_SAYS,
        prepare=_prepare(lambda scale: sources.generated(scale, "lineitem", form)),
        competitors=(
            flowctl.on_spark(spec, check=equals(flowctl.in_lake("lineitem"))),
            flowctl.on_sail(spec, check=equals(flowctl.in_lake("lineitem"))),
            Competitor(
                "plain PySpark",
                f"{pyspark.LOCAL}; {reader}",
                pyspark.script(form, _script_options(form)),
                equals(pyspark.in_lake("lineitem")),
            ),
            Competitor(
                "dlt, pyarrow",
                f"filesystem source, a transformer with pyarrow's own {title} reader; {dlt.DELTA}",
                dlt.load(_files_task(form)),
                equals(dlt.in_lake("lineitem")),
                missing=dlt.missing,
            ),
        ),
        notes=notes,
    )


CSV = _files("csv", "CSV", "`spark.read.schema(…).csv`")
PARQUET = _files(
    "parquet",
    "Parquet",
    "`spark.read.parquet`",
    notes=("The generator's file is written again once, with plain strings: its string views are read by Spark only.",),
)
