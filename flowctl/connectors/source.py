"""The contract of a system that flowctl reads.

A source describes its tables without ever starting an engine. Rows come out of one *snapshot*: all frames that are
taken from it show the same moment, as long as its context is open, which is until the write is done. Values are exact,
or the read fails with a :class:`TableError` that names column and type; nothing is rounded, cut or shifted.

Methods that are not abstract have a default for sources with nothing to say.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model.interval import Interval
from flowctl.model.position import FileStamp, Position
from flowctl.model.table_info import Column, Estimate, ObjectName, RowEstimate, TableInfo
from flowctl.model.value import TypedValue
from flowctl.spec.spec import ReadHints, TableSpec
from flowctl.storage.buffer import SegmentSink

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from flowctl.connectors.base import Capabilities

#: A further column of frames in order, greater in later rows. Its type is the source's own matter.
PLACE_COLUMN = "_flowctl_place"


@dataclass(frozen=True)
class SourceCapabilities:
    """``position``: what its plain objects offer beside reading in full. ``hides_order``: whether rows have an order
    there that an engine does not tell. ``refuses``: why a table cannot be read, and what to do, by its spec alone."""

    position: Literal["cursor", "files", "none"]
    hides_order: Callable[[str, TableSpec], bool] = lambda engine, table: False
    refuses: Callable[[TableSpec], tuple[str, str] | None] = lambda table: None


@dataclass(frozen=True)
class Relation:
    """What is read: an object, or a query in the source's SQL, with ``where`` (the source's SQL too) on top."""

    object: ObjectName | None
    query: str | None = None
    where: str | None = None
    format: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class WatermarkRequest:
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
    estimate: Estimate = "stats"


@dataclass(frozen=True)
class HighWatermark:
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
    """Why there is no such object, with the place, resolved; and what to do, with the nearest name."""

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


class Source(ABC):
    """Metadata only; never starts an engine. Every source is a :class:`DirectSource` or a :class:`LandedSource`."""

    capabilities: Capabilities

    @abstractmethod
    def discover(self, pattern: tuple[str, ...]) -> list[ObjectName]:
        """Objects matching a pattern with ``*`` and ``?`` in its parts, sorted; one round trip."""

    @abstractmethod
    def describe(self, relations: Sequence[Relation]) -> Mapping[Relation, TableInfo | None]:
        """Columns, keys, identity and statistics of all; one query for all objects. None: not there."""

    @abstractmethod
    def high_watermarks(self, requests: Mapping[str, WatermarkRequest]) -> Mapping[str, HighWatermark]:
        """How far each goes, by the caller's names; one round trip where the system can."""

    @abstractmethod
    def why_missing(self, relation: Relation) -> Missing:
        """Of an object that :meth:`describe` did not find."""

    def describe_files(
        self, relation: Relation, read: Mapping[str, FileStamp]
    ) -> tuple[TableInfo | None, HighWatermark]:
        """:meth:`describe` and :meth:`high_watermarks` in one look; required of a source whose position is ``files``.
        The columns are those of every file that is not in ``read`` (by path) as it is now, and of some that are."""
        raise NotImplementedError(f"{type(self).__name__} is no source of files")

    def refuse_read(self, info: TableInfo, hints: ReadHints, *, reads_twice: bool) -> StoppedByPolicy | None:
        """Why the table cannot be read so; None when it can. ``reads_twice``: it takes several queries of one moment.
        Pure."""
        return None

    def explain_read(self, request: WatermarkRequest, hints: ReadHints) -> str:
        """How it will be read, in a few words for the plan; empty: nothing to tell. Pure."""
        return ""


class DirectSource(Source):
    """Read by the engine's executors."""

    @abstractmethod
    def snapshot(
        self, spark: SparkSession, relation: Relation, info: TableInfo, hints: ReadHints
    ) -> AbstractContextManager[Snapshot]: ...


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
        """Rows with exactly ``request.columns``, named and typed so."""

    @abstractmethod
    def is_empty(self, request: ReadRequest) -> bool:
        """Whether :meth:`frame` would have no rows, at the cost of one row where the system can."""

    def rows_in_memory(self, request: ReadRequest) -> pa.Table | None:
        """What :meth:`frame` would have, read by this process sooner than an engine would. None when it is more than
        this process holds (``engine.cost.IN_MEMORY_BYTES``), or when the spec says how it is read."""
        return None

    def in_order(self) -> Self:
        """The same moment with :data:`PLACE_COLUMN` in every frame, if there is an order and this engine tells it."""
        return self

    @property
    def hides_order(self) -> bool:
        """Whether the rows have an order that these frames do not tell."""
        return False

    def confirm(self, interval: Interval) -> None:
        """``TableError`` unless ``interval`` is all as planned, where nothing protects it from being changed. Called
        before the commit, once all of it was read."""

    def release(self) -> None:
        """Called when no further frame will be taken: gives up what those taken do not need."""


class Capture(ABC):
    """One moment of one relation that only this process can read."""

    @abstractmethod
    def read(self, request: ReadRequest, sink: SegmentSink) -> int:
        """Streams the rows as Arrow batches with the types of ``request.columns``; returns their number."""

    @abstractmethod
    def is_empty(self, request: ReadRequest) -> bool:
        """Whether :meth:`read` would find nothing."""
