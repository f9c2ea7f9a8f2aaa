"""Builds the class-data archive: a small run does what small runs do, and its JVM writes down what it loaded."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from flowctl.errors import FlowctlError
from flowctl.run import archive, jars, java
from flowctl.run.session import open_engine
from flowctl.spec.spec import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Writing the archive is the last thing the JVM does.
_DUMP_SECONDS = 180.0
_KEPT = 3


class ArchiveFailed(FlowctlError):
    """The JVM wrote no archive. flowctl works without one; starting takes longer."""


def build_archive() -> Path:
    """The archive for this Java and all jars, which must be there; built anew. About half a minute."""
    found = java.find()
    final = archive.file_for(found, archive.all_jars())
    final.parent.mkdir(parents=True, exist_ok=True)
    final.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=final.parent, prefix=".training-") as folder:
        fresh = Path(folder, final.name)
        options = {"spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={fresh}"'}
        settings = SparkSettings("local[1]", {"spark.driver.memory": "1g", **options})
        with open_engine(settings, jars.sets(), {}, "small", stop_seconds=_DUMP_SECONDS) as engine:
            _train(engine.session_for("training"), Path(folder))
        if not fresh.is_file():
            raise ArchiveFailed(f"{found.command} wrote no class-data archive", hint="Is the disk full?")
        fresh.replace(final)
    _remove_old(final.parent)
    return final


def _remove_old(folder: Path) -> None:
    """An archive has 200 MB, and each new environment makes one: the newest few stay."""
    for archived in sorted(folder.glob("*.jsa"), key=lambda file: file.stat().st_mtime)[:-_KEPT]:
        archived.unlink()


def _train(spark: SparkSession, folder: Path) -> None:
    """Each way of reading and writing once: Parquet, CSV, Delta (create, append, MERGE, replace), an aggregate."""
    table = f"delta.`{folder / 'table'}`"
    rows = spark.range(100).selectExpr(
        "id", "cast(id AS string) AS name", "cast(id AS decimal(18,2)) AS amount", "current_timestamp() AS at"
    )
    segments, text = str(folder / "segments"), str(folder / "text")
    rows.write.parquet(segments)
    rows.write.csv(text, header=True)
    spark.read.csv(text, header=True, inferSchema=True).count()
    staged = spark.read.parquet(segments)
    staged.selectExpr("count(*)", "min(id)", "max(at)", "count(DISTINCT name)").collect()
    staged.write.format("delta").save(str(folder / "table"))
    staged.write.format("delta").mode("append").save(str(folder / "table"))
    staged.dropDuplicates(["id"]).createOrReplaceTempView("batch")
    columns = ("id", "name", "amount", "at")
    spark.sql(
        f"MERGE INTO {table} t USING batch s ON t.id = s.id "
        f"WHEN MATCHED AND sha2(t.name, 256) <> sha2(s.name, 256) THEN UPDATE SET {_pairs(columns)} "
        f"WHEN NOT MATCHED THEN INSERT ({', '.join(columns)}) VALUES ({', '.join('s.' + name for name in columns)})"
    ).collect()
    staged.write.format("delta").mode("overwrite").save(str(folder / "table"))
    spark.sql(f"SELECT name, sum(amount) FROM {table} GROUP BY name ORDER BY name").collect()


def _pairs(columns: tuple[str, ...]) -> str:
    return ", ".join(f"{name} = s.{name}" for name in columns)
