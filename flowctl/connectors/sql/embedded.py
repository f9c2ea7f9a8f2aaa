"""An embedded SQL database as a target: the engine writes segments to the buffer, and this process streams them into a
temporary table."""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from flowctl.connectors import refusal
from flowctl.connectors.buffered import computed, frame_of, record_batches
from flowctl.connectors.preconditions import verify_total
from flowctl.connectors.sql.change import StagedRows
from flowctl.connectors.sql.target import S, SqlTarget
from flowctl.connectors.target import WriteJob
from flowctl.engine.batch import Batch
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class StorableRows:
    """The rows of ``job``, in the order of ``columns``, as the database stores them."""

    rows: Batch
    columns: tuple[Column, ...]
    job: WriteJob


class EmbeddedTarget(SqlTarget[S]):
    @abstractmethod
    def storable(self, frame: DataFrame, columns: Sequence[Column]) -> DataFrame:
        """Exactly ``columns``, as parameters of an INSERT; values that the database would change are refused with the
        column's name."""

    @contextmanager
    def hand_over(
        self, spark: SparkSession, batch: Batch, columns: Sequence[Column], job: WriteJob
    ) -> Iterator[StorableRows]:
        frame = frame_of(batch, spark, lambda: self.buffer.folder(f"rows-{job.object}"))
        with refusal.named():
            folder = partial(self.buffer.folder, f"storable-{job.object}-{job.record.seq}")
            rows = computed(self.storable(frame, columns), batch, folder)
        yield StorableRows(rows, tuple(columns), job)

    def load(self, session: S, rows: StorableRows) -> StagedRows:
        """Streams the rows into a temporary table of the target's types, which a killed attempt does not leave behind.
        Memory is bounded by one batch."""
        name, total = f"_flowctl_stage_{secrets.token_hex(4)}", 0
        session.execute(f"CREATE TEMPORARY TABLE {name} ({self.dialect.listed(rows.columns)})")
        insert = f"INSERT INTO {name} VALUES ({', '.join([self.dialect.marker] * len(rows.columns))})"
        session.execute("BEGIN")
        for batch in record_batches(rows.rows):
            session.execute_many(insert, zip(*(values.to_pylist() for values in batch.columns), strict=True))
            total += batch.num_rows
        session.execute("COMMIT")
        verify_total(rows.job, total)
        return StagedRows((name,), tuple(column.name for column in rows.columns), total)

    def accept(self, session: S, rows: StagedRows) -> StagedRows:
        return rows
