"""The bulk load of a CSV file in an object store into an Iceberg table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bench import sources
from bench.case import Case, Competitor, Prepared, Relation, Setting, World
from bench.contents import csv, equals, iceberg
from bench.programs import dlt, flowctl, ingestr, pyspark, sling
from bench.servers import BUCKET

_TYPES = sources.LINEITEM_TYPES
_DECLARED = {name: sources.spark_type(kind) for name, kind in _TYPES.items()}
_FILE = "lineitem.csv"


def _prepare(world: World) -> Prepared:
    file = sources.generated(world.scale, "lineitem")
    rows = sources.put(world, file, BUCKET)
    facts = f"TPC-H `lineitem`, {rows:,} rows × {len(_TYPES)} columns, {file.stat().st_size / (1 << 20):,.0f} MiB"
    return Prepared(rows, facts, (csv(file, _TYPES),), "l_extendedprice", _TYPES)


def _spec(setting: Setting) -> Mapping[str, Any]:
    keys = {
        "endpoint": setting.world.s3,
        "region": "us-east-1",
        "access_key": "${secret:env:AWS_ACCESS_KEY_ID}",
        "secret_key": "${secret:env:AWS_SECRET_ACCESS_KEY}",
    }
    form = {"type": "csv", "schema": _DECLARED}
    return {
        "storage": {f"s3://{BUCKET}": keys},
        "connections": {
            "files": {"type": "files", "path": f"s3://{BUCKET}"},
            "lake": {"type": "iceberg", "warehouse": "lake"},
        },
        "tables": {"lineitem": {"from": f"files:{_FILE}", "to": "lake", "mode": "append", "format": form}},
    }


def _script(setting: Setting) -> Mapping[str, Any]:
    schema = ", ".join(f"{name} {kind}" for name, kind in _DECLARED.items())
    return {"path": f"s3a://{BUCKET}/{_FILE}", "endpoint": setting.world.s3, "schema": schema, "name": "lineitem"}


def _task(_setting: Setting) -> Mapping[str, Any]:
    source = {"files": f"s3://{BUCKET}/{_FILE}", "name": "lineitem", "types": dict(_TYPES)}
    return {**source, "table_format": "iceberg"}


def _in(*path: str) -> Callable[[Setting], tuple[Relation, ...]]:
    return lambda setting: (iceberg(setting.folder.joinpath("lake", *path)),)


CASE = Case(
    name="csv-on-s3-to-iceberg",
    title="CSV on S3 → Iceberg, bulk",
    says="One file in a bucket with the whole table, into an Iceberg table that does not exist yet, on local disk.",
    prepare=_prepare,
    needs=("s3",),
    competitors=(
        flowctl.on_spark(_spec, check=equals(_in("default", "lineitem"))),
        flowctl.on_sail(_spec, check=equals(_in("default", "lineitem"))),
        Competitor(
            "plain PySpark",
            f"{pyspark.LOCAL}; `spark.read.schema(…).csv` by S3A, Iceberg's own writer in a Hadoop catalog",
            pyspark.script("csv_to_iceberg", _script, pyspark.ICEBERG),
            equals(_in("bench", "lineitem")),
            missing=pyspark.missing(pyspark.ICEBERG),
        ),
        Competitor(
            "dlt, pyarrow",
            "filesystem source by s3fs, a transformer with pyarrow's own CSV reader; filesystem destination with"
            " `table_format=iceberg`, telemetry off",
            dlt.load(_task),
            equals(_in("bench", "lineitem")),
            missing=dlt.missing,
        ),
        sling.cannot("write tables in Iceberg without a REST, Glue or SQL catalog on an object store"),
        ingestr.cannot("write tables in Iceberg"),
    ),
    notes=(
        "S3 is VersityGW over a folder on the same disk and cores. In moto, one Python process would serve every byte.",
    ),
)
