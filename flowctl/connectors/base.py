"""The contracts between flowctl and a system it reads or writes.

**Reading.** A source answers three questions about metadata without ever starting Spark: what is there, what does it
look like, how far does it go. Rows come out of one *snapshot*: every frame (or capture) taken from one snapshot shows
the same moment, for as long as its context is open, and the context stays open until the write is done. Values are
exact, or the read fails with a :class:`TableError` that names column and type; nothing is rounded, cut or shifted.

**Writing.** A target commits data *together with* ``(lineage, table, seq)``, intent id and position, in one atomic
act, and answers later what it committed last. ``write`` may be called again for the same number after any failure:
if that number is already committed under our intent id, it changes nothing and returns the recorded commit; under
another intent id, or when the target has a higher number, it raises :class:`StateConflict`. Numbers only rise.

A connector is one package here, named as its ``type``. ``CAPABILITIES`` is data; drivers are imported last of all.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from flowctl.connectors.landing import Scratch as Scratch
from flowctl.connectors.landing import ScratchFolder as ScratchFolder
from flowctl.connectors.landing import SegmentSink as SegmentSink
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model.commit import Commit
from flowctl.model.interval import Interval
from flowctl.model.position import FileStamp, Position
from flowctl.model.schema_change import SchemaChange
from flowctl.model.step import Mode
from flowctl.model.table_info import Column, ObjectName, RowEstimate, TableInfo
from flowctl.model.types import DataType
from flowctl.model.value import TypedValue
from flowctl.spec.spec import Layout, ReadHints

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

#: Added to staged batches of merge and scd2: ``U`` (this is the row now) or ``D`` (the key is gone; key columns only).
OP_COLUMN = "_flowctl_op"
#: Added to staged batches of scd2: whether a ``D`` row was detected (a missing key) rather than told by the source.
DETECTED_COLUMN = "_flowctl_detected"
#: As much of a batch, as Arrow has it, as this process holds without an engine.
FEW_BYTES = 16 << 20


@dataclass(frozen=True)
class SourceCapabilities:
    """``kind``: read by executors (direct) or by the driver into the buffer (landed). ``position``: what its plain
    objects offer beside reading in full. ``queries``: takes ``{connection, query}``."""

    kind: Literal["direct", "landed"]
    position: Literal["cursor", "files", "none"]
    queries: bool = False


@dataclass(frozen=True)
class TargetCapabilities:
    """``widens``: column type changes done in place, as (old, new) tests. ``position_of_columns`` is where new
    columns go. ``refuses_names`` says why a column name cannot be one, or returns None. ``stores`` is the type that
    ``describe`` gives for a column made with a type, where it is not the same (an int8 that becomes a smallint):
    such a column is no drift. ``replaces_types``: a commit that replaces all content replaces types with it, so that no
    column has to widen in place."""

    modes: frozenset[Mode]
    widens: Callable[[DataType, DataType], bool]
    refuses_names: Callable[[str], str | None] = lambda name: None
    stores: Callable[[DataType], DataType] = lambda kind: kind
    replaces_types: bool = False


@dataclass(frozen=True)
class Capabilities:
    """What one connector type can do, as ``CAPABILITIES`` of its module. ``extra`` is the pip extra that brings its
    drivers, ``drivers`` the import names to look for, ``jars`` the sets of ``ivy.xml`` that Spark needs for it.
    ``signs`` are texts that its errors hold, in any library; a target's executors import ``on_executors``."""

    source: SourceCapabilities | None
    target: TargetCapabilities | None
    extra: str | None = None
    drivers: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()
    signs: tuple[str, ...] = ()
    on_executors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Relation:
    """What is read: an object, or a query in the source's SQL, with ``where`` (the source's SQL too) on top."""

    object: ObjectName | None
    query: str | None = None
    where: str | None = None
    format: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class HeadRequest:
    """How far does ``relation`` go? ``cursor`` None asks for files or nothing. ``lower`` is where the read starts (for
    a row count, when ``estimate`` is ``count``); ``delay`` bounds the answer by the source's clock, in ``zone`` where
    the cursor has none (None: the source's own). ``appends``: the read stops at the answer, and of the rows at
    ``position``, the recorded one, some are written. ``null_rows``: rows without a cursor are read too.
    ``minds_writers``: nothing else protects from late commits. ``minds_older``: is any from ``first`` to there left?"""

    relation: Relation
    info: TableInfo
    cursor: Column | None = None
    lower: TypedValue | None = None
    delay: float | None = None
    appends: bool = False
    position: TypedValue | None = None
    null_rows: bool = False
    zone: str | None = None
    minds_writers: bool = False
    minds_older: bool = False
    first: TypedValue | None = None
    estimate: Literal["none", "stats", "count"] = "stats"


@dataclass(frozen=True)
class Head:
    """``position`` is None when there is nothing (an empty table, a null maximum). ``clock`` is the source's now,
    aware UTC. ``has_null_cursor`` is whether any row of the relation has a null cursor. For files the position lists
    every file there now. ``failure`` says why this one cannot be told (an infinite cursor, a missing privilege) while
    the others of the same call can: it stops this table only.
    ``rows_at_position`` is how many rows the request's ``position`` has; ``has_younger`` whether ``delay`` has kept
    rows out of an answer without a position; ``zone`` the source's own, where ``delay`` was counted in it; ``writers``
    how many open transactions have written to it; ``has_older`` what ``minds_older`` asks for."""

    position: Position | None
    rows: RowEstimate
    clock: dt.datetime | None = None
    has_null_cursor: bool = False
    failure: TableError | None = None
    rows_at_position: int | None = None
    has_younger: bool = False
    zone: str = ""
    writers: int = 0
    has_older: bool = True


@dataclass(frozen=True)
class Missing:
    """What is said where there is no such object: the place, resolved, and what to do, with what comes near."""

    reason: str
    hint: str


@dataclass(frozen=True)
class ReadRequest:
    """One pass over a relation: these columns (source names, with the types to deliver), this interval (None: all).
    ``above``: without the rows at its lower bound. ``masked``: columns of which only the mask is needed."""

    columns: tuple[Column, ...]
    interval: Interval | None = None
    above: bool = False
    masked: frozenset[str] = frozenset()


class Source(Protocol):
    """Metadata only; never starts Spark."""

    @property
    def capabilities(self) -> Capabilities: ...

    def discover(self, pattern: tuple[str, ...]) -> list[ObjectName]:
        """Objects matching a pattern with ``*`` and ``?`` in its parts, sorted; one round trip."""

    def describe(self, relations: Sequence[Relation]) -> Mapping[Relation, TableInfo | None]:
        """Columns, keys, identity and statistics of all; one query for all objects. None: not there."""

    def heads(self, requests: Mapping[str, HeadRequest]) -> Mapping[str, Head]:
        """How far each goes, by the caller's names; one round trip where the system can."""

    def why_missing(self, relation: Relation) -> Missing:
        """Of an object that :meth:`describe` found none for."""


class Snapshot(Protocol):
    """One moment of one relation, readable by Spark as often as needed while its context is open."""

    def frame(self, request: ReadRequest) -> DataFrame:
        """Rows with exactly ``request.columns``, named and typed so."""

    def is_empty(self, request: ReadRequest) -> bool:
        """Whether :meth:`frame` would have no rows, at the cost of one row where the system can."""


class DirectSource(Source, Protocol):
    def snapshot(
        self, spark: SparkSession, relation: Relation, info: TableInfo, hints: ReadHints
    ) -> AbstractContextManager[Snapshot]: ...


@dataclass(frozen=True)
class OpenContext:
    """What a connection needs beside its options: ``storage`` as in the spec, the folder of the spec file, where
    relative local paths start, and the buffer (None while planning)."""

    storage: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    base_dir: str = "."
    scratch: Scratch | None = None


class Capture(Protocol):
    """One moment of one relation that only this process can read."""

    def read(self, request: ReadRequest, sink: SegmentSink) -> int:
        """Streams the rows as Arrow batches with the types of ``request.columns``; returns their number."""

    def is_empty(self, request: ReadRequest) -> bool:
        """Whether :meth:`read` would find nothing."""


class LandedSource(Source, Protocol):
    def capture(self, relation: Relation, info: TableInfo) -> AbstractContextManager[Capture]: ...


@dataclass(frozen=True)
class WriteJob:
    """Everything a target needs to commit one number, whoever calls it and however often.

    ``record`` is what to store with the data. ``statements`` is DDL from :meth:`Target.ddl`: run it first where DDL is
    not part of the transaction, and tolerate that an earlier try did. ``columns`` are all columns of the target
    afterwards, in order. ``compared`` are those whose change makes a row new. ``replace`` replaces the whole content
    (truncate; full refresh of append and merge). ``soft_deletes`` sets ``_deleted_at`` to ``at`` instead of deleting.
    ``at`` is the moment fixed in the intent; leftovers of leases below ``fence`` are dropped. ``rows`` is how many the
    batch has, once counted; ``estimated_rows`` about how many at most (None: unknown). ``key_bounds`` are the least and
    the greatest value of key columns, as Spark writes them (None: unknown). ``staged`` is the buffer's folder with all
    of the batch's rows, and maybe others. ``few``: this process may hold the batch. ``base`` names the commit that must
    be the newest (empty: none; None: any). ``before_commit`` must be called right before the atomic act: it may raise.
    """

    record: Commit
    object: ObjectName
    mode: Mode
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()
    new_columns: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()
    replace: bool = False
    soft_deletes: bool = False
    layout: Layout = Layout()
    run_id: str = ""
    fence: int = 0
    at: str = ""
    rows: int | None = None
    estimated_rows: int | None = None
    key_bounds: Mapping[str, tuple[str, str]] | None = None
    staged: ScratchFolder | None = None
    few: bool = False
    base: str | None = None
    before_commit: Callable[[], None] = lambda: None

    @property
    def replaces_content(self) -> bool:
        return self.replace or self.mode == "truncate"


@dataclass(frozen=True)
class CommitLookup:
    lineage: str
    table: str
    object: ObjectName


class Target(Protocol):
    @property
    def capabilities(self) -> Capabilities: ...

    def describe(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, TableInfo | None]:
        """As :meth:`Source.describe`; ``identity`` is the target id that definitions and commits record. No Spark."""

    def places(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, str]:
        """Where each is or will be, equal for two names of one table; a table's sidecars have its place and their
        suffix. No Spark."""

    def committed(self, lookups: Sequence[CommitLookup]) -> Mapping[str, Commit | None]:
        """The newest commit of each table of the lineage, by table id; voids included. No Spark."""

    def create_statements(self, object: ObjectName, columns: Sequence[Column], layout: Layout) -> list[str]:
        """The DDL that makes the table, for the plan to show and `write` to run. Pure."""

    def alter_statements(self, info: TableInfo, changes: Sequence[SchemaChange]) -> list[SchemaChange]:
        """The same changes, each with the statement that makes it (empty for those that need none); and what
        else they need or do, as changes of their own. Pure."""

    def scan(self, spark: SparkSession, object: ObjectName, columns: Sequence[Column]) -> DataFrame:
        """The committed content, for SQL tables, key comparison and guards."""

    def write(self, spark: SparkSession, frame: DataFrame, job: WriteJob) -> Commit:
        """Commits ``frame`` as ``job`` says and returns the commit read back from the target, with counts."""

    def void(self, job: WriteJob) -> Commit:
        """Commits number ``job.record.seq`` empty, so that nothing else can land under it. Spark-free where the
        target can."""


class QuarantineTarget(ABC):
    """Extra power: keeps rejected rows beside the table, in ``<table>__quarantine``."""

    @abstractmethod
    def quarantine(self, spark: SparkSession, frame: DataFrame, job: WriteJob, since: int) -> None:
        """Makes ``frame`` (of ``job.columns``) the only rows of the sidecar ``job.object`` with this job's lineage and
        ``_seq`` ``since`` or above; makes the table, and the columns that it lacks. Committed before the batch, after
        ``before_commit``; repeated it replaces."""


class LeasedTarget(ABC):
    """Extra power: a target that is only safe with one writing driver per table says where their lease lies."""

    @abstractmethod
    def lease_folder(self, object: ObjectName) -> str | None:
        """URL of the folder for the table's own lease log; None where the target serialises writers itself."""


class CheckedTarget(ABC):
    """Extra power: tells beforehand whether it lets this user write."""

    @abstractmethod
    def why_unwritable(self, object: ObjectName) -> TableError | None:
        """None when nothing speaks against it. Writes nothing, no Spark."""


class LoggedTarget(ABC):
    """Extra power: one look at a table's log tells both what it is and what was committed."""

    @abstractmethod
    def described_and_committed(
        self, lookups: Sequence[CommitLookup]
    ) -> Mapping[str, tuple[TableInfo | None, Commit | None]]:
        """As :meth:`Target.describe` and :meth:`Target.committed`, both of one version, by table id. No Spark."""


class PerishableSnapshot(ABC):
    """Extra power of a snapshot that nothing protects: it tells whether somebody has changed what was read."""

    @abstractmethod
    def confirm(self, interval: Interval) -> None:
        """``TableError`` unless ``interval`` is all as planned. Called before the commit, once all of it was read."""


class SmallSnapshot(ABC):
    """Extra power of a snapshot: what is little this process reads itself, sooner than an engine would."""

    @abstractmethod
    def few(self, request: ReadRequest) -> pa.Table | None:
        """What :meth:`Snapshot.frame` would have; None, maybe after having begun, when it is more than
        :data:`FEW_BYTES`, or when the user has said how it is read."""


class ExplainedSource(ABC):
    """Extra power: a source that chooses how it reads tells the plan what it will choose."""

    @abstractmethod
    def explain_read(self, request: HeadRequest, hints: ReadHints) -> str:
        """In a few words for people, empty when there is nothing to tell. Pure: ``request.info`` is what was described,
        ``request.lower`` where an increment starts."""


class FileSource(ABC):
    """Extra power: a source of files that are read once each, described and listed in one look."""

    @abstractmethod
    def describe_files(self, relation: Relation, read: Mapping[str, FileStamp]) -> tuple[TableInfo | None, Head]:
        """As :meth:`Source.describe` and :meth:`Source.heads`. The columns are those of every file that is not in
        ``read`` (by path) as it is now, and of some that are."""


class RestrictedSource(ABC):
    """Extra power: a source that cannot read each of its relations in every way says so while planning."""

    @abstractmethod
    def refuse_read(self, info: TableInfo, hints: ReadHints, *, reads_twice: bool) -> StoppedByPolicy | None:
        """Why what was described cannot be read so; None when it can. ``reads_twice``: the table takes several queries
        of one moment. Pure."""


class ExplainedTarget(ABC):
    """Extra power: a target that chooses how it makes a table tells the plan what it will choose."""

    @abstractmethod
    def explain_create(self, columns: Sequence[Column], layout: Layout) -> str:
        """As :meth:`ExplainedSource.explain_read`, for what :meth:`Target.create_statements` makes of the same."""


@dataclass(frozen=True)
class Connector:
    """What one open connection can do, as ``connect(connection, context)`` of a connector's package yields it.
    ``source`` and ``target`` are None where the type cannot be one; both work on the same system."""

    source: DirectSource | LandedSource | None = None
    target: Target | None = None
