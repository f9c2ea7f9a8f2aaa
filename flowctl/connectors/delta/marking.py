"""Changes to rows as marks: what goes is hidden by a deletion vector, what comes is a new file.

For Spark, which tells a row's file and its number in it. Delta's own MERGE hides rows too, but joins whole tables to
find them: an outer join, for which Spark moves all of the table's rows through a shuffle. Here the batch is small
(:mod:`flowctl.connectors.delta.plain`), so it goes to each of the table's files instead, and only rows with one of its
keys come out. The files are read as they are, without Delta: what is hidden in them already is taken out afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from flowctl.connectors.delta import deletion_vectors
from flowctl.connectors.delta.actions import counted_rows
from flowctl.connectors.delta.log_writer import Change
from flowctl.connectors.delta.replay import Action, LogSnapshot
from flowctl.connectors.delta.rewriting import Near, Rewriter, in_table_order, keys_of, table_columns, touched
from flowctl.connectors.delta.statements import quoted
from flowctl.connectors.delta.types import columns_of
from flowctl.errors import TransientError
from flowctl.model import types

if TYPE_CHECKING:
    import pyarrow as pa
    from pyroaring import BitMap64
    from pyspark.sql import DataFrame

_FILE, _ROW = "_flowctl_file", "_flowctl_row"
#: From so many bytes on the files that hold a key are found by their key columns before others are read.
_LARGE = 256 * 1024 * 1024
#: Not of another table, of which this one is a clone, and with nothing in it that Spark would write in another way.
_WITHIN = re.compile(r"[\w.=-]+(/[\w.=-]+)*", re.ASCII)


@dataclass(frozen=True)
class Marker(Rewriter):
    """Needs a table that has deletion vectors, and whose files have names of their own and say how many rows they
    have."""

    def near(self, rows: DataFrame, snapshot: LogSnapshot) -> Near:
        """Exactly the rows with the key of one of ``rows``, each with its place; in the buffer."""
        if not are_told_apart([file["path"] for file in snapshot.files]):
            raise TransientError(f"{self.location.url} has been given files that Spark does not tell apart by name")
        keys = keys_of(rows, self.job.key)
        wanted = touched(snapshot.files, self.bounds_of_batch(rows, snapshot))
        if sum(int(file["size"]) for file in wanted) > _LARGE:
            places = self._with_keys(keys, wanted, snapshot, self.job.key)
            held = {row[_FILE] for row in places.select(_FILE).distinct().collect()}
            wanted = tuple(file for file in wanted if _name(file) in held)
        if not wanted:
            return Near((), self.spark.createDataFrame([], f"{_ddl(snapshot)}, {_FILE} STRING, {_ROW} BIGINT"))
        found = self.buffered(self._with_keys(keys, wanted, snapshot, table_columns(snapshot)), "near")
        return Near(wanted, self._alive(found, wanted))

    def replaced(
        self, put: DataFrame, gone: DataFrame, identity: Sequence[str], near: Near, snapshot: LogSnapshot
    ) -> Change:
        places = near.rows.join(keys_of(gone, identity), on=list(identity), how="left_semi").select(_FILE, _ROW)
        removed, shrunk = self._marked(near.files, places.toArrow())
        rows = in_table_order(self.with_foreign(put, near.rows, identity, snapshot), snapshot)
        return Change("MERGE", rows, removed, shrunk=shrunk)

    def _with_keys(
        self, keys: DataFrame, files: Sequence[Action], snapshot: LogSnapshot, columns: Sequence[str]
    ) -> DataFrame:
        from pyspark.sql import functions as f

        paths = [f"{self.location.spark_path}/{unquote(file['path'])}" for file in files]
        rows = self.spark.read.schema(_ddl(snapshot)).parquet(*paths)
        placed = rows.select(
            *map(quoted, columns),
            f.col("_metadata.file_name").alias(_FILE),
            f.col("_metadata.row_index").alias(_ROW),
        )
        return placed.join(f.broadcast(keys), on=list(self.job.key), how="left_semi")

    def _alive(self, found: DataFrame, files: Sequence[Action]) -> DataFrame:
        """``found`` without the rows that deletion vectors hide."""
        hidden = {_name(file): self._vector(file) for file in files if "deletionVector" in file}
        if not hidden:
            return found
        from pyspark.sql import functions as f

        places = found.select(_FILE, _ROW).toArrow()
        dead = places.filter([name in hidden and row in hidden[name] for name, row in _pairs(places)])
        if not dead.num_rows:
            return found
        return found.join(f.broadcast(self.spark.createDataFrame(dead)), on=[_FILE, _ROW], how="left_anti")

    def _marked(self, files: Sequence[Action], places: pa.Table) -> tuple[tuple[Action, ...], tuple[Action, ...]]:
        """The ``add`` actions that go, and those that come for the same files with more rows hidden."""
        from pyroaring import BitMap64

        by_name = {_name(file): file for file in files}
        gone: dict[str, list[int]] = {}
        for name, row in _pairs(places):
            gone.setdefault(name, []).append(row)
        if unknown := gone.keys() - by_name.keys():
            raise TransientError(f"{self.location.url}: Spark calls a file {min(unknown)}, which the log does not have")
        vectors: dict[str, BitMap64] = {}
        for name, rows in gone.items():
            vectors[name] = self._vector(by_name[name]) | BitMap64(rows)
        left = {name: rows for name, rows in vectors.items() if len(rows) < counted_rows(by_name[name])}
        descriptors = deletion_vectors.written(self.location, left) if left else {}
        shrunk = tuple(_shrunk(by_name[name], descriptor) for name, descriptor in descriptors.items())
        return tuple(by_name[name] for name in vectors), shrunk

    def _vector(self, file: Action) -> BitMap64:
        from pyroaring import BitMap64

        descriptor = file.get("deletionVector")
        return deletion_vectors.read(self.location, descriptor) if descriptor else BitMap64()


def are_told_apart(paths: Sequence[str]) -> bool:
    """Whether the names that Spark tells are enough to know which of these files of a log a row is from."""
    return len({path.rpartition("/")[2] for path in paths}) == len(paths) and all(map(_WITHIN.fullmatch, paths))


def _shrunk(file: Action, descriptor: deletion_vectors.Descriptor) -> Action:
    """``file`` with other rows hidden: the ends that its statistics name may be among them."""
    wide, told = re.subn(r'"tightBounds"\s*:\s*(?:true|false)', '"tightBounds":false', file["stats"])
    stats = wide if told else f'{file["stats"].rstrip().removesuffix("}")},"tightBounds":false}}'
    return {**file, "stats": stats, "deletionVector": dict(descriptor), "dataChange": True}


def _pairs(places: pa.Table) -> Iterator[tuple[str, int]]:
    return zip(places[_FILE].to_pylist(), places[_ROW].to_pylist(), strict=True)


def _name(file: Action) -> str:
    return str(file["path"]).rpartition("/")[2]


def _ddl(snapshot: LogSnapshot) -> str:
    columns = columns_of(snapshot.metadata["schemaString"])
    return ", ".join(f"{quoted(column.name)} {types.spark_ddl(column.type)}" for column in columns)
