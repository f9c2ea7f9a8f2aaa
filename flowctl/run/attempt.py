"""What the tables of a run share, get and return. Cheap to import, because most runs have nothing to do."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flowctl.errors import EngineFailed, FlowctlError, TableError
from flowctl.model.commit import Commit, Intent, RowCounts
from flowctl.model.step import Runnable, Step, StreamStep
from flowctl.model.table_info import TableInfo
from flowctl.run import events
from flowctl.spec.spec import Spec, TableSpec
from flowctl.state.document import TableState
from flowctl.storage.buffer import Buffer

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from flowctl.connectors.source import Snapshot

#: Seconds of the lease that must be left when a commit begins.
COMMIT_MARGIN = 1.0
#: Warnings of one table that are kept over many commits.
_WARNINGS = 20


@dataclass(frozen=True)
class RunContext:
    """What all tables of a run share. ``fence`` is the lease's; ``check_lease(margin)`` raises unless more than
    ``margin`` seconds of it are left. ``sources`` has what was observed of each source, by table id, ``targets`` of
    each target that exists; ``states`` returns the state of a table as it was planned; ``session`` returns the table's
    own Spark session and starts Spark at the first call; ``renew`` is told of tables that nothing is done for, so that
    their sessions need not last; ``engine_lost`` is called with the text of an error and returns whether Spark has
    ended. ``opener`` opens what the tables of a change stream read (None: their sources)."""

    spec: Spec
    lineage: str
    run_id: str
    fence: int
    check_lease: Callable[[float], None]
    tables: Mapping[str, TableSpec]
    steps: Mapping[str, StreamStep]
    sources: Mapping[str, TableInfo]
    targets: Mapping[str, TableInfo]
    states: Callable[[str], TableState]
    session: Callable[[str], SparkSession]
    buffer: Buffer
    listener: events.Listener
    stopping: threading.Event
    renew: Callable[[Iterable[str]], None] = lambda table_ids: None
    engine_lost: Callable[[str], EngineFailed | TableError | None] = lambda text: None
    opener: Callable[[SparkSession, TableSpec, Intent], AbstractContextManager[Snapshot]] | None = None
    base_dir: str = "."


@dataclass(frozen=True)
class AttemptResult:
    """What to record. ``recovered``: the commit of an earlier attempt was found."""

    commit: Commit
    recovered: bool = False
    warnings: tuple[str, ...] = ()


@dataclass
class Attempt:
    """``step`` is updated with the columns that only the engine knows. ``base`` names the recorded commit, on top of
    which the sequence number is committed; None: any. ``writing`` becomes true when the target may have been modified:
    from then on the intent stays pending. ``upstream_shape`` is the digest of the columns from which Spark has derived
    a SQL table's columns in this run; empty if the plan knew them."""

    step: Runnable
    intent: Intent
    base: str | None = None
    writing: bool = False
    upstream_shape: str = ""


@dataclass(frozen=True)
class TableResult:
    """How one step ended. ``error`` None: committed and recorded, or nothing to do. ``skipped_for``: why it was
    skipped."""

    step: Step
    seconds: float = 0.0
    counts: RowCounts = RowCounts()
    seq: int | None = None
    recovered: bool = False
    warnings: tuple[str, ...] = ()
    error: FlowctlError | None = None
    skipped_for: str | None = None

    @property
    def ok(self) -> bool:
        return self.error is None and self.skipped_for is None


def added(before: TableResult, result: TableResult) -> TableResult:
    """``result`` of a table's later commit, with the rows, times and warnings of both."""
    counts = RowCounts(
        **{
            part.name: _sum(getattr(before.counts, part.name), getattr(result.counts, part.name))
            for part in dataclasses.fields(RowCounts)
        }
    )
    warnings = tuple(dict.fromkeys((*before.warnings, *result.warnings)))[-_WARNINGS:]
    return replace(result, seconds=before.seconds + result.seconds, counts=counts, warnings=warnings)


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other


@dataclass(frozen=True)
class TableResults:
    """How each step ended, in the plan's order, and what ended the whole run early."""

    outcomes: tuple[TableResult, ...]
    error: FlowctlError | None = None
