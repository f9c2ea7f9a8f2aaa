"""The contract of a source whose changes can be captured.

A stream has one position in the source's log and any number of tables. :meth:`StreamSource.capture` delivers every
committed change of its tables once, in the order of the commits, as whole transactions; after ``capture(after=p)``
nothing that committed before ``p`` comes again. It acknowledges to the source what its sink has made durable, and
nothing beyond. A *moment* is a consistent point of the log together with snapshots that show exactly what committed
before it: where a table's content ends and its changes begin. Nothing here starts an engine.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flowctl.changes.capture import CaptureSink
from flowctl.changes.decoded import Changes
from flowctl.changes.shape import Shape
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.spec.spec import ReadHints, StreamSpec

if TYPE_CHECKING:
    import datetime as dt

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from flowctl.connectors.source import Capture, Relation, Snapshot
    from flowctl.model.position import Position


@dataclass(frozen=True)
class StreamProblem:
    """What keeps a stream, or one of its tables, from working, and the statement or setting that repairs it."""

    what: str
    repair: str
    object: ObjectName | None = None


@dataclass(frozen=True)
class StreamInfo:
    """One look at the source.

    ``system`` identifies it: recorded positions mean nothing in another one. ``label`` names the reader (``slot x``),
    ``removal`` is the statement that removes it.
    ``head`` is the end of the log, ``clock`` the source's time there, aware. ``oldest`` is where the reader stands:
    the source no longer has what is before; None if there is no such reader. ``lost`` is why the reader can no longer
    be used, empty if it can. ``active`` names who reads it now. ``lag`` and ``retained`` are in bytes: from the
    reader to the head, and what the source keeps for it. ``published`` identifies what makes the source send the
    changes (a publication): one that was made again, or changed, has none from in between; empty if there is none.
    ``keeps_reader``: whether the source keeps its log for a reader that is made for the stream (a slot); otherwise it
    discards it by itself, and ``oldest`` is what it still has.
    ``source_changes`` are the statements that a run would execute in the source first; ``problems`` what a run cannot
    repair, ``advice`` what works today and may hurt later. ``tables`` are described as they are read through the
    stream, without columns that it does not deliver; None for one that does not exist. ``health`` has further facts by
    name.
    """

    system: str
    label: str
    removal: str
    head: Position
    oldest: Position | None
    clock: dt.datetime
    lost: str = ""
    active: str = ""
    lag: int | None = None
    retained: int | None = None
    published: str = ""
    keeps_reader: bool = True
    problems: tuple[StreamProblem, ...] = ()
    advice: tuple[StreamProblem, ...] = ()
    source_changes: tuple[str, ...] = ()
    tables: Mapping[ObjectName, TableInfo | None] = field(default_factory=dict)
    health: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Moment:
    """A consistent point, while its context is open. ``at`` is its place in the log, ``event_at`` its time, as RFC 3339
    by the source's clock, ``commit`` the place as :meth:`StreamSource.commit_text` writes it."""

    at: Position
    event_at: str
    commit: str


class DirectMoment(Moment, ABC):
    """One whose tables the source itself reads."""

    @abstractmethod
    def snapshot(
        self, spark: SparkSession, relation: Relation, info: TableInfo, hints: ReadHints, takes: Callable[[str], bool]
    ) -> AbstractContextManager[Snapshot]:
        """Shows what committed before the moment, and nothing else. Raises :class:`AlteredSincePlan` if there is a
        column that ``info`` does not tell of and the table ``takes``: changes after the moment do not have its
        values."""


class LandedMoment(Moment, ABC):
    """One whose tables this process alone reads, into the buffer."""

    @abstractmethod
    def capture(
        self, relation: Relation, info: TableInfo, takes: Callable[[str], bool]
    ) -> AbstractContextManager[Capture]:
        """As :meth:`DirectMoment.snapshot`."""


class Decoder(ABC):
    @abstractmethod
    def decode(self, rows: pa.RecordBatch, columns: Sequence[Column], key: Sequence[str]) -> Changes:
        """Rows of a segment, all of one shape, with the types of ``columns``; a column that the shape does not have is
        null. ``key`` are the columns that identify a row: their values before an update are decoded too. Raises
        :class:`TableError` for a value that its type cannot hold."""


class StreamSource(ABC):
    @abstractmethod
    def discover(self, pattern: tuple[str, ...]) -> list[ObjectName]:
        """As :meth:`Source.discover`, but only objects whose changes can be captured."""

    @abstractmethod
    def describe_stream(self, stream: StreamSpec, objects: Sequence[ObjectName]) -> StreamInfo:
        """Looks at the source once, for a plan; changes nothing."""

    @abstractmethod
    def prepare(self, stream: StreamSpec, statements: Sequence[str]) -> None:
        """Executes the ``source_changes`` of a plan."""

    @abstractmethod
    def moment(
        self,
        stream: StreamSpec,
        objects: Sequence[ObjectName],
        *,
        creates_reader: bool,
        reach: Callable[[], None] | None = None,
    ) -> AbstractContextManager[Moment]:
        """``creates_reader``: the stream's own reader begins at this moment; a reader that exists under its name is
        replaced. Otherwise the moment belongs to nothing that outlives the context. On a standby, ``reach`` is the
        primary's :meth:`reach_standbys`, called while the moment is awaited."""

    @abstractmethod
    def reach_standbys(self) -> None:
        """Writes into the log what a standby needs to find a consistent point."""

    @abstractmethod
    def why_no_snapshots(self, system: str) -> StreamProblem | None:
        """Why this is no standby of ``system`` (as in :class:`StreamInfo`) at which tables can be read at a moment."""

    @abstractmethod
    def capture(
        self,
        stream: StreamSpec,
        objects: Sequence[ObjectName],
        after: Position,
        until: Callable[[], Position | None],
        sink: CaptureSink,
        stopping: threading.Event,
    ) -> None:
        """Captures the changes of ``objects`` into ``sink`` until everything before ``until()`` was delivered (None:
        goes on), or ``stopping`` is set. :class:`StoppedByPolicy` if the source no longer has what follows
        ``after``."""

    @abstractmethod
    def acknowledge(self, stream: StreamSpec, position: Position) -> None:
        """Lets the source discard what is before ``position``, while nothing captures."""

    @abstractmethod
    def drop_reader(self, stream: StreamSpec) -> None:
        """Removes the stream's reader from the source, if there is one."""

    @abstractmethod
    def end(self, stream: StreamSpec) -> None:
        """Removes the stream's reader, and whatever else runs have made for the stream alone in the source."""

    @abstractmethod
    def decoder(self, shape: Shape) -> Decoder: ...

    @abstractmethod
    def commit_text(self, order: int) -> str:
        """The ``lsn`` of a captured row as text, for `_commit_lsn`."""

    @abstractmethod
    def position_at(self, order: int) -> Position:
        """The inverse of :func:`flowctl.model.position.order_of`."""
