"""scd2 on Delta: two tables, so two commits, and only the second one counts.

First the observations go into the sidecar, then one MERGE derives the versions under the job's number. A try that
dies between the two leaves observations whose rows were never written, or are written later: on a Spark Connect server
its MERGE may outlive its client, and land while the next try is at work. So each try marks its observations, its
commit says which try it was, and only the observations of tries that landed count. The others are removed once their
number is settled; a void settles it too.

The sidecar has numbers of its own: Delta's version that the write will make. A zombie of an older try has an older
one, which Delta then skips. That number is also the observations' arrival: it rises over lineages and restores too.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from flowctl.connectors.base import DETECTED_COLUMN, OP_COLUMN, Scratch, WriteJob
from flowctl.connectors.delta import batch, log, statements, transaction
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.log import LoggedCommit
from flowctl.errors import StateConflict, TransientError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.spec.spec import Layout
from flowctl.sql import dialects, scd2
from flowctl.sql.scd2 import Versioning

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Whose try an observation belongs to.
_LINEAGE, _NUMBER, _ATTEMPT = (
    Column("_lineage", types.STRING),
    Column("_seq", types.INT64),
    Column("_try", types.STRING),
)


def commit(
    spark: SparkSession, location: TableLocation, frame: DataFrame, job: WriteJob, scratch: Scratch
) -> LoggedCommit:
    """Writes one batch of history and returns the commit of the versions.

    What the derivation reads is small (the batch's keys) and its plan is large, so each input is worked out once and
    kept in the buffer: as one plan, planned twice over, it took longer than all of its rows.
    """
    observed = location.beside(scd2.OBSERVED_SUFFIX)
    rows = batch.with_operations(frame)
    keys = rows.select(*map(statements.quoted, job.key)).distinct()
    version = _version(location)
    attempt = uuid.uuid4().hex
    with (
        batch.view_of(rows) as batch_view,
        batch.view_of(_kept(_of_keys(_content(spark, location), keys, job), "versions", job, scratch)) as versions,
    ):
        seen, arrival = _observe(spark, location, observed, attempt, keys, batch_view, versions, job, scratch)
        with batch.view_of(seen) as seen_view:
            change = _versioning(spark, batch_view, versions, seen_view, arrival, job)
            difference = _kept(spark.sql(scd2.difference(change, "spark")), "difference", job, scratch)
    with batch.view_of(difference) as difference_view:
        bounds = batch.key_bounds(frame, job)
        sql = statements.apply_difference(location.identifier, difference_view, job, bounds)
        app = log.app_id(job.record.lineage, job.record.table)
        record = {**job.record.record(), log.ATTEMPT: attempt}

        def before_commit() -> None:
            _refuse_moved(location, version)
            job.before_commit()

        return transaction.commit(spark, location, app, record, _ready(spark, sql), before_commit)


def _observe(
    spark: SparkSession,
    location: TableLocation,
    observed: TableLocation,
    attempt: str,
    keys: DataFrame,
    rows: str,
    versions: str,
    job: WriteJob,
    scratch: Scratch,
) -> tuple[DataFrame, int]:
    """Adds the batch's observations as this try's. Returns all that counts of the batch's keys then, and the arrival
    of what this batch has added."""
    columns = (*scd2.observed_columns(job.columns, job.key), _LINEAGE, _NUMBER, _ATTEMPT)
    spark.sql(statements.create_table(observed.identifier, columns, Layout())).collect()
    lineage = dialects.text(job.record.lineage, "spark")
    last, ours = _last_data(location, job), f"{_ATTEMPT.name} = '{attempt}'"
    lost = f"{_NUMBER.name} = {last.number} AND {_ATTEMPT.name} <> '{last.attempt}'" if last.attempt else "FALSE"
    not_landed = f"{_LINEAGE.name} = {lineage} AND ({_NUMBER.name} > {last.number} OR {lost})"
    never_will = f"({lost}) OR ({_NUMBER.name} > {last.number} AND {_NUMBER.name} < {job.record.seq})"
    names = [statements.quoted(column.name) for column in columns[:-3]]
    arrival = _next_number(observed)
    before = _of_keys(_content(spark, observed).where(f"NOT ({not_landed})"), keys, job)
    settled = _kept(before.select(*names), "observed", job, scratch)
    with batch.view_of(settled) as settled_view:
        change = _versioning(spark, rows, versions, settled_view, arrival, job)
        new = _kept(spark.sql(scd2.observations(change, "spark")), "observations", job, scratch)
    with batch.view_of(new) as added:
        sql = (
            f"INSERT INTO {observed.identifier} REPLACE WHERE {_LINEAGE.name} = {lineage} AND ({ours} OR {never_will}) "
            f"SELECT {', '.join(names)}, {lineage}, CAST({job.record.seq} AS BIGINT), '{attempt}' FROM {added}"
        )
        _replace(spark, observed, sql, arrival, job, "observed")
    return settled.unionByName(new), arrival


def _of_keys(frame: DataFrame, keys: DataFrame, job: WriteJob) -> DataFrame:
    return frame.join(keys, on=list(job.key), how="left_semi")


def _kept(frame: DataFrame, name: str, job: WriteJob, scratch: Scratch) -> DataFrame:
    """``frame`` worked out once. Not by ``localCheckpoint``: pyspark 4.1's Connect client takes its result for one of
    the thread's first session, whatever the frame's own is; and not by ``persist``, which reads anew after a write."""
    folder = scratch.folder(f"{job.record.table}-{job.record.seq}-{name}")
    frame.write.mode("overwrite").parquet(folder.url)
    return frame.sparkSession.read.schema(frame.schema).parquet(folder.url)


def _version(location: TableLocation) -> int:
    table = log.open_table(location)
    return table.version() if table is not None else -1


def _next_number(location: TableLocation) -> int:
    return _version(location) + 1


def _refuse_moved(location: TableLocation, version: int) -> None:
    """The difference holds for the versions that it was derived from, and MERGE looks at the table anew."""
    if _version(location) != version:
        raise TransientError(f"another writer committed to {location.url} at the same moment")


def _content(spark: SparkSession, location: TableLocation) -> DataFrame:
    return spark.read.format("delta").load(location.spark_path)


def _last_data(location: TableLocation, job: WriteJob) -> log.DataCommit:
    table = log.open_table(location)
    app = log.app_id(job.record.lineage, job.record.table)
    return log.data_commit(log.newest_record(location, table, app) if table is not None else None)


def _versioning(
    spark: SparkSession, rows: str, versions: str, observed: str, arrival: int, job: WriteJob
) -> Versioning:
    return Versioning(
        target=(versions,),
        batch=(rows,),
        observed=(observed,),
        columns=tuple(column.name for column in job.columns),
        batch_columns=tuple(spark.table(rows).columns),
        key=job.key,
        arrival=arrival,
        operation=OP_COLUMN,
        detected=DETECTED_COLUMN,
        now=dialects.moment(job.at, "postgres") if job.at else None,
    )


def put_aside(
    spark: SparkSession, location: TableLocation, frame: DataFrame, columns: Sequence[Column], job: WriteJob
) -> None:
    """Makes ``frame`` the only rows of its table with ``_seq`` of this job's number."""
    spark.sql(statements.create_table(location.identifier, columns, Layout())).collect()
    _add_missing(spark, location, columns)
    names = ", ".join(statements.quoted(column.name) for column in _in_table_order(location, columns))
    with batch.view_of(frame) as view:
        sql = f"INSERT INTO {location.identifier} REPLACE WHERE _seq = {job.record.seq} SELECT {names} FROM {view}"
        _replace(spark, location, sql, _next_number(location), job, "quarantine")


def _add_missing(spark: SparkSession, location: TableLocation, columns: Sequence[Column]) -> None:
    have = _columns(location)
    for column in columns:
        if column.name not in have:
            kind = types.spark_ddl(column.type)
            spark.sql(
                f"ALTER TABLE {location.identifier} ADD COLUMNS ({statements.quoted(column.name)} {kind})"
            ).collect()


def _in_table_order(location: TableLocation, columns: Sequence[Column]) -> list[Column]:
    """REPLACE WHERE takes no column list, so the SELECT is in the table's own order."""
    have = _columns(location)
    return sorted(columns, key=lambda column: have.index(column.name))


def _columns(location: TableLocation) -> list[str]:
    table = log.open_table(location)
    return [field.name for field in table.schema().fields] if table is not None else []


def _replace(spark: SparkSession, location: TableLocation, sql: str, number: int, job: WriteJob, purpose: str) -> None:
    """Runs a statement that replaces what an earlier try left in a side table, as its ``number``.

    It must run again under the same intent, so its number is not the job's: it is the version the side table gets.
    """
    app = f"{log.app_id(job.record.lineage, job.record.table)}:{purpose}"
    record = {
        **job.record.record(),
        "app": app,
        "seq": number,
        "intent_id": f"{job.record.intent_id}/{uuid.uuid4().hex}",
    }
    try:
        transaction.commit(spark, location, app, record, _ready(spark, sql), job.before_commit)
    except StateConflict as conflict:
        raise TransientError(f"another try wrote {location.url} at the same moment") from conflict


def _ready(spark: SparkSession, sql: str) -> Callable[[], object]:
    return lambda: spark.sql(sql).collect()
