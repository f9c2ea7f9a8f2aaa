"""Delta and Iceberg as sources of the matrix."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from tests.connectors.iceberg import foreign_tables
from tests.connectors.matrix.contents import EXTRA, MANY, Columns, Content, Kind, Row
from tests.connectors.matrix.source import Source, arrow, million_rows
from tests.e2e.flows import Row as Found
from tests.e2e.targets import Databases, DeltaPlace


class LakeSource(Source):
    """Rows that change replace all files, as many writers do; rows that are only new are added."""

    takes_cursor = False

    @abstractmethod
    def _write(self, table: str, rows: pa.Table, *, adds: bool) -> None: ...

    def _put(self, table: str, rows: Sequence[Row], ended: Sequence[Row]) -> None:
        content = self.content[table]
        adds = not ended and len(content.live) == len(content.versions)
        self._write(table, arrow(rows if adds else list(content.live.values()), content.columns), adds=adds)

    def million(self, table: str) -> None:
        self.content[table] = Content(dict(MANY))
        self._create(table, MANY)
        self._write(table, million_rows(), adds=True)


@dataclass(frozen=True)
class WidenedDelta(DeltaPlace):
    """Read by Spark: deltalake reads no table with a widened column."""

    spark: Any = None

    def fetch(self, query: str) -> list[Found]:
        read = query.replace('"', "`").replace("{table}", f"delta.`{self.path}`")
        return sorted((tuple(row) for row in self.spark.sql(read).collect()), key=repr)


class DeltaSource(LakeSource):
    kind = "delta"
    never_widens = "deltalake widens a column by writing all rows anew, after which append stops"

    @property
    def connection(self) -> Mapping[str, Any]:
        return {"type": "delta", "path": "source"}

    def _open(self, databases: Databases) -> None:
        self._root = self.folder / "source"

    def _create(self, table: str, columns: Columns) -> None:
        self._write(table, arrow([], columns), adds=True)

    def _write(self, table: str, rows: pa.Table, *, adds: bool) -> None:
        path = str(self._root / table)
        if adds:
            write_deltalake(path, rows, mode="append")
        else:
            write_deltalake(path, rows, mode="overwrite", schema_mode="overwrite")

    def _add_column(self, table: str) -> None:
        write_deltalake(str(self._root / table), arrow([], self.content[table].columns), mode="append",
                        schema_mode="merge")  # fmt: skip

    def _widen(self, table: str) -> None:
        content = self.content[table]
        self._write(table, arrow(list(content.live.values()), content.columns), adds=False)


class IcebergSource(LakeSource):
    kind = "iceberg"

    @property
    def connection(self) -> Mapping[str, Any]:
        return {"type": "iceberg", **foreign_tables.connection(self.folder / "ice")}

    def _open(self, databases: Databases) -> None:
        (self.folder / "ice").mkdir()
        self._catalog = foreign_tables.catalog_in(self.folder / "ice")

    def _create(self, table: str, columns: Columns) -> None:
        self._catalog.create_table(self._name(table), schema=arrow([], columns).schema)

    def _write(self, table: str, rows: pa.Table, *, adds: bool) -> None:
        there = self._catalog.load_table(self._name(table))
        if adds:
            there.append(rows)
        else:
            there.overwrite(rows)

    def _add_column(self, table: str) -> None:
        self._update(table, lambda update: update.add_column(EXTRA, _iceberg_type("text")))

    def _widen(self, table: str) -> None:
        self._update(table, lambda update: update.update_column("small", _iceberg_type("bigint")))

    def _update(self, table: str, change: Callable[[Any], Any]) -> None:
        with self._catalog.load_table(self._name(table)).update_schema() as update:
            change(update)

    def _name(self, table: str) -> str:
        return f"{foreign_tables.NAMESPACE}.{table}"


def _iceberg_type(kind: Kind) -> Any:
    from pyiceberg.types import LongType, StringType

    return {"text": StringType(), "bigint": LongType()}[kind]
