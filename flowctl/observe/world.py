"""What was observed for one plan, as a frozen value."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from flowctl.changes.shape import Shape
from flowctl.connectors.source import HighWatermark, Missing
from flowctl.connectors.stream import StreamInfo, StreamProblem
from flowctl.connectors.target import TargetRules
from flowctl.errors import FlowctlError
from flowctl.model.commit import Commit
from flowctl.model.file_log import FileLog
from flowctl.model.table_info import TableInfo
from flowctl.spec.spec import TableSpec, stream_of
from flowctl.state.document import StateDocument, TableState
from flowctl.storage.landing import LandedBatch

PositionKind = Literal["cursor", "files", "offsets", "version", "none"]


@dataclass(frozen=True)
class Observed:
    """One table. ``source`` and ``target`` are None if the object does not exist; ``missing`` is why the source does
    not. SQL tables have neither ``source`` nor ``watermark``. ``positions`` is the kind of position that the source's
    type offers. ``error`` is why the rest is missing. ``reading`` describes, for display, how the source will be read.
    For a source of files: ``file_log`` is the log of files read so far, ``pending_log`` the log after the pending
    interval, ``written_log`` that of the target's own commit record, if it differs from state's positions.
    ``sidecars`` are the sidecar tables that were looked up, by suffix; None for those that do not exist. ``unwritten``
    is a log that exists, but has nothing from this flow: ``target`` is None then."""

    source: TableInfo | None = None
    target: TableInfo | None = None
    watermark: HighWatermark | None = None
    commit: Commit | None = None
    positions: PositionKind = "none"
    error: FlowctlError | None = None
    reading: str = ""
    file_log: FileLog | None = None
    pending_log: FileLog | None = None
    written_log: FileLog | None = None
    missing: Missing | None = None
    sidecars: Mapping[str, TableInfo | None] = field(default_factory=dict)
    unwritten: TableInfo | None = None


@dataclass(frozen=True)
class SeenStream:
    """One stream: its own ``state``; what its source says, None if it could not be asked (``error`` is why);
    ``newest`` is the newest landed batch (None: nothing has landed), ``waiting`` those that some table has not
    applied, and ``shapes`` the shapes of their rows, by digest. ``taken`` is by batch and moment what a table that was
    read at the moment takes of a batch that begins before it: the number of changes by shape. ``no_snapshots`` is why
    no table can be read in full where the spec says (`snapshot.from`)."""

    state: StateDocument
    info: StreamInfo | None = None
    newest: LandedBatch | None = None
    waiting: tuple[LandedBatch, ...] = ()
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    taken: Mapping[tuple[int, str], Mapping[str, int]] = field(default_factory=dict)
    error: FlowctlError | None = None
    no_snapshots: StreamProblem | None = None


@dataclass(frozen=True)
class World:
    """``at`` is this machine's clock, aware UTC. ``state`` is that of the flow's own tables; each of the ``streams``
    has its own. ``tables`` holds the selected tables by id, ``unexpanded`` the patterns whose source could not be
    listed. ``ddl`` is by target connection. ``places`` are the resolved places, by table id, of targets whose names
    could refer to the same place. ``documents`` are the states of the streams that the selected tables read, or whose
    tables they read. ``former`` are streams that no table of the spec reads any more, though their readers may still
    be in the source."""

    at: dt.datetime
    state: StateDocument
    tables: Mapping[str, Observed]
    ddl: Mapping[str, TargetRules]
    unexpanded: Mapping[str, FlowctlError] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    streams: Mapping[str, SeenStream] = field(default_factory=dict)
    documents: Mapping[str, StateDocument] = field(default_factory=dict)
    former: Mapping[str, SeenStream] = field(default_factory=dict)

    def recorded(self, table_id: str) -> TableState:
        """What is recorded of a table, whichever state has it."""
        for document in (self.state, *self.documents.values()):
            if table_id in document.tables:
                return document.table(table_id)
        return TableState()

    def document_of(self, table: TableSpec) -> StateDocument:
        """The state in which the table is recorded."""
        stream = stream_of(table)
        return self.streams[stream].state if stream in self.streams else self.state
