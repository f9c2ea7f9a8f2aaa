"""Writes files as the runner would, without an engine, and reads them as others would: by the manifest, with the
standard library, pyarrow and DuckDB."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.base import OpenContext
from flowctl.connectors.files import CAPABILITIES
from flowctl.connectors.files.listing import file_root
from flowctl.connectors.files.target import FilesTarget
from flowctl.connectors.target import CommitLookup, WriteJob
from flowctl.engine.batch import InMemory
from flowctl.model import types
from flowctl.model.commit import Commit
from flowctl.model.mode import Mode
from flowctl.model.position import VersionPosition
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.spec.files_layout import FilesLayout
from flowctl.spec.spec import Layout
from flowctl.storage.buffer import Buffer
from flowctl.storage.options import fsspec_options
from flowctl.storage.urls import scheme

OBJECT = ObjectName(("sales/orders",))
COLUMNS = (Column("id", types.INT64), Column("note", types.STRING))


@dataclass(frozen=True)
class Table:
    """``sales/orders`` below ``url``, which is a local folder or in a store."""

    url: str
    storage: dict[str, dict[str, Any]] = field(default_factory=dict)
    layout: FilesLayout = FilesLayout()
    columns: Sequence[Column] = COLUMNS
    lineage: str = "lineage-1"
    buffer: Buffer | None = None

    @cached_property
    def target(self) -> FilesTarget:
        context = OpenContext(self.storage, buffer=self.buffer)
        return FilesTarget(file_root(self.url, context), context, CAPABILITIES)

    def write(
        self,
        rows: Sequence[dict[str, Any]],
        seq: int,
        mode: Mode = "append",
        *,
        before_commit: Callable[[], None] = lambda: None,
        counted: int | None = None,
        record: Commit | None = None,
    ) -> Commit:
        target, job = self.target, self.job(seq, mode)
        batch = InMemory(pa.Table.from_pylist(list(rows), arrow_schema(self.columns)))
        job = replace(job, before_commit=before_commit, rows=counted, record=record or job.record)
        return target.write(None, batch, job)  # type: ignore[arg-type]

    def job(self, seq: int, mode: Mode = "append") -> WriteJob:
        info = self.info()
        identity = info.identity if info else ""
        record = Commit(self.lineage, "orders", seq, f"intent-{seq}", identity, VersionPosition(seq))
        return WriteJob(record, OBJECT, mode, tuple(self.columns), layout=Layout(files=self.layout))

    def info(self) -> TableInfo | None:
        return self.target.describe([OBJECT])[OBJECT]

    def committed(self) -> Commit | None:
        return self.target.committed([CommitLookup(self.lineage, "orders", OBJECT)])["orders"]

    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.read(max(self.names("_flowctl/commits"))))
        return found

    def contents(self) -> list[bytes]:
        """Of each file of the manifest, decompressed as its name says."""
        return [self.read(file["path"]) for file in self.manifest()["files"]]

    def rows(self) -> list[tuple[Any, ...]]:
        """Sorted; of text files as text, where a null is None."""
        read = _READERS[self.layout.format]
        return sorted((row for content in self.contents() for row in read(content, self)), key=repr)

    def data_files(self) -> list[str]:
        """Whatever lies in the folder, in the manifest or not."""
        return [name for name in self.names("") if not name.startswith("_")]

    def names(self, below: str) -> list[str]:
        """Paths in the table's folder."""
        system, base = self.file_system()
        try:
            found = system.ls(f"{base}/{below}".rstrip("/"), detail=False)
        except FileNotFoundError:
            return []
        return sorted(path.removeprefix(f"{base}/") for path in found if path.rstrip("/") != base)

    def read(self, path: str) -> bytes:
        system, base = self.file_system()
        with system.open(f"{base}/{path}", "rb", compression="infer") as file:
            content: bytes = file.read()
        return content

    def put(self, path: str, content: bytes) -> None:
        system, base = self.file_system()
        system.makedirs(base, exist_ok=True)
        system.pipe_file(f"{base}/{path}", content)

    def file_system(self) -> tuple[fsspec.AbstractFileSystem, str]:
        options = {} if scheme(self.url) == "file" else fsspec_options(self.url, self.storage)
        system, root = fsspec.core.url_to_fs(self.url, use_listings_cache=False, **options)
        return system, f"{root}/sales/orders"


def _csv(content: bytes, table: Table) -> list[tuple[Any, ...]]:
    """Python's reader does not tell quoted values from others: a null is what is not in quotes."""
    layout = table.layout
    text = content.decode()
    lines = list(csv.reader(io.StringIO(text), delimiter=layout.delimiter, quotechar=layout.quote))
    return [tuple(line) for line in lines[1 if layout.header else 0 :]]


def _json(content: bytes) -> list[tuple[Any, ...]]:
    return [tuple(json.loads(line).values()) for line in content.decode().splitlines()]


def _tuples(found: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in found.to_pylist()]


_READERS: dict[str, Callable[[bytes, Table], list[tuple[Any, ...]]]] = {
    "parquet": lambda content, table: _tuples(pq.read_table(io.BytesIO(content))),
    "orc": lambda content, table: _tuples(orc.ORCFile(io.BytesIO(content)).read()),
    "csv": _csv,
    "jsonl": lambda content, table: _json(content),
}
