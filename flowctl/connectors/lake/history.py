"""scd2 of table formats that commit one table at a time: two tables, so two commits, and only the second one counts.

First the observations are written to the sidecar, then one MERGE derives the versions under the job's number. An
attempt that dies between the two leaves observations whose rows are never written, or are written later: on a Spark
Connect server its MERGE may outlive its client, and commit while the next attempt is running. So each attempt marks its
observations, its commit records which attempt it was, and only the observations of committed attempts count. The others
are removed once their number is settled, which a void does too.

The sidecar has its own sequence numbers: the version that the write will create. A stale writer of an older attempt has
an older number, which is taken by then. This number is also the observations' arrival: it keeps rising across
lineages and restores.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

from flowctl.connectors.buffered import batch_like, computed, frame_of, read_columns, with_constants
from flowctl.connectors.history import Tables, check_observed, sidecar_columns, versioning
from flowctl.connectors.lake import conditions
from flowctl.connectors.lake.conditions import Condition, Term, quoted
from flowctl.connectors.lake.record import OBSERVATIONS, DataCommit, Record, app_id, data_commit, sidecar_record
from flowctl.connectors.lake.rows import view_of, with_operations
from flowctl.connectors.lake.table import LakeTable
from flowctl.connectors.lake.writer import OpenSidecar, Writer
from flowctl.connectors.target import OP_COLUMN, WriteJob
from flowctl.engine.batch import Batch, InMemory, OnEngine
from flowctl.engine.spark_types import frame_in_order
from flowctl.errors import StateConflict, WriteConflict
from flowctl.model import types
from flowctl.model.table_info import Column, ObjectName
from flowctl.spec.spec import Layout
from flowctl.sql import scd2
from flowctl.sql.observations import observations
from flowctl.sql.versioning import CHANGE_COLUMN, HASHED, Versioning
from flowctl.storage.buffer import Buffer, BufferFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The attempt that an observation belongs to.
_LINEAGE, _NUMBER, _ATTEMPT = (
    Column("_lineage", types.STRING),
    Column("_seq", types.INT64),
    Column("_try", types.STRING),
)


def commit(
    spark: SparkSession,
    writer: Writer,
    table: LakeTable,
    rows: Batch,
    job: WriteJob,
    buffer: Buffer,
    open_sidecar: OpenSidecar,
) -> Record:
    """Writes one batch of history and returns the commit of the versions.

    The derivation reads little (the batch's keys) but has a large plan, so each input is computed once and kept in the
    buffer: as one plan, it was planned twice, which took longer than processing all of its rows.
    """
    this = _begin_try(spark, writer, table, rows, job, buffer, open_sidecar)
    record = Record(job.record, attempt=this.attempt)
    with view_of(with_operations(this.batch)) as view:  # until the end: a Connect server resolves names only then
        if job.replace:  # no earlier observation counts, and all are removed
            begun = this.first(view, conditions.ALWAYS).drop(CHANGE_COLUMN)
            return writer.put(table, record, this.computed(begun, "versions"), job)
        is_first = table.is_empty and this.sidecar.is_empty
        versions, ignored = (batch_like(rows, this.first(view, conditions.NEVER)), 0) if is_first else this.later(view)
        done = writer.apply_versions(table, record, versions, job)
        return done.logged(counts=replace(done.commit.counts, ignored=ignored)) if job.is_ordered else done


@dataclass(frozen=True)
class _Try:
    """One attempt at one number, after ``last``. ``attempt`` marks its observations; ``rows`` is the batch, ``batch``
    the same on the engine."""

    spark: SparkSession
    writer: Writer
    side_writer: Writer
    table: LakeTable
    sidecar: LakeTable
    job: WriteJob
    side: WriteJob
    buffer: Buffer
    last: DataCommit
    attempt: str
    rows: Batch
    batch: DataFrame

    @property
    def present(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.rows.names, OP_COLUMN)))

    def computed(self, frame: DataFrame, name: str) -> Batch:
        return computed(frame, self.rows, lambda: self.folder(name))

    def frame(self, rows: Batch, name: str) -> DataFrame:
        return frame_of(rows, self.spark, lambda: self.folder(name))

    def folder(self, name: str) -> BufferFolder:
        return self.buffer.folder(f"{self.job.record.table}-{self.job.record.seq}-{name}")

    def first(self, rows: str, going: Condition) -> DataFrame:
        """For a table without earlier rows that count: adds the whole batch as observations, removes those that meet
        ``going``, and returns the difference. Reads the batch once for each."""
        change = self.versioning(rows, rows, rows, first=True)
        self._add(batch_like(self.rows, self.spark.sql(observations(change, "spark"))), going)
        return self.spark.sql(scd2.difference(change, "spark"))

    def later(self, view: str) -> tuple[Batch, int]:
        """Adds the observations. Returns the difference, computed once, and how many rows are not observed."""
        there = self.frame(self.writer.rows_with_keys(self.table, self.job, self.rows, self.batch), "with-keys")
        with ExitStack() as stack:
            there_view = stack.enter_context(view_of(frame_in_order(there, self.job.columns)))
            observed, ignored = self._observe(view, there_view)
            seen_view = stack.enter_context(view_of(observed))
            change = self.versioning(view, there_view, seen_view)
            versions = self.computed(self.spark.sql(scd2.difference(change, "spark")), "difference")
            if "delete" in _different(versions, CHANGE_COLUMN):
                with view_of(self.frame(versions, "difference")) as difference:
                    check_observed(
                        self.job, change, (difference,), "spark", lambda query: self.spark.sql(query).collect()
                    )
            return versions, ignored

    def _observe(self, view: str, versions: str) -> tuple[DataFrame, int]:
        """Adds the batch's observations as this attempt's. Returns all observations of the batch's keys that then
        count, and how many rows of an ordered batch are none."""
        never_counts = lost_observations_of(self.job.record.lineage, self.last)
        known = self.side_writer.rows_with_keys(self.sidecar, self.side, self.rows, self.batch)
        before = frame_in_order(self.frame(known, "observed"), self.side.columns)
        names = [quoted(column.name) for column in sidecar_columns(self.job, self.present)]
        settled = before.where(f"NOT {conditions.sql(never_counts)}").select(*names)
        with view_of(settled) as settled_view:
            change = self.versioning(view, versions, settled_view)
            change = scd2.after(change, _different(known, HASHED) if HASHED in known.names else ())
            new = self.computed(self.spark.sql(observations(change, "spark")), "observations")
        self._add(new, lost_observations_of(self.job.record.lineage, self.last, before=self.job.record.seq))
        ignored = self._count_offered() - _count_computed(new) if self.job.is_ordered else 0
        return settled.unionByName(self.frame(new, "observations")), ignored

    def _count_offered(self) -> int:
        return self.job.rows if self.job.rows is not None else int(self.batch.count())

    def _add(self, new: Batch, going: Condition) -> None:
        """Adds ``new`` as this attempt's observations and removes those that meet ``going``."""
        record = self.job.record
        own: dict[Column, int | str] = {
            _LINEAGE: record.lineage,
            _NUMBER: record.seq,
            _ATTEMPT: self.attempt,
        }
        coming: Condition = [[(column.name, "=", value) for column, value in own.items()]]
        _replace(self.side_writer, self.sidecar, going, coming, with_constants(new, own), self.side, OBSERVATIONS)

    def versioning(self, rows: str, versions: str, observed: str, *, first: bool = False) -> Versioning:
        tables = Tables(target=(versions,), batch=(rows,), observed=(observed,))
        arrival = self.sidecar.version + 1  # the observations are committed as that version, or not at all
        return versioning(self.job, tables, self.present, arrival, "spark", first=first)


def _begin_try(
    spark: SparkSession,
    writer: Writer,
    table: LakeTable,
    rows: Batch,
    job: WriteJob,
    buffer: Buffer,
    open_sidecar: OpenSidecar,
) -> _Try:
    """Begins an attempt; its sidecar exists from now on."""
    present = (*rows.names, OP_COLUMN)
    side = side_job(job, (*sidecar_columns(job, present), _LINEAGE, _NUMBER, _ATTEMPT))
    sidecar, side_writer = open_sidecar(side)
    last = data_commit(table.newest(app_id(job.record.lineage, job.record.table)))
    batch = frame_of(rows, spark, lambda: buffer.folder(f"{job.record.table}-{job.record.seq}-batch"))
    return _Try(spark, writer, side_writer, table, sidecar, job, side, buffer, last, uuid.uuid4().hex, rows, batch)


def lost_observations_of(lineage: str, last: DataCommit, before: int | None = None) -> Condition:
    """The rows of a sidecar that do not count after ``last``: those of ``lineage`` with a later number, or of another
    attempt at that one. With ``before``, the number being committed: those that will never count."""
    of_lineage: Term = (_LINEAGE.name, "=", lineage)
    later: list[Term] = [of_lineage, (_NUMBER.name, ">", last.number)]
    if before is not None:
        later.append((_NUMBER.name, "<", before))
    if not last.attempt:
        return [later]
    return [later, [of_lineage, (_NUMBER.name, "=", last.number), (_ATTEMPT.name, "!=", last.attempt)]]


def quarantine(writer: Writer, table: LakeTable, rows: Batch, side: WriteJob, since: int, through: int | None) -> None:
    """As :meth:`flowctl.connectors.target.Target.quarantine`, of ``table``, which has the columns of ``side``."""
    last = 2**63 - 1 if through is None else through
    of_job: list[Term] = [(_LINEAGE.name, "=", side.record.lineage)]
    if any(column.name == "_table" for column in side.columns):
        of_job.append(("_table", "=", side.record.table))
    going: Condition = [[*of_job, (_NUMBER.name, ">=", since), (_NUMBER.name, "<=", last)]]
    _replace(writer, table, going, going, rows, side, "quarantine")


def side_job(job: WriteJob, columns: Sequence[Column]) -> WriteJob:
    """The job of a sidecar: a table of that name is always ours, and rows are replaced by condition."""
    side = ObjectName((*job.object.parts[:-1], f"sidecar of {job.object.parts[-1]}"))
    return replace(job, object=side, mode="append", columns=tuple(columns), replace=False, layout=Layout(), base=None)


def _replace(
    writer: Writer,
    table: LakeTable,
    going: Condition,
    coming: Condition,
    rows: Batch,
    side: WriteJob,
    purpose: str,
) -> None:
    """Replaces what an earlier attempt left in a sidecar."""
    record = sidecar_record(side.record, table.version, table.identity, purpose)
    try:
        writer.replace_where(table, record, going, coming, rows, side)
    except StateConflict as conflict:
        raise WriteConflict(f"another attempt wrote to {table.url} at the same moment") from conflict


def _count_computed(rows: Batch) -> int:
    """From the footers of the files in which the engine has computed them."""
    match rows:
        case InMemory(held):
            return int(held.num_rows)
        case OnEngine(frame, folder):
            return folder.rows() if folder is not None else int(frame.count())
        case _:
            assert_never(rows)


def _different(rows: Batch, column: str) -> set[str | None]:
    """The distinct values of ``column``."""
    return set(read_columns(rows, [column])[column].unique().to_pylist())
