"""Builds the class-data archive: a small training run does what small runs do, and its JVM dumps the loaded classes."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from flowctl.connectors import registry
from flowctl.connectors.base import Capabilities, OpenContext
from flowctl.connectors.buffered import buffered
from flowctl.connectors.target import DETECTED_COLUMN, OP_COLUMN, Target, WriteJob
from flowctl.diagnostics import Mark
from flowctl.engine import archive, jars, java
from flowctl.engine.batch import OnEngine
from flowctl.engine.start import open_engine
from flowctl.errors import FlowctlError
from flowctl.model import types
from flowctl.model.commit import Commit
from flowctl.model.mode import Mode
from flowctl.model.position import VersionPosition
from flowctl.model.table_info import Column, ObjectName
from flowctl.spec.spec import Connection, Layout, SparkSettings
from flowctl.storage.buffer import Buffer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = (
    Column("id", types.INT64),
    Column("name", types.STRING),
    Column("amount", types.Decimal(18, 2)),
    Column("at", types.TIMESTAMP),
)
_VERSION = (
    Column("valid_from", types.TIMESTAMP),
    Column("valid_to", types.TIMESTAMP),
    Column("is_current", types.BOOL),
    Column("row_hash", types.STRING),
)
# Time to exit: the JVM writes the archive last.
_DUMP_SECONDS = 180.0
_KEPT = 3


class ArchiveFailed(FlowctlError):
    """The JVM wrote no archive. flowctl works without one, but starts more slowly."""


def build_archive(sets: Collection[str]) -> Path:
    """Builds the archive for this Java and the jars of these sets, which must exist, replacing an existing one. Takes
    about half a minute."""
    found = java.find()
    final = archive.file_for(found, jars.files_of(sets))
    final.parent.mkdir(parents=True, exist_ok=True)
    final.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=final.parent, prefix=".training-") as folder:
        fresh = Path(folder, final.name)
        options = {"spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={fresh}"'}
        settings = SparkSettings("local[1]", {"spark.driver.memory": "1g", **options})
        able = {
            type: capabilities
            for type, capabilities in registry.all_capabilities().items()
            if set(capabilities.jars) <= set(sets)
        }
        extensions = [capabilities.spark for capabilities in able.values() if capabilities.spark]
        with open_engine(settings, sets, {}, "small", extensions=extensions, stop_seconds=_DUMP_SECONDS) as engine:
            _train(engine.session_for("training"), Path(folder), able)
        if not fresh.is_file():
            raise ArchiveFailed(f"{found.command} wrote no class-data archive", hint="Check that the disk is not full")
        fresh.replace(final)
    _remove_old(final.parent)
    return final


def _remove_old(folder: Path) -> None:
    """Keeps only the newest archives: one has 200 MB, and each new environment creates another."""
    for archived in sorted(folder.glob("*.jsa"), key=lambda file: file.stat().st_mtime)[:-_KEPT]:
        archived.unlink()


def _train(spark: SparkSession, folder: Path, able: Mapping[str, Capabilities]) -> None:
    """Reads and writes twice in every way that tables of the connectors ``able`` do, so that all classes they need are
    loaded."""
    rows = spark.range(100).selectExpr(
        "id", "cast(id AS string) AS name", "cast(id AS decimal(18,2)) AS amount", "current_timestamp() AS at"
    )
    _read_files(spark, rows, folder)
    with suppress(Exception):  # nothing listens on that port, but the driver is loaded if it is there
        spark.read.jdbc("jdbc:postgresql://127.0.0.1:1/none", "t", properties={"user": "none"}).count()
    buffer = Buffer(str(folder), "training", {})
    context = OpenContext(base_dir=str(folder), buffer=buffer)
    for type, capabilities in able.items():
        if capabilities.training is None:
            continue
        place = Connection(type, type, capabilities.training(str(folder / type)), Mark("training", 1, 1))
        with registry.open(place, context) as connector:
            assert connector.target is not None
            for mode in ("append", "truncate", "merge", "scd2"):
                for seq in (1, 2):
                    batch = rows.where(f"id % {seq} = 0")
                    _write(spark, connector.target, _staged(batch, buffer), _COLUMNS, mode, seq)


def _read_files(spark: SparkSession, rows: DataFrame, folder: Path) -> None:
    parquet, text = str(folder / "segments"), str(folder / "text")
    rows.write.parquet(parquet)
    rows.write.csv(text, header=True)
    spark.read.csv(text, header=True, inferSchema=True).count()
    spark.read.parquet(parquet).selectExpr("count(*)", "min(id)", "max(at)", "count(DISTINCT name)").collect()


def _staged(rows: DataFrame, buffer: Buffer) -> DataFrame:
    """One row per key, through the buffer, with the columns that merge and scd2 need."""
    folder = buffer.folder("rows")
    ranked = rows.selectExpr("*", "row_number() OVER (PARTITION BY id ORDER BY at DESC, xxhash64(id, name)) AS place")
    shaped = ranked.where("place = 1").selectExpr(
        "id", "name", "amount", "at", "at AS valid_from", f"'U' AS {OP_COLUMN}", f"false AS {DETECTED_COLUMN}"
    )
    hashed = shaped.selectExpr("*", "sha2(concat_ws('|', name, cast(amount AS string)), 256) AS row_hash")
    staged = buffered(hashed, folder)
    staged.selectExpr("count(*)", f"count_if({OP_COLUMN} = 'D')", "count_if(id IS NULL)").collect()
    return staged


def _write(
    spark: SparkSession, target: Target, rows: DataFrame, columns: tuple[Column, ...], mode: Mode, seq: int
) -> None:
    table = ObjectName((mode,))
    if mode == "scd2":
        columns = (*columns, *_VERSION)
    else:
        rows = rows.drop("valid_from", "row_hash", DETECTED_COLUMN, *([] if mode == "merge" else [OP_COLUMN]))
    found = target.describe([table])[table]
    job = WriteJob(
        record=Commit("training", mode, seq, f"intent-{seq}", found.identity if found else "", VersionPosition(seq)),
        object=table,
        mode=mode,
        columns=columns,
        key=("id",),
        compared=("name", "amount", "at"),
        create=() if found else tuple(target.create_statements(table, columns, Layout(statistics=("id",)))),
        run_id="training",
        fence=seq,
        at="2026-01-01T00:00:00.000000Z",
    )
    target.write(spark, OnEngine(rows), job)
