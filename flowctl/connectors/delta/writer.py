"""The two ways to commit to a Delta table, behind one contract: Spark's statements, or files and our own log entries.

Both commit a sequence number exactly once, whoever is killed or late; ``docs/architecture.md`` has the reasoning for
each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from flowctl.connectors.delta.conditions import Condition
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.log import LoggedCommit
from flowctl.connectors.delta.table import OpenTable
from flowctl.connectors.target import WriteJob
from flowctl.engine.batch import Batch
from flowctl.errors import FlowctlError
from flowctl.model.table_info import Column, ObjectName
from flowctl.spec.spec import Layout
from flowctl.storage.scratch import Scratch


@dataclass(frozen=True)
class Numbered:
    """Under which sequence number a commit is made: ``record["seq"]`` of Delta's application ``app``."""

    app: str
    record: Mapping[str, Any]


class Writer(Protocol):
    """Every method but the first two commits once under its number, over the opened table, or raises as
    :func:`flowctl.connectors.delta.transaction.commit` says."""

    def prepare(self, location: TableLocation, table: OpenTable | None, job: WriteJob) -> OpenTable:
        """The table is there and is the one that ``job`` means."""

    def prepare_sidecar(self, location: TableLocation, table: OpenTable | None, side: WriteJob) -> OpenTable:
        """A side table is there, for :meth:`replace_where` to write ``side.columns`` to."""

    def put(self, table: OpenTable, number: Numbered, rows: Batch, job: WriteJob) -> LoggedCommit:
        """append, truncate, merge and full refreshes."""

    def rows_with_keys(self, table: OpenTable, job: WriteJob, rows: Batch) -> Batch:
        """The table's rows with one of the keys of ``rows``, and maybe more, and maybe with further columns; worked out
        once."""

    def apply_versions(self, table: OpenTable, number: Numbered, versions: Batch, job: WriteJob) -> LoggedCommit:
        """The rows of :func:`flowctl.sql.scd2.difference`, worked out once where the table has files."""

    def replace_where(
        self, table: OpenTable, number: Numbered, going: Condition, coming: Condition, rows: Batch, side: WriteJob
    ) -> LoggedCommit:
        """In a side table, the rows that meet ``going`` go and ``rows`` come. ``coming`` is met by all of these, and by
        none of the table's that is to stay."""


def required_scratch(scratch: Scratch | None) -> Scratch:
    if scratch is None:
        raise FlowctlError("a Delta target was opened without a buffer", hint="Use `flowctl apply`")
    return scratch


def side_job(job: WriteJob, columns: Sequence[Column]) -> WriteJob:
    """The job of a table beside the target: whatever is there under its name is ours, and rows are replaced by
    condition."""
    side = ObjectName((*job.object.parts[:-1], f"beside {job.object.parts[-1]}"))
    return replace(job, object=side, mode="append", columns=tuple(columns), replace=False, layout=Layout(), base=None)
