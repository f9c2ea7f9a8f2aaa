"""DuckDB as an embedded target: the engine writes Parquet segments to the buffer, DuckDB reads them, and one
transaction commits the change together with its sequence number.

The rows are a temporary view of the segments, so nothing is copied, and a killed attempt leaves nothing behind. DDL is
part of the transaction, before all changes of rows: DuckDB does not commit a table that was altered after its rows were
changed.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from flowctl.connectors.buffered import buffered
from flowctl.connectors.duckdb import limits, place, refusals
from flowctl.connectors.duckdb.database import open_database
from flowctl.connectors.duckdb.session import DUCKDB, DuckdbSession
from flowctl.connectors.duckdb.source import DuckdbSource
from flowctl.connectors.preconditions import require_unaltered, verify_total
from flowctl.connectors.refusal import LEAVE_OUT, PREFIX
from flowctl.connectors.sql.change import StagedRows
from flowctl.connectors.sql.embedded import Access, EmbeddedTarget, HandedRows
from flowctl.connectors.sql.hindrances import Constraint
from flowctl.connectors.target import WriteJob
from flowctl.engine.batch import Batch, InMemory, OnEngine
from flowctl.engine.spark_types import frame_in_order
from flowctl.model import types
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.spec.spec import Layout
from flowctl.sql import dialects

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class DuckdbTarget(EmbeddedTarget[DuckdbSession]):
    dialect = DUCKDB

    @contextmanager
    def open_session(self, access: Access) -> Iterator[DuckdbSession]:
        with open_database(self.path, access) as connection:
            yield DuckdbSession(connection, self.inode if access != "none" else "")

    def source(self) -> DuckdbSource:
        return DuckdbSource(self.path, self.capabilities)

    def place(self, object: ObjectName) -> str:
        return place({"path": str(self.path)}, object, "")

    def refuse_change(self, info: TableInfo, change: SchemaChange) -> SchemaChange | None:
        return refusals.refuse_change(info, change)

    def refuse_key(self, there: TableInfo, key: Sequence[str], layout: Layout) -> tuple[str, str] | None:
        return refusals.refuse_key(there, key)

    def limited_columns(self, there: TableInfo, written: Collection[str]) -> list[Column]:
        return [one for one in there.columns if one.name in written and limits.is_limited(one)]

    def create_statements(self, object: ObjectName, columns: Sequence[Column], layout: Layout) -> list[str]:
        schemas = [f"CREATE SCHEMA IF NOT EXISTS {self.dialect.quoted(name)}" for name in object.parts[:-1]]
        return [*schemas, *super().create_statements(object, columns, layout)]

    @contextmanager
    def hand_over(
        self, spark: SparkSession, batch: Batch, columns: Sequence[Column], job: WriteJob
    ) -> Iterator[HandedRows]:
        if isinstance(batch, OnEngine):
            folder = self.buffer.folder(f"rows-{job.object}-{job.record.seq}")
            batch = OnEngine(buffered(frame_in_order(batch.frame, columns), folder), folder)
        yield HandedRows(batch, tuple(columns), job)

    def load(self, session: DuckdbSession, rows: HandedRows) -> StagedRows:
        name = f"_flowctl_stage_{secrets.token_hex(4)}"
        values = ", ".join(map(_stored, rows.columns))
        session.execute(f"CREATE TEMPORARY VIEW {name} AS SELECT {values} FROM {_relation(session, rows, name)}")
        ((total,),) = session.fetch(f"SELECT count(*) FROM {name}")
        verify_total(rows.job, total)
        staged = StagedRows((name,), tuple(column.name for column in rows.columns), total)
        there = session.describe([rows.job.object])[rows.job.object]
        return _in_types_of(session, rows.job, staged, limits.limited(there, rows.columns))

    def prepare_table(self, session: DuckdbSession, job: WriteJob) -> None:
        """Inserts no row, which loads the table's indexes. DuckDB loads an index only when it needs it, and does not
        notice rows that were deleted before: it would refuse the same key in a new row (tested: 1.5.5)."""
        table, names = self.dialect.table(job.object.parts), session.written_columns(job.object.parts)
        listed = ", ".join(map(self.dialect.quoted, names))
        session.execute(f"INSERT INTO {table} ({listed}) SELECT {listed} FROM {table} WHERE false")

    def violated_constraint(self, session: DuckdbSession, job: WriteJob, error: Exception) -> Constraint | None:
        return refusals.violated_constraint(session.connection, job.object, error)


def _relation(session: DuckdbSession, rows: HandedRows, name: str) -> str:
    """What a view reads ``rows`` from."""
    match rows.rows:
        case InMemory(held):
            session.connection.register(f"{name}_rows", held)
            return f"{name}_rows"
        case OnEngine(_, folder):
            urls = [] if folder is None else session.readable(folder)
            if urls:
                return f"read_parquet([{', '.join(dialects.text(url, 'duckdb') for url in urls)}])"
            columns = ", ".join(
                f"CAST(NULL AS {DUCKDB.column_type(column.type)}) AS {DUCKDB.quoted(column.name)}"
                for column in rows.columns
            )
            return f"(SELECT {columns} WHERE false)"
        case other:
            assert_never(other)


def _in_types_of(
    session: DuckdbSession, job: WriteJob, staged: StagedRows, limited: Mapping[str, Column]
) -> StagedRows:
    """``staged`` in the types of the ``limited`` columns of its table. Raises :class:`FlowctlError` if such a column
    was altered since the plan was made, or would change a value."""
    if not limited:
        return staged
    for column in job.standing:
        if column.name in limited:
            require_unaltered(job.object, column.name, column, limited[column.name])
    limits.require_kept(session, job, staged, limited.values())
    name = f"{staged.table[0]}_fitted"
    values = [limits.converted(limited[one]) if one in limited else DUCKDB.quoted(one) for one in staged.columns]
    session.execute(f"CREATE TEMPORARY VIEW {name} AS SELECT {', '.join(values)} FROM {staged.table[0]}")
    return StagedRows((name,), staged.columns, staged.rows)


def _stored(column: Column) -> str:
    """The value in the column's type. DuckDB's last moment is infinity."""
    name, kind = DUCKDB.quoted(column.name), DUCKDB.column_type(column.type)
    value = f"CAST({name} AS {kind})"
    if column.type in (types.DATE, types.TIMESTAMP, types.TIMESTAMP_NTZ):
        message = f'{PREFIX}column "{column.name}" ({types.short(column.type)}): DuckDB has no such year'
        refused = dialects.text(f"{message} | {LEAVE_OUT}", "duckdb")
        value = f"CASE WHEN NOT isfinite({value}) THEN error({refused}) ELSE {value} END"
    return f"{value} AS {name}"
