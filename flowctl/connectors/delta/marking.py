"""Changes to rows as marks: what goes is hidden by a deletion vector, what comes is a new file.

Delta's own MERGE hides rows too, but joins whole tables to find them: an outer join, for which Spark moves all of the
table's rows through a shuffle. Here the batch is small, so its keys go to each of the table's files instead, and only
rows with one of them come out: this process looks for them itself (:mod:`flowctl.connectors.delta.finding`), or Spark
does, which tells a row's file and its number in it. Either reads the files as they are, without Delta: what is hidden
in them already is taken out afterwards. Sail cannot do it in the other's place: files are written anew there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from flowctl.connectors.delta import deletion_vectors, finding
from flowctl.connectors.delta.actions import counted_rows
from flowctl.connectors.delta.finding import FILE, ROW
from flowctl.connectors.delta.log_writer import Change
from flowctl.connectors.delta.replay import Action, LogSnapshot
from flowctl.connectors.delta.rewriting import Gone, Near, Rewriter, in_table_order, keys_of, read
from flowctl.connectors.delta.statements import DELETION_VECTORS
from flowctl.connectors.delta.types import columns_of
from flowctl.engine.session import has_own_workers
from flowctl.errors import TransientError
from flowctl.sql.dialects import schema_ddl

if TYPE_CHECKING:
    import pyarrow as pa
    from pyroaring import BitMap64
    from pyspark.sql import DataFrame

#: From so many bytes on the files that hold a key are found by their key columns before others are read; and where
#: Spark runs on other machines, it does so, not this process.
LARGE = 256 * 1024 * 1024
#: Values (rows x columns) of a batch whose like this process may hold.
_MOST_VALUES = 8_000_000
#: Not of another table, of which this one is a clone, and with nothing in it that Spark would write in another way.
_WITHIN = re.compile(r"[\w.=-]+(/[\w.=-]+)*", re.ASCII)


@dataclass(frozen=True)
class Marker(Rewriter):
    """Marks where rows have places, and writes files anew where this process cannot find them."""

    def near_in(self, files: tuple[Action, ...], rows: DataFrame, snapshot: LogSnapshot) -> Near:
        """Where it can: exactly the rows with the key of one of ``rows``, each with its place; in the buffer."""
        near = self._found(rows, files, snapshot) if self._is_searched_here(files, snapshot) else None
        return near or self.near_by_engine(files, rows, snapshot)

    def near_by_engine(self, files: tuple[Action, ...], rows: DataFrame, snapshot: LogSnapshot) -> Near:
        return super().near_in(files, rows, snapshot)

    def replaced(self, put: DataFrame, gone: Gone, near: Near, snapshot: LogSnapshot) -> Change:
        if not near.is_placed:
            return super().replaced(put, gone, near, snapshot)
        removed, shrunk = self._marked(near.files, gone.places if gone.places is not None else _places_of(gone, near))
        rows = in_table_order(self.with_foreign(put, near.rows, gone, snapshot), snapshot)
        return Change("MERGE", rows, removed, shrunk=shrunk, few=self.are_few(near))

    def _is_searched_here(self, files: Sequence[Action], snapshot: LogSnapshot) -> bool:
        columns = columns_of(snapshot.metadata["schemaString"])
        return (
            _can_be_marked(snapshot)
            and finding.can_be_keys([column for column in columns if column.name in self.job.key])
            and self.job.rows is not None
            and self.job.rows * len(columns) <= _MOST_VALUES
            and (has_own_workers(self.spark) or sum(int(file["size"]) for file in files) <= LARGE)
        )

    def _found(self, rows: DataFrame, files: tuple[Action, ...], snapshot: LogSnapshot) -> Near | None:
        """Found by this process; None where it cannot read a file exactly."""
        columns = columns_of(snapshot.metadata["schemaString"])
        data_files = [finding.DataFile(name_of(file), file["path"], partial(self.vector, file)) for file in files]
        folder = self.folder("near")
        try:
            with folder.sink(finding.row_schema(columns)) as sink:
                places = finding.found(self.location, data_files, columns, self._keys(rows), sink)
        except finding.Unreadable:
            return None
        found = self.spark.read.schema(placed_ddl(snapshot)).parquet(folder.url)
        return Near(files, found, is_placed=True, places=places, folder=folder)

    def _keys(self, rows: DataFrame) -> pa.Table:
        staged = self.job.staged
        here = read(staged, self.job.key) if staged is not None else None
        return here if here is not None else keys_of(rows, self.job.key).toArrow()

    def _marked(self, files: Sequence[Action], places: pa.Table) -> tuple[tuple[Action, ...], tuple[Action, ...]]:
        """The ``add`` actions that go, and those that come for the same files with more rows hidden."""
        from pyroaring import BitMap64

        by_name = {name_of(file): file for file in files}
        gone: dict[str, list[int]] = {}
        for name, row in pairs(places):
            gone.setdefault(name, []).append(row)
        if unknown := gone.keys() - by_name.keys():
            raise TransientError(f"{self.location.url}: Spark calls a file {min(unknown)}, which the log does not have")
        vectors: dict[str, BitMap64] = {}
        for name, rows in gone.items():
            vectors[name] = self.vector(by_name[name]) | BitMap64(rows)
        left = {name: rows for name, rows in vectors.items() if len(rows) < counted_rows(by_name[name])}
        descriptors = deletion_vectors.written(self.location, left) if left else {}
        shrunk = tuple(_shrunk(by_name[name], descriptor) for name, descriptor in descriptors.items())
        return tuple(by_name[name] for name in vectors), shrunk

    def vector(self, file: Action) -> BitMap64:
        from pyroaring import BitMap64

        descriptor = file.get("deletionVector")
        return deletion_vectors.read(self.location, descriptor) if descriptor else BitMap64()


def _places_of(gone: Gone, near: Near) -> pa.Table:
    """Their :data:`FILE` and :data:`ROW`."""
    identity = list(gone.identity)
    known = near.rows.join(keys_of(gone.rows, identity), on=identity, how="left_semi")
    return known.select(FILE, ROW).toArrow()


def _can_be_marked(snapshot: LogSnapshot) -> bool:
    """Whether rows of all files have a place that can be kept."""
    metadata = snapshot.metadata
    return (
        metadata["configuration"].get(DELETION_VECTORS) == "true"
        and "deletionVectors" in snapshot.protocol.get("writerFeatures", ())
        and not metadata["partitionColumns"]
        and "delta.typeChanges" not in metadata["schemaString"]
        and all('"numRecords"' in (file.get("stats") or "") for file in snapshot.files)
        and are_told_apart([file["path"] for file in snapshot.files])
    )


def are_told_apart(paths: Sequence[str]) -> bool:
    """Whether the names that Spark tells are enough to know which of these files of a log a row is from."""
    return len({path.rpartition("/")[2] for path in paths}) == len(paths) and all(map(_WITHIN.fullmatch, paths))


def _shrunk(file: Action, descriptor: deletion_vectors.Descriptor) -> Action:
    """``file`` with other rows hidden: the ends that its statistics name may be among them."""
    wide, told = re.subn(r'"tightBounds"\s*:\s*(?:true|false)', '"tightBounds":false', file["stats"])
    stats = wide if told else f'{file["stats"].rstrip().removesuffix("}")},"tightBounds":false}}'
    return {**file, "stats": stats, "deletionVector": dict(descriptor), "dataChange": True}


def pairs(places: pa.Table) -> Iterator[tuple[str, int]]:
    return zip(places[FILE].to_pylist(), places[ROW].to_pylist(), strict=True)


def name_of(file: Action) -> str:
    return str(file["path"]).rpartition("/")[2]


def placed_ddl(snapshot: LogSnapshot) -> str:
    """The table's columns and a row's place, as Spark's schema text."""
    return f"{schema_ddl(columns_of(snapshot.metadata['schemaString']))}, {FILE} STRING, {ROW} BIGINT"
