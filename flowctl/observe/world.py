"""What was observed for one plan, as a frozen value."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from flowctl.connectors.source import HighWatermark, Missing
from flowctl.connectors.target import TargetRules
from flowctl.errors import FlowctlError
from flowctl.model.commit import Commit
from flowctl.model.file_log import FileLog
from flowctl.model.table_info import TableInfo
from flowctl.state.document import StateDocument

PositionKind = Literal["cursor", "files", "none"]


@dataclass(frozen=True)
class Observed:
    """One table. ``source`` and ``target`` are None if the object does not exist; ``missing`` is why the source does
    not. SQL tables have neither ``source`` nor ``watermark``. ``positions`` is the kind of position that the source's
    type offers. ``error`` is why the rest is missing. ``reading`` describes, for display, how the source will be read.
    For a source of files: ``file_log`` is the log of files read so far, ``pending_log`` the log after the pending
    interval, ``written_log`` that of the target's own commit record, if it differs from state's positions.
    ``sidecars`` are the sidecar tables that were looked up, by suffix; None for those that do not exist."""

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


@dataclass(frozen=True)
class World:
    """``at`` is this machine's clock, aware UTC. ``tables`` holds the selected tables by id, ``unexpanded`` the
    patterns whose source could not be listed. ``ddl`` is by target connection. ``places`` are the resolved places, by
    table id, of targets whose names could refer to the same place."""

    at: dt.datetime
    state: StateDocument
    tables: Mapping[str, Observed]
    ddl: Mapping[str, TargetRules]
    unexpanded: Mapping[str, FlowctlError] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
