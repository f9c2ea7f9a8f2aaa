"""Changes to rows as changes to files: which files a batch touches, and what stands in their place.

Copy on write: a file that may hold a changed row is written anew, the others stay. The engine does the joins; here is
what MERGE would do inside (:mod:`flowctl.connectors.delta.log_writer` says why it is not asked to). Where rows have
places, they are marked instead (:mod:`flowctl.connectors.delta.marking`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from flowctl.connectors.buffered import buffered_in
from flowctl.connectors.delta import batch
from flowctl.connectors.delta.finding import FILE, ROW
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.log_writer import Change
from flowctl.connectors.delta.reading import rows_of
from flowctl.connectors.delta.replay import Action, LogSnapshot
from flowctl.connectors.delta.statements import quoted
from flowctl.connectors.delta.types import columns_of
from flowctl.connectors.landing import Scratch, ScratchFolder
from flowctl.connectors.target import OP_COLUMN, WriteJob
from flowctl.engine.cost import IN_MEMORY_BYTES
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.sql.difference import ACTION, Upsert, changes_row, difference
from flowctl.sql.scd2 import CHANGE_COLUMN, VALID_FROM

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_INTEGERS = (types.INT8, types.INT16, types.INT32, types.INT64)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
#: Smallest and largest value of key columns in a batch, in Python's types.
Bounds = Mapping[str, tuple[Any, Any]]


@dataclass(frozen=True)
class Near:
    """``files`` that may hold rows with certain keys, and at least those ``rows``; ``is_placed``: exactly those, each
    with its place. ``places`` are their keys and places where this process knows them, and ``folder`` is then where
    the rows lie."""

    files: tuple[Action, ...]
    rows: DataFrame
    is_placed: bool = False
    places: pa.Table | None = None
    folder: ScratchFolder | None = None


@dataclass(frozen=True)
class Gone:
    """The rows that go: those with the ``identity`` of one of ``rows``, or of these exactly those that ``is_changed``
    chooses from the table's ``t`` and the batch's ``s``. ``places`` are theirs, where near rows have places."""

    rows: DataFrame
    identity: Sequence[str]
    batch: DataFrame | None = None
    is_changed: str = ""
    places: pa.Table | None = None

    def without(self, target: DataFrame) -> DataFrame:
        """The rows of ``target`` that stay."""
        from pyspark.sql import functions as f

        if self.batch is None:
            return target.join(keys_of(self.rows, self.identity), on=list(self.identity), how="left_anti")
        t, s = target.alias("t"), self.batch.alias("s")
        same_key = [f.col(f"t.{quoted(name)}") == f.col(f"s.{quoted(name)}") for name in self.identity]
        stays = ~f.coalesce(f.expr(self.is_changed), f.lit(False))
        return t.join(s, on=same_key, how="left").where(stays).select("t.*")


@dataclass(frozen=True)
class Rewriter:
    """Works out the changes of one table's commits. :meth:`near_in` and :meth:`replaced` are what ways differ in."""

    spark: SparkSession
    location: TableLocation
    scratch: Scratch
    job: WriteJob

    def append(self, frame: DataFrame, snapshot: LogSnapshot) -> Change:
        return Change("WRITE", self.alive(frame, snapshot), few=self.job.few, is_blind=True)

    def overwrite(self, frame: DataFrame, snapshot: LogSnapshot) -> Change:
        return Change("WRITE", self.alive(frame, snapshot), snapshot.files, few=self.job.few)

    def alive(self, frame: DataFrame, snapshot: LogSnapshot) -> DataFrame:
        """All rows of a batch that deletes nothing."""
        columns = self.job.columns
        return in_table_order(batch.alive(frame, columns), snapshot, {column.name for column in columns})

    def merge(self, frame: DataFrame, snapshot: LogSnapshot) -> Change:
        """The same rows as :func:`flowctl.connectors.delta.statements.merge`."""
        if not snapshot.files:  # nothing to compare with: one row per key, none of them there
            return Change("MERGE", self.alive(frame, snapshot), few=self.job.few)
        job, rows = self.job, batch.with_operations(frame)
        near = self.near(rows, snapshot)
        places = (FILE, ROW) if near.is_placed else ()
        with (
            batch.view_of(in_table_order(near.rows, snapshot, also=places)) as target_view,
            batch.view_of(rows) as view,
        ):
            change = Upsert(
                target=(target_view,),
                batch=(view,),
                columns=tuple(column.name for column in job.columns),
                batch_columns=tuple(rows.columns),
                key=job.key,
                compared=tuple(name for name in job.compared if name in rows.columns),
                operation=OP_COLUMN,
                deleted_at=job.at if job.soft_deletes else None,
                carried=(*self.foreign(snapshot), *places),
            )
            folder = self.folder("difference")
            found = buffered_in(folder, self.spark.sql(difference(change, "spark")), few=self.are_few(near))
        here = read(folder, (*places, ACTION)) if near.places is not None else None
        counts = _counted(found, ACTION) if here is None else Counter(here[ACTION].to_pylist())
        soft = job.soft_deletes
        put = found if soft else found.where(f"{ACTION} <> 'delete'")
        metrics = {
            "numSourceRows": job.rows if job.rows is not None else rows.count(),
            "numTargetRowsInserted": counts.get("insert", 0),
            "numTargetRowsUpdated": counts.get("update", 0) + (counts.get("delete", 0) if soft else 0),
            "numTargetRowsDeleted": 0 if soft else counts.get("delete", 0),
        }
        gone = None
        if counts.keys() - {"insert"}:
            changed = found.where(f"{ACTION} <> 'insert'")
            chosen = changed.select(*places).toArrow() if places and here is None else here
            gone = Gone(changed, job.key, rows, changes_row(change, "spark"), _without_inserts(chosen))
        return self._replaced(put, gone, near, snapshot, metrics)

    def rows_with_keys(self, rows: DataFrame, snapshot: LogSnapshot) -> tuple[DataFrame, ScratchFolder]:
        """As :meth:`flowctl.connectors.delta.writers.Writer.rows_with_keys`."""
        near = self.near(rows, snapshot)
        if near.folder is not None:
            return in_table_order(near.rows, snapshot), near.folder
        folder = self.folder("with-keys")
        found = near.rows.join(keys_of(rows, self.job.key), on=list(self.job.key), how="left_semi")
        return buffered_in(folder, in_table_order(found, snapshot)), folder

    def apply_versions(self, changes: DataFrame, kept: ScratchFolder | None, snapshot: LogSnapshot) -> Change:
        """The same rows as :func:`flowctl.connectors.delta.statements.apply_difference`; ``changes`` is buffered in
        ``kept``, unless the table has no files."""
        if not snapshot.files:
            put = in_table_order(changes.where(f"{CHANGE_COLUMN} = 'put'"), snapshot)
            return Change("MERGE", put, few=self.job.few)
        identity = (*self.job.key, VALID_FROM)
        near = self.near(changes, snapshot)
        places, counts, found = None, Counter[str](), Counter[str]()
        if kept is not None and near.folder is not None:
            here, there = read(kept, (*identity, CHANGE_COLUMN)), read(near.folder, (*identity, FILE, ROW))
            counts.update(here[CHANGE_COLUMN].to_pylist() if here is not None else ())
            if here is not None and there is not None:
                places = _replacing(here, there, identity)
                found.update(places[CHANGE_COLUMN].to_pylist())
        else:
            those = changes.join(keys_of(near.rows, identity), on=list(identity), how="left_semi")
            counts.update(_counted(changes, CHANGE_COLUMN))
            found.update(_counted(those, CHANGE_COLUMN))
        puts = counts.get("put", 0)
        metrics = {
            "numTargetRowsInserted": puts - found.get("put", 0),
            "numTargetRowsUpdated": found.get("put", 0),
            "numTargetRowsDeleted": found.get("delete", 0),
        }
        put = changes.where(f"{CHANGE_COLUMN} = 'put'").drop(CHANGE_COLUMN)
        gone = Gone(changes, identity, places=places) if found else None
        return self._replaced(put, gone, near, snapshot, metrics)

    def replace_where(
        self, condition: str, may_meet: Callable[[Action], bool], frame: DataFrame, snapshot: LogSnapshot
    ) -> Change:
        """The rows that meet ``condition`` go, those of ``frame`` come. ``may_meet``: what the log says of a file."""
        from pyspark.sql import functions as f

        rows = in_table_order(frame, snapshot)
        if not any(map(may_meet, snapshot.files)):
            return Change("WRITE", rows, few=self.job.few)
        target, _ = rows_of(self.spark, self.location, snapshot, snapshot.files)
        target = in_table_order(target, snapshot)  # with the columns that come with this commit
        meets = f.coalesce(f.expr(condition), f.lit(False))
        if not snapshot.files or target.where(meets).isEmpty():
            return Change("WRITE", rows)
        return Change("WRITE", target.where(~meets).unionAll(rows), snapshot.files)

    def _replaced(
        self,
        put: DataFrame,
        gone: Gone | None,
        near: Near,
        snapshot: LogSnapshot,
        metrics: Mapping[str, int],
    ) -> Change:
        """``put`` (columns of the job) comes, ``gone`` goes; what comes back keeps its values in columns that are not
        the job's."""
        if not any(metrics[name] for name in metrics if name != "numSourceRows"):
            return Change("MERGE", None, metrics=metrics)
        if gone is None:
            return Change("MERGE", in_table_order(put, snapshot), metrics=metrics, few=self.are_few(near))
        return replace(self.replaced(put, gone, near, snapshot), metrics=metrics)

    def are_few(self, near: Near) -> bool:
        """Whether this process may hold what the batch makes of ``near``: at most a row for each row of either."""
        return self.job.few and near.places is not None and near.places.nbytes <= IN_MEMORY_BYTES

    def near(self, rows: DataFrame, snapshot: LogSnapshot) -> Near:
        """What the table has under the keys of ``rows``, and maybe more."""
        return self.near_in(touched(snapshot.files, self.bounds_of_batch(rows, snapshot)), rows, snapshot)

    def near_in(self, files: tuple[Action, ...], rows: DataFrame, snapshot: LogSnapshot) -> Near:
        """:meth:`near`, which is in ``files``."""
        target, _ = rows_of(self.spark, self.location, snapshot, files)
        return Near(files, target)

    def replaced(self, put: DataFrame, gone: Gone, near: Near, snapshot: LogSnapshot) -> Change:
        """As :meth:`_replaced`, with rows that go. Files that may hold one of them are written anew."""
        wanted = touched(near.files, self.bounds(gone.rows, snapshot))
        target, removed = rows_of(self.spark, self.location, snapshot, wanted)
        target = in_table_order(target, snapshot)
        put = in_table_order(self.with_foreign(put, target, gone, snapshot), snapshot)
        return Change("MERGE", in_table_order(gone.without(target), snapshot).unionAll(put), removed)

    def with_foreign(self, put: DataFrame, target: DataFrame, gone: Gone, snapshot: LogSnapshot) -> DataFrame:
        """``put`` with the values that ``target`` has in columns that are not the job's; a merge's has them."""
        foreign = self.foreign(snapshot)
        if not foreign or gone.batch is not None:
            return put
        return put.join(keys_of(target, (*gone.identity, *foreign)), on=list(gone.identity), how="left")

    def foreign(self, snapshot: LogSnapshot) -> list[str]:
        """Columns that are not the job's."""
        ours = {column.name for column in self.job.columns}
        return [name for name in table_columns(snapshot) if name not in ours]

    def bounds_of_batch(self, rows: DataFrame, snapshot: LogSnapshot) -> Bounds:
        """As :meth:`bounds`, or those that staging has counted: no row that follows from a batch has another key."""
        known = self.job.key_bounds
        if known is None:
            return self.bounds(rows, snapshot)
        return _values({column: known[column.name] for column in self._comparable_keys() if column.name in known})

    def bounds(self, rows: DataFrame, snapshot: LogSnapshot) -> Bounds:
        """Of the key columns whose statistics can be compared exactly; empty for an empty batch."""
        from pyspark.sql import functions as f

        keys = self._comparable_keys()
        if not keys or not snapshot.files:
            return {}
        ends = [end(quoted(column.name)).cast("string") for column in keys for end in (f.min, f.max)]
        row = rows.agg(*(end.alias(f"v{at}") for at, end in enumerate(ends))).collect()[0]
        found = {column: (row[2 * at], row[2 * at + 1]) for at, column in enumerate(keys)}
        return _values({column: ends for column, ends in found.items() if ends[0] is not None})

    def _comparable_keys(self) -> list[Column]:
        return [column for column in self.job.columns if column.name in self.job.key and _is_comparable(column)]

    def folder(self, name: str) -> ScratchFolder:
        return self.scratch.folder(f"{self.job.record.table}-{self.job.record.seq}-{name}")


def in_table_order(
    frame: DataFrame, snapshot: LogSnapshot, present: Collection[str] | None = None, also: Sequence[str] = ()
) -> DataFrame:
    """``frame`` with exactly the table's columns, in its order and types, and ``also`` after them; columns that it does
    not have are null. ``present`` says which it has: a server of Spark Connect would connect to the source anew to
    answer that."""
    from pyspark.sql import functions as f

    if present is None:
        present = set(frame.columns)
    return frame.select(
        *(
            (f.col(quoted(column.name)) if column.name in present else f.lit(None))
            .cast(types.spark_ddl(column.type))
            .alias(column.name)
            for column in columns_of(snapshot.metadata["schemaString"])
        ),
        *also,
    )


def table_columns(snapshot: LogSnapshot) -> list[str]:
    return [column.name for column in columns_of(snapshot.metadata["schemaString"])]


def touched(files: Sequence[Action], bounds: Bounds) -> tuple[Action, ...]:
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


def _values(ends: Mapping[Column, tuple[str, str]]) -> Bounds:
    found = {column.name: (_value(low, column), _value(high, column)) for column, (low, high) in ends.items()}
    return {name: ends for name, ends in found.items() if all(map(_is_ordered, ends))}


def _value(text: str, column: Column) -> Any:
    """As statistics write it; dates are text there, and sort as such."""
    if column.type in _INTEGERS:
        return int(text)
    return text if column.type == types.DATE else Decimal(text)


def keys_of(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    return frame.select(*map(quoted, names))


def read(folder: ScratchFolder, columns: Sequence[str]) -> pa.Table | None:
    """Some columns of all rows, in this process; None for a folder without files."""
    import pyarrow as pa

    batches = list(folder.batches(columns))
    return pa.Table.from_batches(batches) if batches else None


def _without_inserts(judged: pa.Table | None) -> pa.Table | None:
    import pyarrow.compute as pc

    if judged is None or ACTION not in judged.column_names:
        return judged
    return judged.filter(pc.not_equal(judged[ACTION], "insert"))


def _replacing(changes: pa.Table, there: pa.Table, identity: Sequence[str]) -> pa.Table:
    """Those of ``changes`` that are about a row of ``there``, with its place."""
    names = list(identity)
    typed = changes.select(names).cast(there.select(names).schema)
    return there.join(typed.append_column(CHANGE_COLUMN, changes[CHANGE_COLUMN]), keys=names, join_type="inner")


def _counted(frame: DataFrame, column: str) -> dict[str, int]:
    return {row[column]: row["count"] for row in frame.groupBy(column).count().collect()}
