"""The places of rows, told by Spark: of tables too large for one process, or with files that it cannot read exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from flowctl.connectors.buffered import buffered_in
from flowctl.connectors.delta.finding import FILE, ROW
from flowctl.connectors.delta.marking import LARGE, Marker, are_told_apart, name_of, pairs, placed_ddl
from flowctl.connectors.delta.replay import Action, LogSnapshot
from flowctl.connectors.delta.rewriting import Near, keys_of, table_columns
from flowctl.connectors.delta.statements import quoted
from flowctl.connectors.delta.types import columns_of
from flowctl.errors import TransientError
from flowctl.sql.dialects import schema_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class SparkMarker(Marker):
    """Needs a table that has deletion vectors, and whose files have names of their own and say how many rows they
    have."""

    def near_by_engine(self, files: tuple[Action, ...], rows: DataFrame, snapshot: LogSnapshot) -> Near:
        """Exactly the rows with the key of one of ``rows``, each with its place; in the buffer."""
        if not are_told_apart([file["path"] for file in snapshot.files]):
            raise TransientError(f"{self.location.url} has been given files that Spark does not tell apart by name")
        keys = keys_of(rows, self.job.key)
        if sum(int(file["size"]) for file in files) > LARGE:
            places = self._with_keys(keys, files, snapshot, self.job.key)
            held = {row[FILE] for row in places.select(FILE).distinct().collect()}
            files = tuple(file for file in files if name_of(file) in held)
        if not files:
            return Near((), self.spark.createDataFrame([], placed_ddl(snapshot)), is_placed=True)
        found = buffered_in(self.folder("near"), self._with_keys(keys, files, snapshot, table_columns(snapshot)))
        return Near(files, self._alive(found, files), is_placed=True)

    def _with_keys(
        self, keys: DataFrame, files: Sequence[Action], snapshot: LogSnapshot, columns: Sequence[str]
    ) -> DataFrame:
        from pyspark.sql import functions as f

        paths = [f"{self.location.spark_path}/{unquote(file['path'])}" for file in files]
        rows = self.spark.read.schema(schema_ddl(columns_of(snapshot.metadata["schemaString"]))).parquet(*paths)
        placed = rows.select(
            *map(quoted, columns),
            f.col("_metadata.file_name").alias(FILE),
            f.col("_metadata.row_index").alias(ROW),
        )
        return placed.join(f.broadcast(keys), on=list(self.job.key), how="left_semi")

    def _alive(self, found: DataFrame, files: Sequence[Action]) -> DataFrame:
        """``found`` without the rows that deletion vectors hide."""
        hidden = {name_of(file): self.vector(file) for file in files if "deletionVector" in file}
        if not hidden:
            return found
        from pyspark.sql import functions as f

        places = found.select(FILE, ROW).toArrow()
        dead = places.filter([name in hidden and row in hidden[name] for name, row in pairs(places)])
        if not dead.num_rows:
            return found
        return found.join(f.broadcast(self.spark.createDataFrame(dead)), on=[FILE, ROW], how="left_anti")
