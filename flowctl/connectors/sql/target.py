"""An SQL database as a target: one transaction commits the changes of one or several tables and their sequence numbers.

The order of :meth:`SqlTarget.commit`, for all tables together:

1. Staged rows are loaded where this connection finds them. The commits table is created if it does not exist; so is
   what the batch needs of its table, if DDL ends a transaction.
2. The transaction begins. Each table first claims its sequence number, so that a second writer of it waits. Then follow
   its DDL, the check that it is exactly the table of the intent, and its change. Tables come in the order of their ids,
   so two groups never wait for each other.
3. ``before_commit`` of each is called, the transaction commits, and the commits are read back.

**DDL outside the transaction** may be left behind by an attempt that died. So a CREATE carries the id of its intent, by
which the next attempt recognizes the table as its own; a change already made is skipped; only what the plan names is
dropped. For a committed sequence number no DDL runs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from flowctl import crashpoints, delays
from flowctl.connectors.base import OpenContext
from flowctl.connectors.history import sidecar_columns
from flowctl.connectors.preconditions import (
    already_committed,
    check_base,
    foreign_target,
    identified,
    require_unaltered,
)
from flowctl.connectors.sql import commits, ddl
from flowctl.connectors.sql.change import (
    StagedRows,
    apply_change,
    observed_name,
    replace_quarantined,
    staged_columns,
)
from flowctl.connectors.sql.hindrances import Constraint, refused_row
from flowctl.connectors.sql.session import Session, SqlDialect
from flowctl.connectors.target import CommitLookup, Fill, Staged, Target, WriteJob
from flowctl.engine.batch import Batch, OnEngine
from flowctl.errors import FlowctlError, StateConflict, TableError, TransientError
from flowctl.model.commit import Commit, RowCounts
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.spec.spec import Layout
from flowctl.storage.buffer import Buffer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

S = TypeVar("S", bound=Session)


class SqlTarget(Target, Generic[S]):
    """A database implements the abstract methods, and may override the other methods that :class:`Target` does not
    have."""

    dialect: SqlDialect
    context: OpenContext

    @abstractmethod
    def session(self) -> AbstractContextManager[S]:
        """A connection for reading; a database that does not exist is an empty one."""

    def writing_session(self) -> AbstractContextManager[S]:
        """A connection for writing; creates the database if that is left to the first write."""
        return self.session()

    @abstractmethod
    def commits_table(self, session: S, object: ObjectName) -> tuple[str, ...]:
        """The table for the commits of ``object``, as name parts: next to it, so that a dump includes both."""

    @abstractmethod
    def newest(self, session: S, lookups: Sequence[CommitLookup]) -> dict[str, Commit | None]:
        """See :meth:`committed`."""

    @abstractmethod
    def hand_over(
        self, spark: SparkSession, batch: Batch, columns: Sequence[Column], job: WriteJob
    ) -> AbstractContextManager[Any]:
        """The rows of ``batch``, where :meth:`load` or :meth:`accept` finds them, until the context ends: without rows
        repeated by executors and without leftovers of attempts with a lower fence."""

    def load(self, session: S, rows: Any) -> Any:
        """Before the transaction: moves the rows of :meth:`hand_over` to where this session finds them."""
        return rows

    @abstractmethod
    def accept(self, session: S, rows: Any) -> StagedRows:
        """In the transaction: the rows of :meth:`load`, as a table that nobody changes any more."""

    @abstractmethod
    def violated_constraint(self, session: S, job: WriteJob, error: Exception) -> Constraint | None:
        """The unique constraint of the job's table that refused a row, in a statement or at the commit; None for other
        errors of the transaction."""

    def ensure_commits(self, session: S, object: ObjectName) -> None:
        table = self.commits_table(session, object)
        session.execute(commits.create_commits(table, self.dialect))

    def prepare_table(self, session: S, job: WriteJob) -> None:
        """In the transaction, after the table's DDL and before its change: takes locks and applies settings."""

    def refuse_change(self, info: TableInfo, change: SchemaChange) -> SchemaChange | None:
        """``change``, which has its statement, as one that stops the table; None if the database can make it. Pure."""
        return None

    # Rules for plans

    def create_statements(self, object: ObjectName, columns: Sequence[Column], layout: Layout) -> list[str]:
        return [ddl.create_table(self.dialect, object, columns)]

    def alter_statements(self, info: TableInfo, changes: Sequence[SchemaChange]) -> list[SchemaChange]:
        stated = [
            replace(change, statement=ddl.change_statement(self.dialect, info.object, change)) for change in changes
        ]
        refused = [(self.refuse_change(info, change), change) for change in stated]
        return [replace(why, statement="") if why else change for why, change in refused]

    def filled_columns(self, there: TableInfo) -> Mapping[str, Fill]:
        filled: Mapping[str, Fill] = there.extra.get("filled", {})
        return filled

    # Reading

    def describe(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, TableInfo | None]:
        with self.session() as session:
            return session.describe(objects)

    def committed(self, lookups: Sequence[CommitLookup]) -> Mapping[str, Commit | None]:
        with self.session() as session:
            return self.newest(session, lookups)

    # Writing

    @contextmanager
    def stage(self, spark: SparkSession, batch: Batch, job: WriteJob) -> Iterator[Staged]:
        with self.hand_over(spark, batch, staged_columns(batch.names, job), job) as rows:
            yield Staged(job, rows, batch.names)

    def commit(self, staged: Sequence[Staged]) -> list[Commit]:
        """After an error the commit may still have happened, so the target is queried before any retry. The retry also
        finds a transaction still in flight: its own insert of the sequence number waits for that."""
        try:
            return self._commit(staged)
        except StateConflict:
            raise
        except (FlowctlError, OSError):
            newest = self._newest_or_none([one.job for one in staged])
            if any(found is None or found.seq < one.job.record.seq for one, found in zip(staged, newest, strict=True)):
                raise
            return _recorded(staged, newest)

    def void(self, job: WriteJob) -> Commit:
        """Waits for an open transaction of the same sequence number, which then is committed or rolled back."""
        (done,) = self.commit([Staged(replace(job, record=replace(job.record, void=True)), None)])
        return done

    def quarantine(
        self, spark: SparkSession, frame: DataFrame, job: WriteJob, since: int, through: int | None = None
    ) -> None:
        side = replace(job, record=replace(job.record, table=f"{job.record.table}/quarantine"), create=(), alter=())
        with self.hand_over(spark, OnEngine(frame), job.columns, side) as rows, self.writing_session() as session:
            loaded = self.load(session, rows)
            there = session.describe([job.object])[job.object]
            if not self.dialect.transactional_ddl:
                self._complete(session, job.object, there, job.columns)
            with session.transaction():
                accepted = self.accept(session, loaded)
                if self.dialect.transactional_ddl:
                    self._complete(session, job.object, there, job.columns)
                replace_quarantined(session, accepted.table, job, since, through)
                job.before_commit()

    def _commit(self, staged: Sequence[Staged]) -> list[Commit]:
        in_order = sorted(staged, key=lambda one: one.job.record.table)
        counts: dict[str, RowCounts] = {}
        with self.writing_session() as session:
            loaded = {one.job.record.table: self._prepare(session, one) for one in in_order}
            with self._refusals_named(session, in_order), session.transaction():
                for one in in_order:
                    table = one.job.record.table
                    if self._take_number(session, one.job):
                        counts[table] = self.write_batch(session, one.job, loaded[table])
                landed = [one.job for one in in_order if one.job.record.table in counts]
                for job in landed:
                    job.before_commit()
                for job in landed:
                    crashpoints.reached("in_commit", job.record.table)
                    delays.pause()
            delays.pause()
            newest = self.newest(session, [_lookup(one.job) for one in staged])
        found = _recorded(staged, [newest[one.job.record.table] for one in staged])
        return [replace(commit, counts=counts.get(commit.table, commit.counts)) for commit in found]

    @contextmanager
    def _refusals_named(self, session: S, staged: Sequence[Staged]) -> Iterator[None]:
        """Turns the refusal of a row by a unique constraint into an error with next steps."""
        try:
            yield
        except Exception as error:
            for one in staged:
                if constraint := self.violated_constraint(session, one.job, error):
                    raise refused_row(one.job, constraint) from error
            raise

    def _prepare(self, session: S, one: Staged) -> Any:
        """The result of :meth:`load`; None for a void."""
        loaded = self.load(session, one.rows) if one.rows is not None else None
        self.ensure_commits(session, one.job.object)
        if loaded is not None and not self.dialect.transactional_ddl:
            self._define_before(session, one.job, one.columns)
        return loaded

    def _define_before(self, session: S, job: WriteJob, present: Sequence[str]) -> None:
        """Runs the DDL only if the sequence number can still be taken; if not, the claim reports why."""
        newest = self.newest(session, [_lookup(job)])[job.record.table]
        if newest is None or newest.seq < job.record.seq:
            check_base(job.record.table, newest.name if newest else "", job.base)
            self.define(session, job, present)

    def _take_number(self, session: S, job: WriteJob) -> bool:
        """False if it is already committed, by this very intent."""
        table = self.commits_table(session, job.object)
        return commits.claim(session, table, job.record, job.at, job.base) is None

    def write_batch(self, session: S, job: WriteJob, loaded: Any) -> RowCounts:
        """In the transaction, after the claim: runs the table's DDL and change. Does nothing for a void."""
        if loaded is None:
            return RowCounts()
        staged = self.accept(session, loaded)
        if self.dialect.transactional_ddl:
            self.define(session, job, staged.columns)
        self.prepare_table(session, job)
        self.record_target(session, job)
        return apply_change(session, job, staged)

    def define(self, session: S, job: WriteJob, present: Sequence[str]) -> None:
        """Runs the DDL that a batch with the columns ``present`` needs, on a table that belongs to the intent."""
        sidecar = [observed_name(job.object)] if job.mode == "scd2" else []
        found = session.describe([job.object, *sidecar])
        there = found[job.object]
        self.require_own(session, job, there)
        is_made = there is not None and there.created_by == job.record.intent_id
        with_creator, table = self.dialect.with_creator, self.dialect.table(job.object.parts)
        for statement in () if is_made else job.create:
            if with_creator is not None and statement.startswith(f"CREATE TABLE {table} "):
                statement = with_creator(statement, table, job.record.intent_id)
            session.execute(statement)
        for change in job.alter:
            if there is None or not ddl.is_made(change, there):
                session.execute(change.statement)
        for observed in sidecar:
            before = found[observed]
            if before is not None and job.replace and self.dialect.transactional_ddl:
                session.execute(f"DROP TABLE {self.dialect.table(observed.parts)}")  # another key, or no history
                before = None
            self._complete(session, observed, before, sidecar_columns(job, present))

    def require_own(self, session: S, job: WriteJob, there: TableInfo | None) -> None:
        """Raises :class:`FlowctlError` if the table is not the one that the intent was for. With transactional DDL a
        table and its first sequence number come in one transaction, so a table that exists before is foreign."""
        if there is None or there.created_by == job.record.intent_id:
            return
        if not job.record.target_id:
            raise foreign_target(job.record, job.object)
        identified(job.record, there.identity)

    def record_target(self, session: S, job: WriteJob) -> None:
        """Stores the id of the table, which exists by now and is as planned, with the sequence number."""
        now = session.describe([job.object])[job.object]
        if now is None:
            raise TableError(
                f"there is no table {job.object}", hint="Plan again: it was dropped since the plan was made"
            )
        for column in job.standing:
            require_unaltered(job.object, column.name, column, now.column(column.name))
        record = identified(job.record, now.identity)
        commits.name_target(session, self.commits_table(session, job.object), record)

    def _complete(self, session: S, sidecar: ObjectName, there: TableInfo | None, columns: Sequence[Column]) -> None:
        for statement in ddl.completing_statements(self.dialect, sidecar, there, columns):
            session.execute(statement)

    def _newest_or_none(self, jobs: Sequence[WriteJob]) -> list[Commit | None]:
        try:
            with self.session() as session:
                found = self.newest(session, [_lookup(job) for job in jobs])
        except TransientError:
            return [None] * len(jobs)  # the first error is more informative
        return [found[job.record.table] for job in jobs]

    @property
    def buffer(self) -> Buffer:
        if self.context.buffer is None:
            raise FlowctlError("an SQL target was opened without a buffer", hint="Use `flowctl apply`")
        return self.context.buffer


def _lookup(job: WriteJob) -> CommitLookup:
    return CommitLookup(job.record.lineage, job.record.table, job.object)


def _recorded(staged: Sequence[Staged], newest: Sequence[Commit | None]) -> list[Commit]:
    """A commit counts only once our intent id is read back from the target."""
    recorded = []
    for one, found in zip(staged, newest, strict=True):
        if found is None:
            raise StateConflict(
                f"{one.job.object}: the commit just made no longer exists",
                hint="Find out who drops or replaces tables here, and run again",
            )
        recorded.append(already_committed(found, one.job.record))
    return recorded
