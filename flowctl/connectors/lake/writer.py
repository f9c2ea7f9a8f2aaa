"""How a history and other callers commit to a table, whatever its format and whoever writes the files."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from flowctl.connectors.lake.conditions import Condition
from flowctl.connectors.lake.record import Record
from flowctl.connectors.lake.table import LakeTable
from flowctl.connectors.target import WriteJob
from flowctl.engine.batch import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Writer(Protocol):
    """A method that takes a record commits once under its number, on top of the opened table. It raises
    :class:`WriteConflict` if another writer has committed in between, :class:`StateConflict` if the number is taken."""

    def put(self, table: Any, record: Record, rows: Batch, job: WriteJob) -> Record:
        """Commits append, truncate, merge and full refreshes."""

    def rows_with_keys(self, table: Any, job: WriteJob, rows: Batch, frame: DataFrame) -> Batch:
        """The table's rows with one of the keys of ``rows``, computed once; may have more rows and columns. ``frame``
        has the same rows on the engine."""

    def apply_versions(self, table: Any, record: Record, versions: Batch, job: WriteJob) -> Record:
        """Commits the rows of :func:`flowctl.sql.scd2.difference`, computed once if the table has files."""

    def replace_where(
        self, table: Any, record: Record, going: Condition, coming: Condition, rows: Batch, side: WriteJob
    ) -> Record:
        """Removes a sidecar's rows that meet ``going`` and adds ``rows``. All of these meet ``coming``, and no row of
        the table that is to stay does."""


#: Makes sure that a table's sidecar exists, with all columns of the job; returns it, and what writes it.
OpenSidecar = Callable[[WriteJob], tuple[LakeTable, Writer]]
