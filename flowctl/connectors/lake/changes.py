"""Row changes expressed as file changes: which files a batch touches, which of their rows are removed, which are added.

A MERGE of Spark finds the changed rows by joining whole tables: an outer join, for which Spark shuffles every row of
the table. Here the table's files are searched for the batch's keys instead
(:mod:`flowctl.connectors.lake.row_search`), which yields only the rows with one of these keys, each with its file and
row number. The engine compares them with the batch. Removed rows are taken out of their files, as the table's format
allows; added rows become new files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from flowctl.connectors.buffered import Overflowing, batch_like, computed, frame_of, read_columns, where_equal
from flowctl.connectors.lake import conditions, memory_difference
from flowctl.connectors.lake.conditions import Condition, Term, quoted
from flowctl.connectors.lake.memory_difference import can_compare
from flowctl.connectors.lake.row_search import FILE, ROW, Search, comparable, row_schema, rows_by_file
from flowctl.connectors.lake.rows import in_order, live_rows, view_of, with_operations
from flowctl.connectors.lake.table import LakeTable, Removal
from flowctl.connectors.target import OP_COLUMN, WriteJob
from flowctl.engine.batch import Batch, InMemory, OnEngine
from flowctl.engine.spark_types import frame_in_order
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.sql.dialects import schema_ddl
from flowctl.sql.difference import ACTION, Upsert, difference
from flowctl.sql.versioning import CHANGE_COLUMN, VALID_FROM
from flowctl.storage.buffer import Buffer, BufferFolder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

#: Types whose statistics can be compared exactly. Text statistics are truncated, by each writer in its own way.
_COMPARABLE = (types.INT8, types.INT16, types.INT32, types.INT64, types.DATE)


@dataclass(frozen=True)
class Change:
    """What one commit changes: it adds the rows of ``new`` (None: no rows) and applies ``removal``. ``metrics`` are
    Delta's. ``is_blind``: the change is correct whatever else the table holds, so it may follow any later version.
    ``marked`` counts the updated rows that are soft deletions."""

    operation: str
    new: Batch | None
    removal: Removal = Removal()
    metrics: Mapping[str, int] | None = None
    is_blind: bool = False
    marked: int = 0


@dataclass(frozen=True)
class CandidateRows:
    """The table's rows with one of a batch's keys, each with its file, as an index of ``files``, and row number."""

    files: tuple[Any, ...]
    search: Search
    rows: Batch


@dataclass(frozen=True)
class ChangeBuilder:
    """Computes what one commit changes in ``table``, which has ``columns`` afterwards."""

    spark: SparkSession
    buffer: Buffer
    table: LakeTable
    columns: tuple[Column, ...]
    job: WriteJob

    def append(self, rows: Batch) -> Change:
        return Change("WRITE", live_rows(rows, self.columns, self.job), is_blind=True)

    def overwrite(self, rows: Batch) -> Change:
        return Change("WRITE", live_rows(rows, self.columns, self.job), Removal(self.table.files))

    def merge(self, rows: Batch) -> Change:
        """Inserts, updates and deletes by the key, as :func:`flowctl.sql.difference.difference` says."""
        if not self.table.files:  # nothing to compare with: all rows are new, one per key
            return Change("MERGE", live_rows(rows, self.columns, self.job))
        import pyarrow.compute as pc

        there = self.candidates(rows)
        changed = self._difference(rows, there.rows)
        actions = read_columns(changed, (FILE, ROW, ACTION))
        counts = Counter[str](actions[ACTION].to_pylist())
        soft = self.job.soft_deletes
        metrics = {
            "numSourceRows": self.job.rows if self.job.rows is not None else _count(rows),
            "numTargetRowsInserted": counts["insert"],
            "numTargetRowsUpdated": counts["update"] + (counts["delete"] if soft else 0),
            "numTargetRowsDeleted": 0 if soft else counts["delete"],
        }
        new = changed if soft else _without_deleted(changed)
        change = self._change(new, actions.filter(pc.not_equal(actions[ACTION], "insert")), there, metrics)
        return replace(change, marked=counts["delete"] if soft else 0)

    def _difference(self, rows: Batch, there: Batch) -> Batch:
        """The changed rows, with :data:`FILE`, :data:`ROW` and :data:`ACTION`."""
        places, job = (FILE, ROW), self.job
        names = {*rows.names, OP_COLUMN}
        change = Upsert(
            target=(),
            batch=(),
            columns=tuple(column.name for column in job.columns),
            batch_columns=tuple(names),
            key=job.key,
            compared=tuple(name for name in job.compared if name in names),
            operation=OP_COLUMN,
            deleted_at=job.at if job.soft_deletes else None,
            is_ordered=job.is_ordered,
            carried=(*self._foreign_columns(), *places),
        )
        both = (rows, there)
        if isinstance(rows, InMemory) and isinstance(there, InMemory) and can_compare(job.columns, change.compared):
            return InMemory(memory_difference.difference(rows.rows, there.rows, change, job.columns))
        frames = [frame_of(one, self.spark, partial(self._folder, "batch")) for one in both]
        target = frame_in_order(frames[1], self.columns, also=places)
        with view_of(target) as target_view, view_of(with_operations(frames[0])) as view:
            sql = difference(replace(change, target=(target_view,), batch=(view,)), "spark")
            like = there if isinstance(rows, InMemory) else rows
            return computed(self.spark.sql(sql), like, partial(self._folder, "difference"))

    def candidates(self, rows: Batch) -> CandidateRows:
        """Finds exactly the table's rows that have the key of one of ``rows``."""
        keys = read_columns(rows, self.job.key)
        files = self._files_that_may_match([self._key_range(keys)])
        search = self.table.search(self.columns, files)
        with Overflowing(row_schema(search.columns), partial(self._folder, "candidates")) as sink:
            search.collect_rows(keys, sink)
        ddl = f"{schema_ddl(search.columns)}, {FILE} INT, {ROW} BIGINT"
        return CandidateRows(files, search, sink.batch(self.spark, ddl))

    def rows_with_keys(self, rows: Batch) -> Batch:
        """As :meth:`flowctl.connectors.lake.writer.Writer.rows_with_keys`."""
        return self.candidates(rows).rows

    def apply_versions(self, versions: Batch) -> Change:
        """Puts and deletes the versions that :func:`flowctl.sql.scd2.difference` names."""
        if not self.table.files:  # computed once: there are no rows to replace
            return Change("MERGE", in_order(where_equal(versions, CHANGE_COLUMN, "put"), self.columns))
        identity = (*self.job.key, VALID_FROM)
        there = self.candidates(versions)
        changes = read_columns(versions, (*identity, CHANGE_COLUMN))
        places = _with_change(read_columns(there.rows, (*identity, FILE, ROW)), changes, identity)
        counts, replaced = (Counter[str](rows[CHANGE_COLUMN].to_pylist()) for rows in (changes, places))
        metrics = {
            "numTargetRowsInserted": counts["put"] - replaced["put"],
            "numTargetRowsUpdated": replaced["put"],
            "numTargetRowsDeleted": replaced["delete"],
        }
        new = where_equal(versions, CHANGE_COLUMN, "put")
        if foreign := self._foreign_columns():
            new = self._with_values(new, there.rows, identity, foreign)
        return self._change(new, places, there, metrics)

    def _with_values(self, new: Batch, there: Batch, identity: Sequence[str], foreign: Sequence[str]) -> Batch:
        """``new`` with the existing rows' values in the ``foreign`` columns."""
        frame, before = (frame_of(rows, self.spark, partial(self._folder, "foreign")) for rows in (new, there))
        kept = before.select(*map(quoted, (*identity, *foreign)))
        return batch_like(new, frame.join(kept, on=list(identity), how="left"))

    def replace_where(self, condition: Condition, rows: Batch) -> Change:
        """Removes the rows that meet ``condition`` and adds ``rows``."""
        files = self._files_that_may_match(condition)
        removal = Removal()
        if condition == conditions.ALWAYS:
            removal = Removal(files)
        elif files:
            search = self.table.search(self.columns, files)
            gone = search.matching(conditions.columns_of(condition), conditions.expression(condition))
            removal = self.table.remove_rows(search, files, gone)
        return Change("WRITE", in_order(rows, self.columns), removal)

    def _change(self, new: Batch, places: pa.Table, there: CandidateRows, metrics: Mapping[str, int]) -> Change:
        """Adds the rows of ``new`` and removes those of ``there`` at ``places``."""
        if not any(metrics[name] for name in metrics if name != "numSourceRows"):
            return Change("MERGE", None, metrics=metrics)
        removal = self.table.remove_rows(there.search, there.files, rows_by_file(places))
        return Change("MERGE", in_order(new, self.columns), removal, metrics)

    def _foreign_columns(self) -> list[str]:
        """The table's columns that are not the job's."""
        ours = {column.name for column in self.job.columns}
        return [column.name for column in self.columns if column.name not in ours]

    def _key_range(self, keys: pa.Table) -> list[Term]:
        """Terms that every row with one of the keys meets, for key columns whose statistics can be compared exactly."""
        import pyarrow.compute as pc

        terms: list[Term] = []
        for column in self.job.columns:
            if column.name in self.job.key and _is_comparable(column):
                ends = pc.min_max(keys[column.name])
                terms += [(column.name, ">=", ends["min"].as_py()), (column.name, "<=", ends["max"].as_py())]
        return [term for term in terms if term[2] is not None]

    def _files_that_may_match(self, condition: Condition) -> tuple[Any, ...]:
        return tuple(file for file in self.table.files if self.table.may_match(condition, file))

    def _folder(self, name: str) -> BufferFolder:
        return self.buffer.folder(f"{self.job.record.table}-{self.job.record.seq}-{name}")


def _is_comparable(column: Column) -> bool:
    return column.type in _COMPARABLE or isinstance(column.type, types.Decimal)


def _count(rows: Batch) -> int:
    return rows.rows.num_rows if isinstance(rows, InMemory) else int(rows.frame.count())


def _without_deleted(difference: Batch) -> Batch:
    """The inserted and updated rows."""
    import pyarrow.compute as pc

    match difference:
        case InMemory(rows):
            return InMemory(rows.filter(pc.not_equal(rows[ACTION], "delete")))
        case OnEngine(frame):
            return OnEngine(frame.where(f"{ACTION} <> 'delete'"))
        case _:
            assert_never(difference)


def _with_change(rows: pa.Table, changes: pa.Table, identity: Sequence[str]) -> pa.Table:
    """The table's ``rows`` that ``changes`` affect, each with its :data:`CHANGE_COLUMN`."""
    names = list(identity)
    typed = comparable(changes.select(names).cast(rows.select(names).schema))
    typed = typed.append_column(CHANGE_COLUMN, changes[CHANGE_COLUMN])
    return comparable(rows).join(typed, keys=names, join_type="inner")
