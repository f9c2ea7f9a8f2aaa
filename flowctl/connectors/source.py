"""The contract of a system that flowctl reads.

A source describes its tables without starting an engine. Rows are read from one *snapshot*: all of its frames show the
same moment while its context is open, which is until the write is done. Values are exact, or the read fails with a
:class:`TableError` that names column and type; nothing is rounded, truncated or shifted.

Methods that are not abstract have a default for sources that need none of their own.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from flowctl.connectors.survey import Details, Survey, Wanted, survey_tables
from flowctl.connectors.undecoded import UndecodedSnapshot
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model.table_info import Column, Estimate, ObjectName, RowEstimate, TableInfo
from flowctl.spec.spec import ReadHints, TableSpec
from flowctl.storage.buffer import SegmentSink

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from flowctl.connectors.base import Capabilities
    from flowctl.model.interval import Interval
    from flowctl.model.position import FileStamp, Position, VersionPosition
    from flowctl.model.value import TypedValue

#: An additional column of ordered frames, greater in later rows. The source chooses its type.
PLACE_COLUMN = "_flowctl_place"
#: An additional column of frames of changes: whether the row was deleted.
DELETED_COLUMN = "_flowctl_deleted"
#: An additional column of frames of changes: when the change took place.
TIME_COLUMN = "_flowctl_time"
#: An additional column of frames of changes: whether the whole table was truncated, and all of the row is null.
TRUNCATED_COLUMN = "_flowctl_truncated"
#: An additional column of frames of changes: text that is greater in changes of a row that the source has made later.
SOURCE_ORDER_COLUMN = "_flowctl_source_order"


@dataclass(frozen=True)
class SourceCapabilities:
    """``position``: what plain objects offer besides full reads. ``refuses``: why a table cannot be read, and what to
    do, by its spec alone. ``undecoded``: the forms in which rows leave it undecoded, as people know them."""

    position: Literal["cursor", "files", "offsets", "version", "none"]
    refuses: Callable[[TableSpec], tuple[str, str] | None] = lambda table: None
    undecoded: tuple[str, ...] = ()


@dataclass(frozen=True)
class Relation:
    """What is read: an object, or a query in the source's SQL, filtered by ``where`` (also the source's SQL). ``key``:
    of a topic, the key (names in the source) of the rows whose changes it has; empty if messages are just appended.
    ``needs_times``: each of these changes must have a time."""

    object: ObjectName | None
    query: str | None = None
    where: str | None = None
    format: Mapping[str, Any] = field(default_factory=dict, hash=False)
    key: tuple[str, ...] = ()
    needs_times: bool = False


@dataclass(frozen=True)
class WatermarkRequest:
    """Requests the high watermark of ``relation``. Without a ``cursor`` the position is one of files, or none.
    ``lower`` is where the read starts, ``upper`` where a range ends (both included; for the row count). ``delay``: only
    values at least that many seconds behind the source's clock, in ``zone`` if the cursor has no time zone (None: the
    source's own). ``appends``: the read stops at the high watermark, and some rows at the recorded ``position`` are
    already written. ``null_rows``: rows with a null cursor are read too. ``count_writers``: count open writers, as
    nothing else protects from late commits. ``check_older``: check whether any row from ``first`` to ``position`` still
    exists. ``start``: of a topic, where the first read begins (`earliest`, `latest`, or an RFC 3339 time).
    Of a table read by versions: ``since`` is the recorded one, ``changes`` how the changes since then would be read,
    ``begun`` the pending interval."""

    relation: Relation
    info: TableInfo
    cursor: Column | None = None
    lower: TypedValue | None = None
    upper: TypedValue | None = None
    delay: float | None = None
    appends: bool = False
    position: TypedValue | None = None
    null_rows: bool = False
    zone: str | None = None
    count_writers: bool = False
    check_older: bool = False
    first: TypedValue | None = None
    estimate: Estimate = "stats"
    start: str = ""
    since: VersionPosition | None = None
    changes: ReadRequest | None = None
    begun: Interval | None = None


@dataclass(frozen=True)
class VersionChanges:
    """What is known of the changes since version ``since``. ``lost`` is why they cannot be read any more, ``removes``
    names the first commit that removed or changed rows; each empty if there is none. ``rows`` is how many are read.
    ``reads_feed``: each change is read as the source has recorded it; otherwise versions are compared."""

    since: int
    rows: RowEstimate = RowEstimate()
    lost: str = ""
    removes: str = ""
    reads_feed: bool = False


@dataclass(frozen=True)
class HighWatermark:
    """``position`` is None if there is none (an empty table, a null maximum); for files it lists every existing file.
    ``clock`` is the source's current time, aware UTC. ``has_null_cursor``: whether any row of the relation has a null
    cursor. ``failure`` is why this position could not be determined (an infinite cursor, a missing privilege); it stops
    this table only. ``rows_at_position`` counts the rows at the request's ``position``; ``has_younger``: ``position``
    is None and ``delay`` held rows back; ``zone`` is the source's own, if ``delay`` was applied in it; ``writers``
    counts the open transactions that have written to the relation; ``has_older`` is the result of ``check_older``.
    Of a topic: ``start`` is where a first read begins, ``oldest`` the oldest messages that still exist, ``uncommitted``
    the number of offsets above ``position``, which a transaction that is still open holds back.
    Of files: ``closed`` are the paths of some that were read and cannot be opened any more.
    Of a table read by versions: ``changes`` since the request's version; None if it had none, or is the same.
    ``begun_lost`` is why its pending interval can no longer be read; empty if it can."""

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
    start: Position | None = None
    oldest: Position | None = None
    uncommitted: int = 0
    changes: VersionChanges | None = None
    begun_lost: str = ""
    closed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Missing:
    """Why an object does not exist, with the resolved location; and what to do, with the nearest name."""

    reason: str
    hint: str


@dataclass(frozen=True)
class ReadRequest:
    """One pass over a relation: these columns (source names, with the types to deliver), this interval (None: all).
    ``above``: exclude the rows at its lower bound. ``masked``: columns of which only the mask is needed.
    Of an interval of versions: ``net``: rows that are as before are left out, and one row of each ``key`` (names in the
    source) that is gone has :data:`DELETED_COLUMN`. Without a key, a row that is gone is an error; without ``net``,
    rows that are as before may be read too."""

    columns: tuple[Column, ...]
    interval: Interval | None = None
    above: bool = False
    masked: frozenset[str] = frozenset()
    net: bool = False
    key: tuple[str, ...] = ()


class Source(ABC):
    """Metadata only; never starts an engine. Every source is a :class:`DirectSource` or a :class:`LandedSource`."""

    capabilities: Capabilities
    #: The pattern that every table matches.
    everything: ClassVar[tuple[str, ...]] = ("*",)

    @abstractmethod
    def discover(self, pattern: tuple[str, ...]) -> list[ObjectName]:
        """Objects matching a pattern with ``*`` and ``?`` in its parts, sorted; one round trip."""

    @abstractmethod
    def describe(self, relations: Sequence[Relation]) -> Mapping[Relation, TableInfo | None]:
        """Columns, keys, identity and statistics of all relations; one query for all objects. None: does not exist."""

    @abstractmethod
    def high_watermarks(self, requests: Mapping[str, WatermarkRequest]) -> Mapping[str, HighWatermark]:
        """The high watermark of each relation, by the caller's names; one round trip if the system supports it."""

    @abstractmethod
    def why_missing(self, relation: Relation) -> Missing:
        """Explains why :meth:`describe` did not find an object."""

    def survey(self, wanted: Wanted) -> Survey:
        """What `flowctl init` may write: every table that ``wanted`` accepts, in as few queries as :meth:`discover`,
        :meth:`describe` and :meth:`details` need, and the views that it accepts."""
        objects = [object for object in self.discover(self.everything) if wanted(object)]
        return survey_tables(self, objects, [view for view in self.views() if wanted(view)])

    def details(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, Details]:
        """Indexes, numbered columns and privileges, for `flowctl init`; one query for all objects. Objects about which
        nothing is known may be left out."""
        return {}

    def views(self) -> Sequence[ObjectName]:
        """The views, which :meth:`discover` leaves out, named as it names tables; sorted."""
        return ()

    def discover_views(self, pattern: tuple[str, ...]) -> list[ObjectName]:
        """The views matching a pattern, as :meth:`discover` finds tables."""
        views, globs = self.views(), [self.fold(glob) for glob in pattern]
        return [
            view
            for view in views
            if len(view.parts) == len(globs) and all(map(fnmatchcase, map(self.fold, view.parts), globs))
        ]

    def fold(self, name: str) -> str:
        """The same for two names of a table that the source takes for one, as :meth:`discover` finds them."""
        return name

    def describe_files(
        self, relation: Relation, read: Mapping[str, FileStamp], recorded: Sequence[Column] = ()
    ) -> tuple[TableInfo | None, HighWatermark]:
        """:meth:`describe` and :meth:`high_watermarks` in one pass; required of a source whose position is ``files``.
        The columns are those of every file whose current version is not in ``read`` (by path), and of some that are;
        where these cannot be opened, those that the last run has ``recorded``."""
        raise NotImplementedError(f"{type(self).__name__} is no source of files")

    def show_position(self, relation: Relation, group: str, position: Position) -> None:
        """Commits the offsets of a topic to a consumer group, for monitors; required of a source whose position is
        ``offsets``."""
        raise NotImplementedError(f"{type(self).__name__} has no consumer groups")

    def refuse_read(self, info: TableInfo, hints: ReadHints, *, reads_twice: bool) -> StoppedByPolicy | None:
        """Why the table cannot be read with these hints; None if it can. ``reads_twice``: the read needs several
        queries of one moment. Pure."""
        return None

    def explain_read(self, request: WatermarkRequest, hints: ReadHints) -> str:
        """How the relation will be read, briefly, for the plan; empty if there is nothing to explain. Pure."""
        return ""


class DirectSource(Source):
    """Read by the engine's executors."""

    @abstractmethod
    def snapshot(
        self, spark: SparkSession, relation: Relation, info: TableInfo, hints: ReadHints
    ) -> AbstractContextManager[Snapshot]: ...

    def undecoded(
        self, relation: Relation, info: TableInfo, hints: ReadHints
    ) -> AbstractContextManager[UndecodedSnapshot]:
        """Required of a source whose capabilities name a form. Raises :class:`StoppedByPolicy` if the relation is not
        as ``info`` describes it any more."""
        raise NotImplementedError(f"{type(self).__name__} does not send rows undecoded")


class LandedSource(Source):
    """Read by this process alone, into the buffer."""

    @abstractmethod
    def capture(self, relation: Relation, info: TableInfo) -> AbstractContextManager[Capture]: ...


class Snapshot(ABC):
    """One moment of one relation, readable by Spark as often as needed while its context is open."""

    #: Whether its frames have :data:`PLACE_COLUMN`.
    has_places: bool = False

    @abstractmethod
    def frame(self, request: ReadRequest) -> DataFrame:
        """Rows with exactly ``request.columns``: their names and their types."""

    @abstractmethod
    def is_empty(self, request: ReadRequest) -> bool:
        """Whether :meth:`frame` would have no rows; reads at most one row if the system supports it."""

    def rows_in_memory(self, request: ReadRequest) -> pa.Table | None:
        """The rows of :meth:`frame`, if this process reads them faster than an engine. None if they exceed what this
        process may hold (``engine.cost.IN_MEMORY_BYTES``), or if the spec sets how the table is read."""
        return None

    def in_order(self) -> Self:
        """The same moment with :data:`PLACE_COLUMN` in every frame, if the rows have an order."""
        return self

    def confirm(self, interval: Interval) -> None:
        """Raises ``TableError`` unless all of ``interval`` is still as planned, for sources that nothing protects from
        changes. Called before the commit, after everything was read."""

    def release(self) -> None:
        """Called when no further frame will be taken: releases what the existing frames do not need."""


class Capture(ABC):
    """One moment of one relation that only this process can read. ``own_columns`` are further columns that it has when
    they are requested: those of changes, such as :data:`PLACE_COLUMN` and :data:`DELETED_COLUMN`."""

    own_columns: tuple[Column, ...] = ()

    @abstractmethod
    def read(self, request: ReadRequest, sink: SegmentSink, rejected: SegmentSink | None = None) -> int:
        """Streams the rows as Arrow batches with the types of ``request.columns``; returns their number. ``rejected``
        takes what cannot be decoded, as :data:`flowctl.connectors.letters.LETTER_COLUMNS` under their landed names;
        without it, the first such message raises ``TableError``."""

    def read_letters(
        self, letters: pa.RecordBatch, request: ReadRequest, sink: SegmentSink, rejected: SegmentSink | None
    ) -> int:
        """As :meth:`read`, of dead letters; required of a source that rejects any."""
        raise NotImplementedError(f"{type(self).__name__} has no dead letters")

    @abstractmethod
    def is_empty(self, request: ReadRequest) -> bool:
        """Whether :meth:`read` would return no rows."""
