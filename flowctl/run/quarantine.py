"""Quarantine: rejected rows are stored in a sidecar of the table, every column as text, with lineage, sequence number,
run and reason.

They are written before the batch, so the sidecar may contain a sequence number whose batch is never committed. Rows of
such sequence numbers are replaced by the next batch that is written, even if none of its rows are rejected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flowctl.connectors.letters import BAD_ROW_COLUMNS, REASON_COLUMN
from flowctl.connectors.target import DETECTED_COLUMN, OP_COLUMN, Target, WriteJob
from flowctl.engine.spark_types import named
from flowctl.errors import StoppedByPolicy
from flowctl.model import reserved, sidecars, types
from flowctl.model.commit import Commit
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.resolve.places import SIDECARS
from flowctl.spec.spec import Layout
from flowctl.sql.dialects import schema_ddl

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

_INTERNAL = (OP_COLUMN, DETECTED_COLUMN, REASON_COLUMN)
#: Which commit has rejected a row. Where several tables keep theirs, a sequence number is of one of them.
LINEAGE, NUMBER, _ = ORIGIN = (
    Column("_lineage", types.STRING),
    Column("_seq", types.INT64),
    Column("_run_id", types.STRING),
)
TABLE = Column("_table", types.STRING)
_REASON = Column("_reason", types.STRING)
OWN_COLUMNS = (*ORIGIN, _REASON)
#: Columns of a row that could not be read, while its batch is made and in the sidecar.
_OF_BAD_ROWS = {
    column.name: column.name.removeprefix(reserved.PREFIX) for column in BAD_ROW_COLUMNS if column.name != REASON_COLUMN
}


@dataclass(frozen=True)
class Sidecar:
    """How rejected rows are stored, and where if the spec names no place. ``own`` are columns that all rows have,
    whatever was rejected; ``stored`` makes the frame and its columns, in order; two rows are the same if their
    ``identity`` is (None: all but their origin). ``goes_with_content``: rows rejected before are removed when the
    target's whole content has been replaced."""

    suffix: str
    own: tuple[Column, ...]
    stored: Callable[[DataFrame, WriteJob], tuple[DataFrame, tuple[Column, ...]]]
    identity: tuple[str, ...] | None = None
    goes_with_content: bool = False

    def of(self, object: ObjectName) -> ObjectName:
        *folders, name = object.parts
        return ObjectName((*folders, name + self.suffix))


@dataclass(frozen=True)
class Place:
    """Where one table keeps rejected rows: ``object`` of ``target``. ``shared``: the spec names this place, and other
    tables may keep theirs there too."""

    target: Target
    object: ObjectName
    sidecar: Sidecar
    layout: Layout = Layout()
    shared: bool = False

    def job(self, job: WriteJob) -> WriteJob:
        """That of the rejected rows of ``job``."""
        columns, layout = self.sidecar.own, self.layout
        return replace(job, object=self.object, columns=columns, layout=layout, rows=None, key_bounds=None)


def quarantine(
    session: Callable[[], SparkSession],
    place: Place,
    job: WriteJob,
    rejected: DataFrame | None,
    newest: Commit | None,
    *,
    repeats: bool,
) -> None:
    """Stores the ``rejected`` rows of the job's batch (None: it has none). ``newest`` is the target's newest commit;
    ``repeats``: an earlier attempt of this sequence number may have stored some."""
    gave_up = newest is not None and newest.void
    if rejected is None and (place.target.is_log or not (repeats or gave_up)):
        return
    since = newest.seq if newest is not None and newest.void else job.record.seq
    target, side, sidecar = place.target, place.job(job), place.sidecar
    there = _existing(place, side)
    if rejected is not None:
        frame, columns = sidecar.stored(rejected, job)
        side = replace(side, columns=columns)
        if there is not None and _reads_again(job) and not (sidecar.goes_with_content and begins_anew(job)):
            frame = _not_kept_yet(frame, target.scan(session(), side.object, there.columns), side, since, sidecar)
        target.quarantine(session(), frame, side, since)
    elif there is not None:
        spark = session()
        target.quarantine(spark, spark.createDataFrame([], schema_ddl(sidecar.own)), side, since)


def count_kept(spark: SparkSession, place: Place, job: WriteJob, rejected: DataFrame) -> int:
    """How many of the ``rejected`` rows of the job's batch are in quarantine already, for the same reason. 0 if every
    row that is read is a new one, or if the batch becomes the target's whole content, which then lacks all of them."""
    if begins_anew(job) or not _reads_again(job):
        return 0
    frame, columns = place.sidecar.stored(rejected, job)
    side = replace(place.job(job), columns=columns)
    there = _existing(place, side)
    if there is None:
        return 0
    stored = place.target.scan(spark, side.object, there.columns)
    return int(rejected.count() - _not_kept_yet(frame, stored, side, job.record.seq, place.sidecar).count())


def _existing(place: Place, side: WriteJob) -> TableInfo | None:
    """The sidecar; None if there is none, or nobody can look. Raises if it is a table of someone else."""
    there = None if place.target.is_log else place.target.describe([side.object])[side.object]
    if there is not None and not {column.name.lower() for column in there.columns} >= reserved.FIRST_QUARANTINE:
        holds = SIDECARS[place.sidecar.suffix]
        raise StoppedByPolicy(
            f"{side.object}, where {side.record.table} would keep its {holds}, was not made by flowctl",
            hint="Rename or drop it, or give the table another `to`",
        )
    return there


def remove_rejected(
    session: Callable[[], SparkSession], place: Place, job: WriteJob, since: int, through: int | None = None
) -> None:
    """Removes what the job's lineage has rejected under sequence numbers from ``since`` to ``through`` (None: or
    above). A log keeps it."""
    if place.target.is_log:
        return
    side = place.job(job)
    there = place.target.describe([side.object])[side.object]
    if there is not None and {column.name.lower() for column in there.columns} >= reserved.FIRST_QUARANTINE:
        spark = session()
        place.target.quarantine(spark, spark.createDataFrame([], schema_ddl(side.columns)), side, since, through)


def begins_anew(job: WriteJob) -> bool:
    """Whether the target has nothing else after the job."""
    return job.replaces_content or not job.record.target_id


def _quarantined(rejected: DataFrame, job: WriteJob) -> tuple[DataFrame, tuple[Column, ...]]:
    from pyspark.sql import functions as f

    internal = {*_INTERNAL, *_OF_BAD_ROWS} | ({"row_hash"} if job.mode == "scd2" else set())
    text = {name: as_text(rejected, name) for name in rejected.columns if name not in internal}
    for landed, name in _OF_BAD_ROWS.items():
        if landed in rejected.columns:
            value = as_text(rejected, landed)
            text[name] = f.coalesce(text[name], value).alias(name) if name in text else value.alias(name)
    frame = rejected.select(*text.values(), *origin(job), named(REASON_COLUMN).alias(_REASON.name))
    return frame, (*(Column(name, types.STRING) for name in text), *OWN_COLUMNS)


def origin(job: WriteJob) -> list[SparkColumn]:
    """The values of :data:`ORIGIN`."""
    from pyspark.sql import functions as f

    values = (f.lit(job.record.lineage), f.lit(job.record.seq).cast("bigint"), f.lit(job.run_id))
    return [value.alias(column.name) for value, column in zip(values, ORIGIN, strict=True)]


QUARANTINE = Sidecar(sidecars.QUARANTINE, OWN_COLUMNS, _quarantined)


def _reads_again(job: WriteJob) -> bool:
    """Whether a row may be read in several runs. Rows that append reads are always new, even if they are equal."""
    return job.mode != "append" or job.replaces_content


def _not_kept_yet(frame: DataFrame, stored: DataFrame, side: WriteJob, since: int, sidecar: Sidecar) -> DataFrame:
    """``frame`` without the rows that are already in quarantine for the same reason and will not be replaced."""
    from pyspark.sql import functions as f

    present = set(stored.columns)
    if TABLE in sidecar.own:
        own = (f.col(LINEAGE.name) == side.record.lineage) & (f.col(TABLE.name) == side.record.table)
        stored = stored.where(own)
    if LINEAGE.name in present:
        replaced = (f.col(LINEAGE.name) == side.record.lineage) & (f.col(NUMBER.name) >= since)
        stored = stored.where(~f.coalesce(replaced, f.lit(False)))
    compared = sidecar.identity or [column.name for column in side.columns if column not in ORIGIN]
    known = stored.select(*(_stored(name, present).alias(f"k{n}") for n, name in enumerate(compared)))
    is_same = f.lit(True)
    for n, name in enumerate(compared):
        is_same = is_same & named(name).cast("string").eqNullSafe(f.col(f"k{n}"))
    return frame.join(known, is_same, "left_anti")


def _stored(name: str, present: set[str]) -> SparkColumn:
    from pyspark.sql import functions as f

    return (named(name) if name in present else f.lit(None)).cast("string")


def as_text(frame: DataFrame, name: str) -> SparkColumn:
    from pyspark.sql import functions as f

    kind = frame.schema[name].dataType.typeName()
    if kind in ("array", "struct"):
        return f.to_json(named(name)).alias(name)
    if kind == "binary":
        return f.hex(named(name)).alias(name)
    return named(name).cast("string").alias(name)
