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
    """One table. ``source`` and ``target`` are None where there is no such object, ``missing`` is the reason for
    a missing source; SQL tables have none, and no ``watermark``. ``positions`` is what the source's type offers.
    ``error`` is why the rest is missing. ``reading`` is how the source will be read, for people. Of a source of files:
    ``file_log`` holds those that were read, ``pending_log`` those once the begun interval is read too, ``written_log``
    those that the target's own record names, where that is another position than state's. ``sidecars`` are the tables
    where this one keeps or will keep something of its own, by the suffix of their names, as far as they were looked
    for; None where there is none."""

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
    """``at`` is our own clock, aware UTC. ``tables`` holds the selected tables by id, ``unexpanded`` the patterns
    whose source could not be listed. ``ddl`` is by target connection. ``places`` are the targets' resolved places, by
    table id, of those whose names could mean one place."""

    at: dt.datetime
    state: StateDocument
    tables: Mapping[str, Observed]
    ddl: Mapping[str, TargetRules]
    unexpanded: Mapping[str, FlowctlError] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
