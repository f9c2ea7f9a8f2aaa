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

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from flowctl.connectors.buffered import buffered_in
from flowctl.connectors.delta import batch, log, statements
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.log import LoggedCommit
from flowctl.connectors.delta.opened import OpenedTable, open_existing, open_newest
from flowctl.connectors.delta.replay import Action
from flowctl.connectors.delta.writers import Changes, Condition, Numbered, Writer, side_job, writer_of_sidecar
from flowctl.connectors.history import Tables, kept_columns, lost_observations, versioning
from flowctl.connectors.landing import Scratch, ScratchFolder
from flowctl.connectors.target import WriteJob
from flowctl.errors import StateConflict, TransientError
from flowctl.model import types
from flowctl.model.table_info import Column
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
    spark: SparkSession, writer: Writer, location: TableLocation, frame: DataFrame, job: WriteJob, scratch: Scratch
) -> LoggedCommit:
    """Writes one batch of history and returns the commit of the versions.

    What the derivation reads is small (the batch's keys) and its plan is large, so each input is worked out once and
    kept in the buffer: as one plan, planned twice over, it took longer than all of its rows.
    """
    rows = batch.with_operations(frame)
    table = open_existing(location)
    app = log.app_id(job.record.lineage, job.record.table)
    last = log.data_commit(table.newest(app))
    this = _Try(spark, writer, location, job, scratch, last, uuid.uuid4().hex, tuple(rows.columns))
    number = Numbered(app, {**job.record.record(), log.ATTEMPT: this.attempt})

    def before_commit() -> None:
        _refuse_moved(table)
        job.before_commit()

    if job.replace:
        return _begin(this, writer, rows, number, replace(job, before_commit=before_commit))
    with batch.view_of(rows) as view:  # a client of Spark Connect sends names, which the server looks up at the end
        seen = open_newest(this.observed)
        is_first = table.is_empty and (seen is None or seen.is_empty)
        changes = Changes(this.first(view)) if is_first else this.later(rows, view)
        return writer.apply_versions(location, number, changes, replace(job, before_commit=before_commit))


def _begin(this: _Try, writer: Writer, rows: DataFrame, number: Numbered, job: WriteJob) -> LoggedCommit:
    """A history in place of what is there: no earlier observation counts, and none stays."""
    with batch.view_of(rows) as view:
        versions = this.kept(this.first(view, replaces=True).drop(scd2.CHANGE_COLUMN), "versions")
    return writer.put(this.location, number, versions, job)


@dataclass(frozen=True)
class _Try:
    """One try of one number, after ``last``. ``attempt`` marks its observations; ``present`` are the columns of the
    batch."""

    spark: SparkSession
    writer: Writer
    location: TableLocation
    job: WriteJob
    scratch: Scratch
    last: log.DataCommit
    attempt: str
    present: tuple[str, ...]

    def kept(self, frame: DataFrame, name: str) -> DataFrame:
        return buffered_in(self._folder(name), frame)

    def _folder(self, name: str) -> ScratchFolder:
        return self.scratch.folder(f"{self.job.record.table}-{self.job.record.seq}-{name}")

    def first(self, rows: str, *, replaces: bool = False) -> DataFrame:
        """The difference where nothing was before, and the observations added: all of the batch, which is read for each
        once. ``replaces``: what was before does not count."""
        change = self.versioning(rows, rows, rows, self._arrival(), first=True)
        never_will = Condition("TRUE") if replaces else Condition("FALSE", lambda file: False)
        self._add(self.spark.sql(scd2.observations(change, "spark")), change.arrival, never_will, of_all=replaces)
        return self.spark.sql(scd2.difference(change, "spark"))

    def later(self, rows: DataFrame, view: str) -> Changes:
        """The difference, kept, and the observations added."""
        versions, _ = self.writer.rows_with_keys(self.location, self.job, rows)
        with batch.view_of(_with_columns(versions, self.job.columns)) as versions_view:
            seen, arrival = self._observe(rows, view, versions_view)
            with batch.view_of(seen) as seen_view:
                change = self.versioning(view, versions_view, seen_view, arrival)
                folder, difference = self._folder("difference"), self.spark.sql(scd2.difference(change, "spark"))
                changes = Changes(buffered_in(folder, difference, few=self.job.few), folder)
                if "delete" in _different(folder, scd2.CHANGE_COLUMN):
                    self._refuse_lost(changes.frame, change)
                return changes

    def _refuse_lost(self, difference: DataFrame, change: Versioning) -> None:
        with batch.view_of(difference) as view:
            lost = self.spark.sql(scd2.unobserved(change, (view,), "spark")).collect()
        if lost[0][0]:
            raise lost_observations(self.job)

    def _observe(self, rows: DataFrame, view: str, versions: str) -> tuple[DataFrame, int]:
        """Adds the batch's observations as this try's. Returns all that counts of the batch's keys then, and the
        arrival of what this batch has added."""
        arrival, last, record = self._arrival(), self.last, self.job.record
        lineage = dialects.text(record.lineage, "spark")
        lost = f"{_NUMBER.name} = {last.number} AND {_ATTEMPT.name} <> '{last.attempt}'" if last.attempt else "FALSE"
        not_landed = f"{_LINEAGE.name} = {lineage} AND ({_NUMBER.name} > {last.number} OR {lost})"
        never_will = f"({lost}) OR ({_NUMBER.name} > {last.number} AND {_NUMBER.name} < {record.seq})"
        known, folder = self._side_writer.rows_with_keys(self.observed, self._side, rows)
        before = _with_columns(known, self._side.columns).where(f"NOT ({not_landed})")
        settled = before.select(*_quoted(self._columns))
        with batch.view_of(settled) as settled_view:
            change = self.versioning(view, versions, settled_view, arrival)
            change = scd2.after(change, _different(folder, scd2.HASHED) if scd2.HASHED in known.columns else ())
            observations = self.spark.sql(scd2.observations(change, "spark"))
            new = buffered_in(self._folder("observations"), observations, few=self.job.few)
        self._add(new, arrival, Condition(never_will, partial(may_never_land, record.lineage, last)))
        return settled.unionByName(new), arrival

    @property
    def observed(self) -> TableLocation:
        return self.location.beside(scd2.OBSERVED_SUFFIX)

    @property
    def _columns(self) -> tuple[Column, ...]:
        return scd2.observed_columns(self.job.columns, self.job.key, kept_columns(self.job, self.present))

    @property
    def _side(self) -> WriteJob:
        return side_job(self.job, (*self._columns, _LINEAGE, _NUMBER, _ATTEMPT))

    @cached_property
    def _side_writer(self) -> Writer:
        if not self.job.few:
            return self.writer
        return writer_of_sidecar(self.spark, self.scratch, self.observed, self._side)

    def _arrival(self) -> int:
        """The number of what this try will add to the sidecar, which is there from now on."""
        self._side_writer.ensure(self.observed, self._side)
        return open_existing(self.observed).version + 1

    def _add(self, new: DataFrame, arrival: int, never_will: Condition, *, of_all: bool = False) -> None:
        """Makes ``new`` this try's only observations; those that ``never_will`` count go, of this lineage or
        ``of_all``."""
        from pyspark.sql import functions as f

        record = self.job.record
        marked = new.withColumns(
            {
                _LINEAGE.name: f.lit(record.lineage),
                _NUMBER.name: f.lit(record.seq).cast("bigint"),
                _ATTEMPT.name: f.lit(self.attempt),
            }
        )
        ours = f"{_ATTEMPT.name} = '{self.attempt}'"
        lineage = "TRUE" if of_all else f"{_LINEAGE.name} = {dialects.text(record.lineage, 'spark')}"
        going = replace(never_will, sql=f"{lineage} AND ({ours} OR {never_will.sql})")
        _replace(self._side_writer, self.observed, going, marked, arrival, self._side, "observed")

    def versioning(self, rows: str, versions: str, observed: str, arrival: int, *, first: bool = False) -> Versioning:
        tables = Tables(target=(versions,), batch=(rows,), observed=(observed,))
        return versioning(self.job, tables, self.present, arrival, "postgres", first=first)


def may_never_land(lineage: str, last: log.DataCommit, file: Action) -> bool:
    """Whether a file of the sidecar may hold observations of ``lineage`` that do not count after ``last``: of a later
    number, or of another try of that one. Its statistics say so where all of its rows are of one try."""
    told = json.loads(file.get("stats") or "{}")
    low, high = told.get("minValues", {}), told.get("maxValues", {})
    names = (_LINEAGE.name, _NUMBER.name, _ATTEMPT.name)
    if any(low.get(name) is None or low[name] != high.get(name) for name in names):
        return True
    of, number, attempt = (low[name] for name in names)
    if of != lineage or number < last.number:
        return False
    return bool(number != last.number or (last.attempt and attempt != last.attempt))


def quarantine(writer: Writer, location: TableLocation, frame: DataFrame, job: WriteJob, since: int) -> None:
    """As :meth:`flowctl.connectors.target.Target.quarantine`."""
    side = side_job(job, job.columns)
    writer.ensure(location, side)
    number = open_existing(location).version + 1
    condition = f"{_LINEAGE.name} = {dialects.text(job.record.lineage, 'spark')} AND {_NUMBER.name} >= {since}"
    _replace(writer, location, Condition(condition), frame, number, side, "quarantine")


def _replace(
    writer: Writer,
    location: TableLocation,
    going: Condition,
    frame: DataFrame,
    number: int,
    side: WriteJob,
    purpose: str,
) -> None:
    """Replaces what an earlier try left in a side table, as its ``number``.

    It must run again under the same intent, so its number is not the job's: it is the version the side table gets.
    """
    app = f"{log.app_id(side.record.lineage, side.record.table)}:{purpose}"
    record = {
        **side.record.record(),
        "app": app,
        "seq": number,
        "intent_id": f"{side.record.intent_id}/{uuid.uuid4().hex}",
        "target_id": open_existing(location).identity,
    }
    try:
        writer.replace_where(location, Numbered(app, record), going, frame, side)
    except StateConflict as conflict:
        raise TransientError(f"another try wrote {location.url} at the same moment") from conflict


def _refuse_moved(table: OpenedTable) -> None:
    """The difference holds for the version that it was derived from, and MERGE looks at the table anew."""
    if open_existing(table.location).version != table.version:
        raise TransientError(f"another writer committed to {table.location.url} at the same moment")


def _with_columns(frame: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """A table's rows with ``columns``; those that it gets with this commit are null."""
    from pyspark.sql import functions as f

    have = set(frame.columns)
    return frame.select(
        *(
            f.col(statements.quoted(column.name))
            if column.name in have
            else f.lit(None).cast(types.spark_ddl(column.type)).alias(column.name)
            for column in columns
        )
    )


def _different(folder: ScratchFolder, column: str) -> set[str | None]:
    """The values of ``column`` in a folder's rows."""
    return {value for rows in folder.batches([column]) for value in rows[column].unique().to_pylist()}


def _quoted(columns: Sequence[Column]) -> list[str]:
    return [statements.quoted(column.name) for column in columns]
