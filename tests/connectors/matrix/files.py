"""Files as sources of the matrix: one class for each format."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

from tests.connectors.matrix.contents import EXTRA, MANY, Columns, Content, Row
from tests.connectors.matrix.source import MILLION, Source, arrow, million_rows
from tests.e2e.target_place import quoted
from tests.e2e.targets import Databases

#: Of a spec's `format.schema`.
_SPEC = {"text": "string", "decimal": "decimal(18,4)", "timestamp": "timestamp_ntz"}


#: The flag of a row that has ended.
GONE = "gone"


class FilesSource(Source):
    """One file for each batch: a folder is a table, and a file replaces no other."""

    keeps_all = True
    takes_cursor = False
    #: Whether columns are typed by the spec.
    is_text: ClassVar[bool] = False

    @property
    def connection(self) -> Mapping[str, Any]:
        return {"type": "files", "path": "in"}

    def reference(self, table: str) -> str:
        return f"src:{table}/*.{self.kind}"

    def entry(self, table: str, mode: str) -> dict[str, Any]:
        format: dict[str, Any] = {"type": self.kind}
        if self.is_text:
            columns = {name: kind for name, kind in self._columns(table).items() if self._is_listed(name)}
            format["schema"] = {name: _SPEC.get(kind, kind) for name, kind in columns.items()}
        if self.kind == "csv":
            format["multiline"] = True
        return {**super().entry(table, mode), "format": format}

    def carried(self, columns: Columns) -> Columns:
        """Text has no bytes."""
        return {name: kind for name, kind in columns.items() if not self.is_text or kind != "binary"}

    def deletes(self) -> dict[str, Any]:
        return {"detect": "flag", "column": GONE}

    def million(self, table: str) -> None:
        self.content[table] = Content(dict(MANY))
        self._create(table, MANY)
        rows = million_rows()
        self._save(self._next(table), rows.append_column(GONE, pa.array([False] * MILLION)))

    def _open(self, databases: Databases) -> None:
        (self.folder / "in").mkdir()

    def _create(self, table: str, columns: Columns) -> None:
        (self.folder / "in" / table).mkdir()

    def _put(self, table: str, rows: Sequence[Row], ended: Sequence[Row]) -> None:
        flagged = [*({**row, GONE: False} for row in rows), *({**row, GONE: True} for row in ended)]
        self._save(self._next(table), arrow(flagged, self._columns(table)))

    def _add_column(self, table: str) -> None:
        """The next file has it."""

    def _widen(self, table: str) -> None:
        """The next file has it."""

    def _columns(self, table: str) -> Columns:
        return {**self.content[table].columns, GONE: "boolean"}

    def _next(self, table: str) -> Path:
        folder = self.folder / "in" / table
        return folder / f"{len(list(folder.iterdir())):04}.{self.kind}"

    def _is_listed(self, name: str) -> bool:
        return True

    @abstractmethod
    def _save(self, path: Path, rows: pa.Table) -> None: ...


class CsvSource(FilesSource):
    kind = "csv"
    is_text = True

    def _is_listed(self, name: str) -> bool:
        """What the schema names must be in every file; others are text."""
        return name != EXTRA

    def _save(self, path: Path, rows: pa.Table) -> None:
        """Texts are in quotes, so that an empty one is no null."""
        with path.open("w", newline="") as file:
            file.write(",".join(rows.column_names) + "\n")
            for batch in rows.to_batches(max_chunksize=10_000):
                columns = [[_as_csv(value) for value in column.to_pylist()] for column in batch.columns]
                file.writelines(",".join(row) + "\n" for row in zip(*columns, strict=True))


class JsonlSource(FilesSource):
    kind = "jsonl"
    is_text = True

    def _save(self, path: Path, rows: pa.Table) -> None:
        with path.open("w") as file:
            for batch in rows.to_batches(max_chunksize=10_000):
                for row in batch.to_pylist():
                    made = {name: value if isinstance(value, bool | int | float) else _as_text(value)
                            for name, value in row.items()}  # fmt: skip
                    file.write(json.dumps(made, ensure_ascii=False) + "\n")


class ParquetSource(FilesSource):
    kind = "parquet"

    def _save(self, path: Path, rows: pa.Table) -> None:
        pq.write_table(rows, path)


class OrcSource(FilesSource):
    kind = "orc"

    def _save(self, path: Path, rows: pa.Table) -> None:
        orc.write_table(rows, path)


class AvroSource(FilesSource):
    kind = "avro"

    def _save(self, path: Path, rows: pa.Table) -> None:
        fields = [{"name": field.name, "type": ["null", _avro_type(field.type)]} for field in rows.schema]
        schema = fastavro.parse_schema({"type": "record", "name": "row", "fields": fields})
        with path.open("wb") as file:
            fastavro.writer(file, schema, (row for batch in rows.to_batches(10_000) for row in batch.to_pylist()))


def _avro_type(kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    return {
        pa.int64(): "long",
        pa.int32(): "int",
        pa.string(): "string",
        pa.date32(): {"type": "int", "logicalType": "date"},
        pa.timestamp("us"): {"type": "long", "logicalType": "local-timestamp-micros"},
        pa.bool_(): "boolean",
        pa.float64(): "double",
        pa.binary(): "bytes",
    }[kind]


def _as_text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)


def _as_csv(value: Any) -> str:
    return quoted(value) if isinstance(value, str) else _as_text(value) or ""
