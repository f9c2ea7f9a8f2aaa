"""The two ways to commit to a Delta table, behind one contract: Spark's statements, or files and our own log entries.

Both commit a sequence number exactly once, whoever is killed or late; ``docs/architecture.md`` has the reasoning for
each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from flowctl.connectors.delta.conditions import Condition
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.log import LoggedCommit
from flowctl.connectors.delta.table import OpenTable
from flowctl.connectors.landing import Scratch, ScratchFolder
from flowctl.connectors.target import WriteJob
from flowctl.errors import FlowctlError
from flowctl.model.table_info import Column, ObjectName
from flowctl.spec.spec import Layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Numbered:
    """Under which sequence number a commit is made: ``record["seq"]`` of Delta's application ``app``."""

    app: str
    record: Mapping[str, Any]


@dataclass(frozen=True)
class Versions:
    """What a history's versions become. ``frame`` is read several times, out of ``kept``; where ``kept`` is None, the
    table has no files, and it is read once."""

    frame: DataFrame
    kept: ScratchFolder | None = None


class Writer(Protocol):
    """Every method but the first two commits once under its number, over the opened table, or raises as
    :func:`flowctl.connectors.delta.transaction.commit` says."""

    def prepare(self, location: TableLocation, table: OpenTable | None, job: WriteJob) -> OpenTable:
        """The table is there and is the one that ``job`` means."""

    def prepare_sidecar(self, location: TableLocation, table: OpenTable | None, side: WriteJob) -> OpenTable:
        """A side table is there, for :meth:`replace_where` to write ``side.columns`` to."""

    def put(self, table: OpenTable, number: Numbered, frame: DataFrame, job: WriteJob) -> LoggedCommit:
        """append, truncate, merge and full refreshes."""

    def rows_with_keys(self, table: OpenTable, job: WriteJob, rows: DataFrame) -> tuple[DataFrame, ScratchFolder]:
        """The table's rows with one of the keys of ``rows``, and maybe more, worked out once; and where they lie."""

    def apply_versions(self, table: OpenTable, number: Numbered, versions: Versions, job: WriteJob) -> LoggedCommit:
        """The rows of :func:`flowctl.sql.scd2.difference`."""

    def replace_where(
        self, table: OpenTable, number: Numbered, going: Condition, frame: DataFrame, side: WriteJob
    ) -> LoggedCommit:
        """In a side table, the rows that meet the condition go and ``frame`` comes."""


def required_scratch(scratch: Scratch | None) -> Scratch:
    if scratch is None:
        raise FlowctlError("a Delta target was opened without a buffer", hint="Use `flowctl apply`")
    return scratch


def side_job(job: WriteJob, columns: Sequence[Column]) -> WriteJob:
    """The job of a table beside the target: whatever is there under its name is ours, and rows are replaced by
    condition."""
    side = ObjectName((*job.object.parts[:-1], f"beside {job.object.parts[-1]}"))
    return replace(job, object=side, mode="append", columns=tuple(columns), replace=False, layout=Layout(), base=None)
