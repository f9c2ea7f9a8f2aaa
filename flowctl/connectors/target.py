"""The contract of a system that flowctl writes.

A target commits data *together with* ``(lineage, table, seq)``, intent id and position, in one atomic operation, and
later reports what it committed last. A sequence number may be staged and committed again after any failure: if it is
already committed under our intent id, ``commit`` changes nothing and returns the recorded commit; under another intent
id, or if the target has a higher sequence number, it raises :class:`StateConflict`. Sequence numbers only increase.

A plan uses :class:`TargetRules`: pure functions of the descriptions. :class:`Target` reads and writes. Methods that are
not abstract have a default for targets without such limits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from flowctl.connectors.gaps import Gap
from flowctl.connectors.maintenance import Maintenance, Task
from flowctl.connectors.undecoded import UndecodedRows
from flowctl.engine.batch import Batch
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model import reserved
from flowctl.model.mode import Mode
from flowctl.model.sidecars import OBSERVED
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.model.types import DataType
from flowctl.spec.spec import Layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from flowctl.connectors.base import Capabilities
    from flowctl.model.commit import Commit
    from flowctl.model.schema_change import SchemaChange

#: Added to staged batches of merge and scd2: ``U`` (the current row) or ``D`` (the key was deleted; key columns only).
OP_COLUMN = "_flowctl_op"
#: Excludes deletions, in SQL: a full refresh of a merge may have some too.
ALIVE = f"{OP_COLUMN} = 'U'"
#: Added to staged batches of scd2: whether a ``D`` row was detected (a missing key) rather than reported by the source.
DETECTED_COLUMN = "_flowctl_detected"

#: How the database fills a column that a write omits. It computes it from others or numbers it, and accepts no value
#: for it in either case; or the column has a default.
Fill = Literal["computed", "numbered", "default"]


@dataclass(frozen=True)
class TargetCapabilities:
    """The modes are listed by the type's schema. ``widens(old, new)``: whether a column's type can be changed in place.
    ``refuses_names``: why a column cannot have this name, or None. ``folds_fields``: fields of one struct must differ
    in more than case. ``stores``: the type that a column created with a type actually gets (an int8 becomes a
    smallint). ``replaces_types``: replacing the whole content replaces types too. ``atomic``: the scope in which one
    commit of several tables is atomic. ``alters_first``: columns are changed before the commit, and stay so if it
    fails. ``is_log``: rows are only added, as messages of a log, which is neither read back nor replaced. A log that
    exists may be written, by others too; until this flow has written to it, a plan treats it as a table that does not
    exist. ``batch_rows`` is how many messages of a topic one commit takes, unless the spec says otherwise.
    ``undecoded``: the forms of a source's rows that it takes."""

    widens: Callable[[DataType, DataType], bool]
    refuses_names: Callable[[str], str | None] = lambda name: None
    folds_fields: bool = False
    stores: Callable[[DataType], DataType] = lambda kind: kind
    replaces_types: bool = False
    atomic: Literal["database", "table"] = "table"
    alters_first: bool = False
    is_log: bool = False
    batch_rows: int = 5_000_000
    undecoded: tuple[str, ...] = ()


@dataclass(frozen=True)
class CommitLookup:
    lineage: str
    table: str
    object: ObjectName


@dataclass(frozen=True)
class WriteShape:
    """What a target chooses its write method by: known for a :class:`WriteJob`, estimated for a plan's step. ``rows``
    is an approximate maximum (None: unknown); ``in_memory``: this process may hold them."""

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

    ``record`` is stored with the data. ``create`` is the DDL that creates a missing table, ``alter`` the changes of an
    existing one, each with its statement; both are part of the commit, or of an earlier attempt that may have died.
    ``columns`` are all columns of the target afterwards, in order; ``compared`` those that decide if a row has changed.
    ``replace`` replaces the whole content. ``soft_deletes`` sets ``_deleted_at`` to ``at``, the time fixed in the
    intent, instead of deleting. ``flags_deletes``: a deletion is a row of the source, marked by a flag.
    ``is_ordered``: changes have ``_source_order``, and those that are older than what the target has of their row
    are left out. ``is_dated``: in a history every row has a time of its own, and none is that of ``at``. Leftovers
    of leases below ``fence`` are dropped. ``rows`` is the batch's row count, once counted; ``estimated_rows`` an
    approximate maximum; ``key_bounds`` are the least and the greatest value of key columns, as Spark writes them
    (None: unknown). ``base`` names the commit that must be the newest (empty: none; None: any).
    ``standing`` are the columns of the target that the plan has seen and does not change.
    ``before_commit`` must be called right before the atomic operation; it may raise."""

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
    flags_deletes: bool = False
    is_ordered: bool = False
    layout: Layout = Layout()
    run_id: str = ""
    fence: int = 0
    at: str = ""
    is_dated: bool = False
    rows: int | None = None
    estimated_rows: int | None = None
    key_bounds: Mapping[str, tuple[str, str]] | None = None
    base: str | None = None
    standing: tuple[Column, ...] = ()
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
        """All DDL of the job, in order."""
        return (*self.create, *(change.statement for change in self.alter))

    @property
    def replaces_content(self) -> bool:
        return self.replace or self.mode == "truncate"


@dataclass(frozen=True)
class Staged:
    """One batch that :meth:`Target.stage` has prepared. ``rows`` is private to the target, None for a void."""

    job: WriteJob
    rows: Any
    columns: tuple[str, ...] = ()


class TargetRules(ABC):
    """What a target can hold, and the statements that it would run. Pure: uses descriptions and sends no request."""

    capabilities: Capabilities

    @property
    def is_log(self) -> bool:
        can = self.capabilities.target
        return can is not None and can.is_log

    @property
    def batch_rows(self) -> int | None:
        can = self.capabilities.target
        return can.batch_rows if can is not None else None

    @abstractmethod
    def create_statements(self, object: ObjectName, columns: Sequence[Column], layout: Layout) -> list[str]:
        """The DDL that creates the table."""

    @abstractmethod
    def alter_statements(self, info: TableInfo, changes: Sequence[SchemaChange]) -> list[SchemaChange]:
        """The same changes, each with its statement (empty: none needed), and others that they need or cause."""

    def native_type(self, column: Column) -> str:
        """The type, as this target writes it, of a new column for the values of ``column``, which a source of the same
        kind describes; empty: that of ``column.type``."""
        return ""

    def stores_undecoded(self, there: Column, sent: Column) -> bool:
        """Whether the existing column ``there`` stores every value of ``sent``, which a source of the same kind
        describes, as it is sent."""
        return False

    def refuse_create(self, object: ObjectName, layout: Layout) -> tuple[str, str] | None:
        """Why the missing ``object`` is not created, and what to do; None if it is."""
        return None

    def explain_create(self, columns: Sequence[Column], layout: Layout) -> str:
        """What :meth:`create_statements` will choose, briefly, for the plan."""
        return ""

    def explain_write(
        self,
        object: ObjectName,
        there: TableInfo | None,
        write: WriteShape,
        engine: str,
        conf: Mapping[str, str],
    ) -> str:
        """How ``engine``, with its settings ``conf``, will write, and why, if that is unusual; for the plan."""
        return ""

    def refuse_write(self, info: TableInfo, mode: Mode, *, replaces: bool) -> StoppedByPolicy | None:
        """Why the table cannot be written exactly; None if it can. ``replaces``: the whole content is replaced."""
        return None

    def refuse_key(self, there: TableInfo, key: Sequence[str], layout: Layout) -> tuple[str, str] | None:
        """Why rows of the existing table cannot be found by ``key``, and what to do: flowctl tells keys apart by their
        texts, and a column of the table takes different texts for equal; or ``layout`` encodes keys in another way than
        the messages of a log have them. None if they can."""
        return None

    def most_columns(self, mode: Mode) -> int | None:
        """The maximum number of columns in this mode, flowctl's own included; None: no limit worth checking."""
        return None

    def filled_columns(self, there: TableInfo) -> Mapping[str, Fill] | None:
        """Columns that the database fills itself; flowctl creates none. None: the target fills none, and replacing its
        content replaces its columns."""
        return None

    def limited_columns(self, there: TableInfo, written: Collection[str]) -> list[Column]:
        """Those of ``written`` whose type may alter a value: a write checks each, and fails rather than alter it."""
        return []

    def partition_columns(self, there: TableInfo | None, layout: Layout, *, rebuilds: bool) -> tuple[str, ...]:
        """The columns by which the table is partitioned, or will be once created, or rebuilt with its schema."""
        return ()

    def refuse_partitions(self, partitioned: Sequence[Column], columns: Sequence[Column]) -> tuple[str, str] | None:
        """Why a table of ``columns`` cannot be partitioned like this, and what to do; None if it can."""
        return None

    def nested_keys(self, engine: str, conf: Mapping[str, str]) -> bool:
        """Whether rows are found by a key column that is a list or a struct, on ``engine`` with its settings."""
        return True

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
        """What ``engine`` does not support of a write into the table ``there``, which gets ``columns`` by
        ``changes``."""
        return None

    def maintenance_due(self, info: TableInfo) -> str:
        """What `flowctl maintain` would do, as far as the description shows, as text for people; empty if nothing is
        due. A run maintains nothing by itself."""
        return ""


class Target(TargetRules):
    @abstractmethod
    def describe(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, TableInfo | None]:
        """As :meth:`Source.describe`; ``identity`` is the target id that definitions and commits record. Like all
        methods without a session, it starts no Spark."""

    @abstractmethod
    def places(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, str]:
        """The location of each object, equal for two names of one table; a sidecar's is its table's with its suffix."""

    @abstractmethod
    def committed(self, lookups: Sequence[CommitLookup]) -> Mapping[str, Commit | None]:
        """The newest commit of each table of the lineage, by table id; voids included."""

    def described_and_committed(
        self, lookups: Sequence[CommitLookup]
    ) -> Mapping[str, tuple[TableInfo | None, Commit | None]]:
        """:meth:`describe` and :meth:`committed` by table id, both at one version if the target has versions."""
        infos = self.describe([lookup.object for lookup in lookups])
        commits = self.committed([lookup for lookup in lookups if infos[lookup.object] is not None])
        return {lookup.table: (infos[lookup.object], commits.get(lookup.table)) for lookup in lookups}

    def why_unwritable(self, object: ObjectName, mode: Mode) -> TableError | None:
        """Why this user may not write in ``mode``, as far as is known without writing; None if no obstacle is known."""
        return None

    def refuse_letters(self, there: TableInfo) -> tuple[str, str] | None:
        """Why dead letters cannot be kept in what exists in their place, and what to do; None if they can."""
        if {column.name.lower() for column in there.columns} >= reserved.LETTERS:
            return None
        return "exists and was not made by flowctl", "Rename or drop it, or give the dead letters another `to`"

    def lease_folder(self, object: ObjectName) -> str | None:
        """URL of the folder for the table's own lease log, if only one driver may write a table; None if the target
        serializes writers itself."""
        return None

    def cuts_folder(self) -> str | None:
        """URL of the folder for cuts: which versions of several tables belong together. None if readers see several
        tables at one moment anyway, or versions cannot be opened later."""
        return None

    def version_queries(self, object: ObjectName, version: int) -> Mapping[str, str]:
        """How readers open the table at ``version``: the statement, by the reader's name."""
        return {}

    @abstractmethod
    def scan(self, spark: SparkSession, object: ObjectName, columns: Sequence[Column]) -> DataFrame:
        """The committed content, for SQL tables, key comparison, guards and dry runs."""

    def scan_observed(self, spark: SparkSession, lookup: CommitLookup) -> DataFrame | None:
        """The committed observations behind a history (:mod:`flowctl.sql.scd2`), from its sidecar; None if there is
        none yet."""
        *folders, name = lookup.object.parts
        sidecar = ObjectName((*folders, name + OBSERVED))
        there = self.describe([sidecar])[sidecar]
        return self.scan(spark, sidecar, there.columns) if there else None

    @abstractmethod
    def stage(self, spark: SparkSession, batch: Batch, job: WriteJob) -> AbstractContextManager[Staged]:
        """Prepares ``batch`` for the commit; nobody else sees it. Staged data is removed when the context ends; the
        leftovers of a killed process are dropped by the next one with a higher fence."""

    def stage_undecoded(self, rows: UndecodedRows, job: WriteJob, *, is_inside: bool) -> AbstractContextManager[Staged]:
        """As :meth:`stage`, for rows in a form that the capabilities name; required of a target that names one.
        ``is_inside``: they come from this very database."""
        raise NotImplementedError(f"{type(self).__name__} does not take undecoded rows")

    @abstractmethod
    def commit(self, staged: Sequence[Staged]) -> Sequence[Commit]:
        """Commits batches of several tables and returns their commits, in the same order, with counts, read back from
        the target. All or nothing if the target is ``atomic`` as a database; otherwise one after the other, and those
        before a failed one stay committed."""

    def write(self, spark: SparkSession, batch: Batch, job: WriteJob) -> Commit:
        """Stages and commits one batch."""
        with self.stage(spark, batch, job) as staged:
            (commit,) = self.commit([staged])
        return commit

    @abstractmethod
    def void(self, job: WriteJob) -> Commit | None:
        """Commits the job's sequence number without data, so that nothing else can be committed under it. None: that
        needs a table, and there is none, nor columns to create it with. Then a stale writer that creates the table
        makes it foreign to every other sequence number."""

    def clean_up(self, object: ObjectName) -> tuple[str, ...]:
        """Removes what an earlier run has left right after its commit, which was found; returns warnings."""
        return ()

    def confirm_write(self, object: ObjectName, write: WriteShape, written: Sequence[str]) -> str:
        """Asks whoever decides it besides the target whether a run may write the columns ``written`` of ``write``, and
        describes, for the plan, what it changes there; empty: nothing. Raises :class:`StoppedByPolicy` if it may not,
        and ``TableError`` if it cannot. Writes nothing and starts no Spark."""
        return ""

    def maintenance(self, objects: Sequence[ObjectName], engine: str) -> Mapping[ObjectName, Maintenance]:
        """What is due for the tables that exist, and can be done with ``engine``, a ``spark.url``. Empty for a target
        that maintains its tables itself. Writes nothing and starts no Spark."""
        return {}

    def maintain(
        self, due: Maintenance, session: Callable[[], SparkSession], before_commit: Callable[[], None]
    ) -> Iterator[Task]:
        """Does what is ``due``, one task after the other, and yields what was done. Neither rows nor commits change,
        nor the result of :meth:`committed`; a writer on an older version gets a conflict or stays correct. Interrupted
        at any moment, it leaves a correct table and can be called again. ``session`` starts Spark, if it is needed;
        ``before_commit`` is called before each change and may raise. The caller must hold the table's lease."""
        yield from ()

    @abstractmethod
    def quarantine(
        self, spark: SparkSession, frame: DataFrame, job: WriteJob, since: int, through: int | None = None
    ) -> None:
        """Keeps rejected rows in a sidecar: makes ``frame`` (of ``job.columns``) the only rows of ``job.object`` with
        this job's lineage (and table, if they have a ``_table``) and a ``_seq`` from ``since`` to ``through`` (None: or
        above); creates the table and the columns that it lacks. Committed before the batch, after ``before_commit``; a
        repetition replaces the rows. A log, which gets dead letters only, is sent those of ``frame`` that it does not
        have under this sequence number, and keeps all."""
