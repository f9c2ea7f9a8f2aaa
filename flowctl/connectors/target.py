"""The contract of a system that flowctl writes.

A target commits data *together with* ``(lineage, table, seq)``, intent id and position, in one atomic act, and answers
later what it committed last. A sequence number may be staged and committed again after any failure: if it is already
committed under our intent id, ``commit`` changes nothing and returns the recorded commit; under another intent id, or
when the target has a higher number, it raises :class:`StateConflict`. Sequence numbers only rise.

:class:`TargetRules` is what a plan asks: pure, from what was described. :class:`Target` reads and writes. Methods that
are not abstract have a default for targets without such limits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from flowctl.connectors.gaps import Gap
from flowctl.connectors.maintenance import Maintenance, Task
from flowctl.engine.batch import Batch
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model.commit import Commit
from flowctl.model.schema_change import SchemaChange
from flowctl.model.step import Mode
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.model.types import DataType
from flowctl.spec.spec import Layout
from flowctl.sql.versioning import OBSERVED_SUFFIX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from flowctl.connectors.base import Capabilities

#: Added to staged batches of merge and scd2: ``U`` (this is the row now) or ``D`` (the key is gone; key columns only).
OP_COLUMN = "_flowctl_op"
#: Added to staged batches of scd2: whether a ``D`` row was detected (a missing key) rather than told by the source.
DETECTED_COLUMN = "_flowctl_detected"

#: How the database fills a column that a write leaves out: it computes it from others, or numbers it, and takes no
#: value for it in either case; or it has a default.
Fill = Literal["computed", "numbered", "default"]


@dataclass(frozen=True)
class TargetCapabilities:
    """Beside the modes, which the type's schema lists. ``widens(old, new)``: whether a column's type changes in place.
    ``refuses_names``: why a column cannot be called so, or None. ``stores``: the type that a column made with a type
    has, where it is another one (an int8 becomes a smallint). ``replaces_types``: replacing all content replaces types
    too. ``atomic``: what one commit of several tables changes at once."""

    widens: Callable[[DataType, DataType], bool]
    refuses_names: Callable[[str], str | None] = lambda name: None
    stores: Callable[[DataType], DataType] = lambda kind: kind
    replaces_types: bool = False
    atomic: Literal["database", "table"] = "table"


@dataclass(frozen=True)
class CommitLookup:
    lineage: str
    table: str
    object: ObjectName


@dataclass(frozen=True)
class WriteShape:
    """What a target chooses its way of writing by: known of a :class:`WriteJob`, and about as much of a plan's step.
    ``rows`` is about how many at most (None: unknown); ``in_memory``: this process may hold them."""

    mode: Mode
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    layout: Layout
    creates: bool
    alters: bool
    replaces: bool
    rows: int | None
    in_memory: bool


@dataclass(frozen=True)
class WriteJob:
    """Everything a target needs to commit one sequence number, whoever calls it and however often.

    ``record`` is stored with the data. ``create`` is the DDL that makes a missing table, ``alter`` the changes of an
    existing one, each with its statement; both are part of the commit, or of a try before it that may have died.
    ``columns`` are all columns of the target afterwards, in order; ``compared`` those whose change makes a row new.
    ``replace`` replaces the whole content. ``soft_deletes`` sets ``_deleted_at`` to ``at``, the moment fixed in the
    intent, instead of deleting. Leftovers of leases below ``fence`` are dropped. ``rows`` is how many the batch has,
    once counted; ``estimated_rows`` about how many at most; ``key_bounds`` are the least and the greatest value of key
    columns, as Spark writes them (None: unknown). ``base`` names the commit that must be the newest (empty: none; None:
    any). ``before_commit`` must be called right before the atomic act: it may raise."""

    record: Commit
    object: ObjectName
    mode: Mode
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()
    new_columns: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    create: tuple[str, ...] = ()
    alter: tuple[SchemaChange, ...] = ()
    replace: bool = False
    soft_deletes: bool = False
    layout: Layout = Layout()
    run_id: str = ""
    fence: int = 0
    at: str = ""
    rows: int | None = None
    estimated_rows: int | None = None
    key_bounds: Mapping[str, tuple[str, str]] | None = None
    base: str | None = None
    before_commit: Callable[[], None] = lambda: None

    def shape(self, *, in_memory: bool) -> WriteShape:
        is_counted = self.rows is not None or self.mode in ("merge", "scd2")
        rows = self.rows if is_counted else self.estimated_rows
        return WriteShape(
            self.mode,
            self.columns,
            self.key,
            self.layout,
            creates=bool(self.create),
            alters=bool(self.alter),
            replaces=self.replace,
            rows=rows,
            in_memory=in_memory,
        )

    @property
    def statements(self) -> tuple[str, ...]:
        """All of its DDL, in order."""
        return (*self.create, *(change.statement for change in self.alter))

    @property
    def replaces_content(self) -> bool:
        return self.replace or self.mode == "truncate"


@dataclass(frozen=True)
class Staged:
    """One batch that :meth:`Target.stage` has made ready. ``rows`` is the target's own business, None for a void."""

    job: WriteJob
    rows: Any
    columns: tuple[str, ...] = ()


class TargetRules(ABC):
    """What it can hold, and the statements that it would run. Pure: from what was described, without a request."""

    capabilities: Capabilities

    @abstractmethod
    def create_statements(self, object: ObjectName, columns: Sequence[Column], layout: Layout) -> list[str]:
        """The DDL that makes the table."""

    @abstractmethod
    def alter_statements(self, info: TableInfo, changes: Sequence[SchemaChange]) -> list[SchemaChange]:
        """The same changes, each with its statement (empty: none needed); and what else they need or do, as changes."""

    def explain_create(self, columns: Sequence[Column], layout: Layout) -> str:
        """What :meth:`create_statements` will choose, in a few words for the plan."""
        return ""

    def explain_write(
        self,
        object: ObjectName,
        there: TableInfo | None,
        write: WriteShape,
        engine: str,
        conf: Mapping[str, str],
    ) -> str:
        """How ``engine``, with its settings ``conf``, will write, and why, where that is not as usual; for the plan."""
        return ""

    def refuse_write(self, info: TableInfo, mode: Mode, *, replaces: bool) -> StoppedByPolicy | None:
        """Why the table cannot be written exactly; None when it can. ``replaces``: the whole content is replaced."""
        return None

    def most_columns(self, mode: Mode) -> int | None:
        """How many columns a table of this mode may have, flowctl's own among them; None: no limit worth a check."""
        return None

    def filled_columns(self, there: TableInfo) -> Mapping[str, Fill] | None:
        """Columns that the database fills itself; flowctl makes none. None: the target fills none, and replacing its
        content replaces its columns."""
        return None

    def limited_columns(self, there: TableInfo, written: Collection[str]) -> list[Column]:
        """Those of ``written`` whose type may change a value: a write checks each, and fails rather than store it."""
        return []

    def partition_columns(self, there: TableInfo | None, layout: Layout, *, rebuilds: bool) -> tuple[str, ...]:
        """By which the table is partitioned, or will be once it is made, or rebuilt with its schema (``rebuilds``)."""
        return ()

    def refuse_partitions(self, partitioned: Sequence[Column], columns: Sequence[Column]) -> tuple[str, str] | None:
        """Why no table of ``columns`` can be partitioned so, and what to do; None when one can."""
        return None

    def gap(
        self,
        engine: str,
        there: TableInfo | None,
        columns: Sequence[Column],
        changes: Sequence[SchemaChange],
        layout: Layout,
        *,
        rebuilds: bool,
    ) -> Gap | None:
        """What ``engine`` cannot do of a write into what is ``there``, which gets ``columns`` by ``changes``."""
        return None

    def maintenance_due(self, info: TableInfo) -> str:
        """What `flowctl maintain` would find to do, as far as the description tells, in words for people; empty when
        nothing is due. A run maintains nothing by itself."""
        return ""


class Target(TargetRules):
    @abstractmethod
    def describe(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, TableInfo | None]:
        """As :meth:`Source.describe`; ``identity`` is the target id that definitions and commits record. No Spark, as
        in all methods that take none."""

    @abstractmethod
    def places(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, str]:
        """Where each is or will be, equal for two names of one table; sidecars have their table's and their suffix."""

    @abstractmethod
    def committed(self, lookups: Sequence[CommitLookup]) -> Mapping[str, Commit | None]:
        """The newest commit of each table of the lineage, by table id; voids included."""

    def described_and_committed(
        self, lookups: Sequence[CommitLookup]
    ) -> Mapping[str, tuple[TableInfo | None, Commit | None]]:
        """:meth:`describe` and :meth:`committed` by table id; both of one version, where the target has versions."""
        infos = self.describe([lookup.object for lookup in lookups])
        commits = self.committed([lookup for lookup in lookups if infos[lookup.object] is not None])
        return {lookup.table: (infos[lookup.object], commits.get(lookup.table)) for lookup in lookups}

    def why_unwritable(self, object: ObjectName) -> TableError | None:
        """Why this user may not write, as far as can be told without writing; None when nothing is known against it."""
        return None

    def lease_folder(self, object: ObjectName) -> str | None:
        """URL of the folder for the table's own lease log, where only one driver may write a table; None where the
        target serializes writers itself."""
        return None

    @abstractmethod
    def scan(self, spark: SparkSession, object: ObjectName, columns: Sequence[Column]) -> DataFrame:
        """The committed content, for SQL tables, key comparison, guards and dry runs."""

    def scan_observed(self, spark: SparkSession, lookup: CommitLookup) -> DataFrame | None:
        """The observations behind a history that count (:mod:`flowctl.sql.scd2`), from its sidecar; None where there is
        none yet."""
        *folders, name = lookup.object.parts
        sidecar = ObjectName((*folders, name + OBSERVED_SUFFIX))
        there = self.describe([sidecar])[sidecar]
        return self.scan(spark, sidecar, there.columns) if there else None

    @abstractmethod
    def stage(self, spark: SparkSession, batch: Batch, job: WriteJob) -> AbstractContextManager[Staged]:
        """Makes ``batch`` ready to be committed; nobody else sees it. What that leaves behind is gone when the context
        ends; what a killed process leaves, the next one with a higher fence drops."""

    @abstractmethod
    def commit(self, staged: Sequence[Staged]) -> Sequence[Commit]:
        """Commits batches of several tables and returns their commits, in the same order, with counts, read back from
        the target. All or nothing where the target is ``atomic`` as a database; otherwise one after the other, and
        those before the one that fails stay committed."""

    def write(self, spark: SparkSession, batch: Batch, job: WriteJob) -> Commit:
        """Stages and commits one batch."""
        with self.stage(spark, batch, job) as staged:
            (commit,) = self.commit([staged])
        return commit

    @abstractmethod
    def void(self, job: WriteJob) -> Commit:
        """Commits the job's sequence number empty, so that nothing else can be committed under it."""

    def maintenance(self, objects: Sequence[ObjectName], engine: str) -> Mapping[ObjectName, Maintenance]:
        """What is due for those of the tables that are there, and can be done with ``engine``, a ``spark.url``. Empty
        for a target that maintains its tables itself. Writes nothing, no Spark."""
        return {}

    def maintain(
        self, due: Maintenance, session: Callable[[], SparkSession], before_commit: Callable[[], None]
    ) -> Iterator[Task]:
        """Does what is ``due``, one task after the other, and yields what was done. No row changes, and neither do
        commits and what :meth:`committed` says of them; whoever stands on an older version conflicts or stays right.
        Ended at any moment, it leaves a table that is right, and can be called again. ``session`` starts Spark, if it
        is needed; ``before_commit`` is called before each change and may raise. For the caller to hold the table's
        lease."""
        yield from ()

    @abstractmethod
    def quarantine(self, spark: SparkSession, frame: DataFrame, job: WriteJob, since: int) -> None:
        """Keeps rejected rows in a sidecar: makes ``frame`` (of ``job.columns``) the only rows of ``job.object`` with
        this job's lineage and ``_seq`` ``since`` or above; makes the table, and the columns that it lacks. Committed
        before the batch, after ``before_commit``; repeated it replaces."""
