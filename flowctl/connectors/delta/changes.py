"""Changes to rows as changes to files: which files a batch touches, which of their rows go, and what comes.

Delta's own MERGE joins whole tables to find the rows that change: an outer join, for which Spark moves all of the
table's rows through a shuffle. Here the batch's keys go to the table's files instead
(:mod:`flowctl.connectors.delta.row_search`), and only rows with one of them come out, each with its place. The engine
compares those with the batch; what goes is taken out of its file (:mod:`flowctl.connectors.delta.row_removal`), what
comes is a new file.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from flowctl.connectors.buffered import buffered_in
from flowctl.connectors.delta import batch, conditions
from flowctl.connectors.delta.conditions import Condition
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.replay import Action, LogSnapshot
from flowctl.connectors.delta.row_removal import Removal, remove_rows, rows_by_file, search_in
from flowctl.connectors.delta.row_search import FILE, ROW, Search, comparable, row_schema
from flowctl.connectors.delta.statements import quoted
from flowctl.connectors.delta.types import columns_of
from flowctl.connectors.landing import Scratch, ScratchFolder
from flowctl.connectors.target import OP_COLUMN, WriteJob
from flowctl.engine.cost import IN_MEMORY_BYTES
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.sql.dialects import schema_ddl
from flowctl.sql.difference import ACTION, Upsert, difference
from flowctl.sql.scd2 import CHANGE_COLUMN, VALID_FROM

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_INTEGERS = (types.INT8, types.INT16, types.INT32, types.INT64)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
#: Smallest and largest value of key columns in a batch, in Python's types.
Bounds = Mapping[str, tuple[Any, Any]]


@dataclass(frozen=True)
class Change:
    """What one commit does to the files: the rows of ``frame`` (None: none) come, ``removal`` says what goes.
    ``metrics`` are Delta's. ``in_memory``: this process may hold all of ``frame``. ``is_blind``: it is right whatever
    else the table holds, so it may land on any later version."""

    operation: str
    frame: DataFrame | None
    removal: Removal = Removal()
    metrics: Mapping[str, int] | None = None
    in_memory: bool = False
    is_blind: bool = False


@dataclass(frozen=True)
class CandidateRows:
    """The table's rows with one of a batch's keys, each with its place in ``files``. They lie in ``folder``."""

    files: tuple[Action, ...]
    search: Search
    rows: DataFrame
    folder: ScratchFolder
    in_memory: bool


@dataclass(frozen=True)
class ChangeBuilder:
    """Works out what one commit changes in the version ``snapshot``; its metadata is what the table has afterwards."""

    spark: SparkSession
    scratch: Scratch
    location: TableLocation
    job: WriteJob
    snapshot: LogSnapshot

    def append(self, frame: DataFrame) -> Change:
        return Change("WRITE", self._live(frame), in_memory=self.job.few, is_blind=True)

    def overwrite(self, frame: DataFrame) -> Change:
        return Change("WRITE", self._live(frame), Removal(self.snapshot.files), in_memory=self.job.few)

    def merge(self, frame: DataFrame) -> Change:
        """The same rows as :func:`flowctl.connectors.delta.statements.merge`."""
        if not self.snapshot.files:  # nothing to compare with: one row per key, none of them there
            return Change("MERGE", self._live(frame), in_memory=self.job.few)
        job, rows = self.job, batch.with_operations(frame)
        there = self.candidates(rows)
        places = (FILE, ROW)
        with batch.view_of(self._in_table_order(there.rows, also=places)) as target, batch.view_of(rows) as view:
            change = Upsert(
                target=(target,),
                batch=(view,),
                columns=tuple(column.name for column in job.columns),
                batch_columns=tuple(rows.columns),
                key=job.key,
                compared=tuple(name for name in job.compared if name in rows.columns),
                operation=OP_COLUMN,
                deleted_at=job.at if job.soft_deletes else None,
                carried=(*self._foreign_columns(), *places),
            )
            folder = self._folder("difference")
            changed = buffered_in(folder, self.spark.sql(difference(change, "spark")), few=there.in_memory)
        actions = read_columns(folder, (*places, ACTION))
        counts = Counter[str](actions[ACTION].to_pylist() if actions is not None else ())
        soft = job.soft_deletes
        metrics = {
            "numSourceRows": job.rows if job.rows is not None else rows.count(),
            "numTargetRowsInserted": counts["insert"],
            "numTargetRowsUpdated": counts["update"] + (counts["delete"] if soft else 0),
            "numTargetRowsDeleted": 0 if soft else counts["delete"],
        }
        new = changed if soft else changed.where(f"{ACTION} <> 'delete'")
        return self._change(new, _without_inserts(actions), there, metrics)

    def candidates(self, rows: DataFrame) -> CandidateRows:
        """Exactly the rows with the key of one of ``rows``."""
        keys = self._keys(rows)
        files = files_within(self.snapshot.files, self._bounds(keys))
        search = search_in(self.location, self.snapshot, files)
        folder, schema = self._folder("candidates"), row_schema(search.columns)
        with folder.sink(schema) as sink:
            size = search.collect_rows(keys, sink)
        ddl = f"{schema_ddl(search.columns)}, {FILE} INT, {ROW} BIGINT"
        found = self.spark.read.schema(ddl).parquet(folder.url)
        return CandidateRows(files, search, found, folder, self.job.few and size <= IN_MEMORY_BYTES)

    def rows_with_keys(self, rows: DataFrame) -> tuple[DataFrame, ScratchFolder]:
        """As :meth:`flowctl.connectors.delta.writer.Writer.rows_with_keys`."""
        there = self.candidates(rows)
        return self._in_table_order(there.rows), there.folder

    def apply_versions(self, changes: DataFrame, kept: ScratchFolder | None) -> Change:
        """The same rows as :func:`flowctl.connectors.delta.statements.apply_difference`; ``changes`` is buffered in
        ``kept``, unless the table has no files."""
        new = changes.where(f"{CHANGE_COLUMN} = 'put'").drop(CHANGE_COLUMN)
        if kept is None:
            return Change("MERGE", self._in_table_order(new), in_memory=self.job.few)
        identity = (*self.job.key, VALID_FROM)
        there = self.candidates(changes)
        counts, replaced, places = Counter[str](), Counter[str](), None
        if (all_changes := read_columns(kept, (*identity, CHANGE_COLUMN))) is not None:
            counts.update(all_changes[CHANGE_COLUMN].to_pylist())
            if (rows := read_columns(there.folder, (*identity, FILE, ROW))) is not None:
                places = _with_change(rows, all_changes, identity)
                replaced.update(places[CHANGE_COLUMN].to_pylist())
        metrics = {
            "numTargetRowsInserted": counts["put"] - replaced["put"],
            "numTargetRowsUpdated": replaced["put"],
            "numTargetRowsDeleted": replaced["delete"],
        }
        if foreign := self._foreign_columns():
            kept_values = there.rows.select(*map(quoted, (*identity, *foreign)))
            new = new.join(kept_values, on=list(identity), how="left")
        return self._change(new, places, there, metrics)

    def replace_where(self, condition: Condition, frame: DataFrame) -> Change:
        """The rows that meet ``condition`` go, those of ``frame`` come."""
        files = tuple(file for file in self.snapshot.files if conditions.may_match(condition, file))
        removal = Removal()
        if condition == conditions.ALWAYS:
            removal = Removal(files)
        elif files:
            search = search_in(self.location, self.snapshot, files)
            gone = search.matching(conditions.columns_of(condition), conditions.expression(condition))
            removal = remove_rows(search, self.snapshot, files, gone)
        return Change("WRITE", self._in_table_order(frame), removal, in_memory=self.job.few)

    def _change(
        self, new: DataFrame, places: pa.Table | None, there: CandidateRows, metrics: Mapping[str, int]
    ) -> Change:
        """The rows of ``new`` come, those of ``there`` at ``places`` go."""
        if not any(metrics[name] for name in metrics if name != "numSourceRows"):
            return Change("MERGE", None, metrics=metrics)
        gone = rows_by_file(places) if places is not None else {}
        removal = remove_rows(there.search, self.snapshot, there.files, gone)
        return Change("MERGE", self._in_table_order(new), removal, metrics, in_memory=there.in_memory)

    def _live(self, frame: DataFrame) -> DataFrame:
        """All rows of a batch that deletes nothing."""
        columns = self.job.columns
        return self._in_table_order(batch.alive(frame, columns), {column.name for column in columns})

    def _in_table_order(
        self, frame: DataFrame, present: Collection[str] | None = None, also: Sequence[str] = ()
    ) -> DataFrame:
        """``frame`` with exactly the table's columns, in its order and types, and ``also`` after them; columns that it
        does not have are null. ``present`` says which it has: a server of Spark Connect would connect to the source
        anew to answer that."""
        from pyspark.sql import functions as f

        if present is None:
            present = set(frame.columns)
        return frame.select(
            *(
                (f.col(quoted(column.name)) if column.name in present else f.lit(None))
                .cast(types.spark_ddl(column.type))
                .alias(column.name)
                for column in columns_of(self.snapshot.metadata["schemaString"])
            ),
            *also,
        )

    def _foreign_columns(self) -> list[str]:
        """The table's columns that are not the job's."""
        ours = {column.name for column in self.job.columns}
        columns = columns_of(self.snapshot.metadata["schemaString"])
        return [column.name for column in columns if column.name not in ours]

    def _keys(self, rows: DataFrame) -> pa.Table:
        staged = self.job.staged
        here = read_columns(staged, self.job.key) if staged is not None else None
        return here if here is not None else rows.select(*map(quoted, self.job.key)).toArrow()

    def _bounds(self, keys: pa.Table) -> Bounds:
        """Of the key columns whose statistics can be compared exactly; empty for an empty batch."""
        import pyarrow.compute as pc

        bounds: dict[str, tuple[Any, Any]] = {}
        for column in self.job.columns:
            if column.name in self.job.key and _is_comparable(column):
                ends = pc.min_max(keys[column.name])
                bounds[column.name] = (_in_statistics(ends["min"]), _in_statistics(ends["max"]))
        return {name: ends for name, ends in bounds.items() if all(map(_is_ordered, ends))}

    def _folder(self, name: str) -> ScratchFolder:
        return self.scratch.folder(f"{self.job.record.table}-{self.job.record.seq}-{name}")


def files_within(files: Sequence[Action], bounds: Bounds) -> tuple[Action, ...]:
    """The files that may hold a row with a key within ``bounds``, by their statistics."""
    return tuple(file for file in files if _may_hold(file, bounds))


def _may_hold(file: Action, bounds: Bounds) -> bool:
    statistics = json.loads(file.get("stats") or "{}", parse_float=Decimal)
    smallest, largest = statistics.get("minValues", {}), statistics.get("maxValues", {})
    return all(
        not (_is_ordered(smallest.get(name)) and _is_ordered(largest.get(name)))
        or (smallest[name] <= high and largest[name] >= low)
        for name, (low, high) in bounds.items()
    )


def _is_ordered(end: Any) -> bool:
    """Whether ends like this one can be compared: text is a day, and sorts as such from year 1 to 9999."""
    return end is not None and (not isinstance(end, str) or _DAY.fullmatch(end) is not None)


def _is_comparable(column: Column) -> bool:
    """Text is not: its statistics are cut short, each writer's in its own way."""
    return column.type in (*_INTEGERS, types.DATE) or isinstance(column.type, types.Decimal)


def _in_statistics(value: pa.Scalar) -> Any:
    """As they have it; dates are text there."""
    import pyarrow as pa

    return (value.cast(pa.string()) if pa.types.is_date(value.type) else value).as_py()


def read_columns(folder: ScratchFolder, columns: Sequence[str]) -> pa.Table | None:
    """Some columns of all rows, in this process; None for a folder without files."""
    import pyarrow as pa

    batches = list(folder.batches(columns))
    return pa.Table.from_batches(batches) if batches else None


def _without_inserts(actions: pa.Table | None) -> pa.Table | None:
    import pyarrow.compute as pc

    return actions.filter(pc.not_equal(actions[ACTION], "insert")) if actions is not None else None


def _with_change(rows: pa.Table, changes: pa.Table, identity: Sequence[str]) -> pa.Table:
    """Those of the table's ``rows`` that one of ``changes`` is about, with what it does."""
    names = list(identity)
    typed = comparable(changes.select(names).cast(rows.select(names).schema))
    typed = typed.append_column(CHANGE_COLUMN, changes[CHANGE_COLUMN])
    return comparable(rows).join(typed, keys=names, join_type="inner")
