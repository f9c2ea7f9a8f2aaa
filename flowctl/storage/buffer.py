"""The buffer: Parquet segments below ``<state>/<flow>/buffer/<run id>/``, for landing, staging and the mirror.

Nothing in it outlives its run: a sequence number that was begun is redone from the source, never from the buffer. A
segment that flowctl writes becomes visible only when complete; a folder that Spark writes is complete when its job has
ended. Memory is bounded by one row group, whatever the table's size.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import os
import re
import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast

from flowctl.storage.durable import make_folder, open_private, sync_folder
from flowctl.storage.options import Storage, fsspec_options, spark_url
from flowctl.storage.urls import scheme

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

FOLDER = "buffer"
#: A row group is written when it reaches this size (Arrow bytes): large enough to read fast, small enough to hold in
#: memory.
ROW_GROUP_BYTES = 64 * 2**20
READ_ROWS = 64 * 1024
#: Of a folder's name, which may contain the name of a table: Hadoop takes ``a:b`` for a scheme, and a file's name is at
#: most 255 bytes long.
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST = 100


class SegmentSink(Protocol):
    """Takes the record batches of a segment, one per call."""

    def write(self, batch: pa.RecordBatch) -> None: ...


class Buffer:
    """One run's part of the buffer. As a context manager, it is removed on exit."""

    def __init__(self, flow_url: str, run_id: str, storage: Storage) -> None:
        import fsspec

        options = {} if scheme(flow_url) == "file" else fsspec_options(flow_url, storage)
        self._fs, root = fsspec.core.url_to_fs(flow_url, use_listings_cache=False, **options)
        self._runs = f"{root}/{FOLDER}"
        self._is_local = scheme(flow_url) == "file"
        self._run_id = run_id
        self._url = spark_url(f"{flow_url}/{FOLDER}/{run_id}", storage)
        self._taken: set[str] = set()
        self._naming = threading.Lock()

    def folder(self, name: str) -> BufferFolder:
        """A new, empty folder, called ``name`` as far as Hadoop's paths and every store allow; a name that is already
        used gets a numeric suffix."""
        name = _UNSAFE.sub("_", name)[:_LONGEST]
        with self._naming:
            names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
            free = next(candidate for candidate in names if candidate not in self._taken)
            self._taken.add(free)
            if self._is_local:
                make_folder(Path(self._runs) / self._run_id, private=True)  # before Spark creates folders in it
        return BufferFolder(self._fs, f"{self._runs}/{self._run_id}/{free}", f"{self._url}/{free}")

    @contextlib.contextmanager
    def part(self) -> Iterator[Buffer]:
        """A part of this buffer, for what is not needed after the context."""
        folder = self.folder("part")
        inner = copy.copy(self)
        inner._runs, _, inner._run_id = folder._path.rpartition("/")
        inner._url, inner._taken, inner._naming = folder.url, set(), threading.Lock()
        try:
            yield inner
        finally:
            with contextlib.suppress(Exception):  # the run removes it at its end, or the next run
                inner.clear()

    def clear(self) -> None:
        """Removes this run's folders, while nothing uses them; new ones may follow."""
        if self._taken:
            self.remove()
            self._taken.clear()

    def remove(self) -> None:
        """Removes this run's folders."""
        _remove(self._fs, f"{self._runs}/{self._run_id}")

    def sweep(self) -> list[str]:
        """Removes what other runs left behind; returns their ids. Call only under the lease, when no other run is
        active."""
        try:
            found = self._fs.ls(self._runs, detail=False)
        except FileNotFoundError:
            return []
        runs = sorted({path.rstrip("/").rpartition("/")[2] for path in found} - {self._run_id, ""})
        for run in runs:
            _remove(self._fs, f"{self._runs}/{run}")
        return runs

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class BufferFolder:
    """One folder of segments. ``url`` is the form that :mod:`flowctl.engine.paths` takes, ``fs`` the fsspec file system
    of the segments' paths."""

    def __init__(self, fs: Any, path: str, url: str) -> None:
        self.fs = fs
        self._path = path
        self.url = url

    @contextlib.contextmanager
    def sink(self, schema: pa.Schema) -> Iterator[BufferSink]:
        """One new segment. It becomes visible when the block ends without an error."""
        import pyarrow.parquet as pq

        with (
            appearing(self.fs, self._path, f"{uuid.uuid4().hex}.parquet") as file,
            pq.ParquetWriter(file, schema, compression="zstd", compression_level=1) as writer,
        ):
            sink = BufferSink(writer, schema)
            yield sink
            sink.flush()

    def rows(self) -> int:
        """The number of rows in all segments, from their footers."""
        return sum(footer.num_rows for footer in self._footers())

    def is_empty(self) -> bool:
        return not any(footer.num_rows for footer in self._footers())

    def bytes(self) -> int:
        """How large the rows of all segments are, before they are compressed."""
        return sum(
            footer.row_group(at).total_byte_size for footer in self._footers() for at in range(footer.num_row_groups)
        )

    def _footers(self) -> Iterator[pq.FileMetaData]:
        import pyarrow.parquet as pq

        for path in self.segments():
            with self.fs.open(path, "rb") as file:
                yield pq.read_metadata(file)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of all segments, in the order of their names, with all columns or only ``columns``; holds one batch
        in memory."""
        import pyarrow.parquet as pq

        for path in self.segments():
            with (
                self.fs.open(path, "rb") as file,
                pq.ParquetFile(file, pre_buffer=False, buffer_size=2**20) as segment,
            ):
                yield from segment.iter_batches(batch_size=READ_ROWS, columns=columns)

    def segments(self) -> list[str]:
        """Paths of the segments, sorted. Names that start with ``_`` or ``.`` are skipped: Spark is still writing
        them."""
        try:
            found = self.fs.find(self._path)
        except FileNotFoundError:
            return []
        inside = ((path, path[len(self._path) :].strip("/").split("/")) for path in sorted(found))
        return [
            path
            for path, parts in inside
            if path.endswith(".parquet") and not any(part.startswith(("_", ".")) for part in parts)
        ]


class BufferSink:
    """Collects batches into row groups. Not thread-safe."""

    def __init__(self, writer: Any, schema: pa.Schema) -> None:
        self._writer = writer
        self._schema = schema
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        import pyarrow as pa

        if self._waiting:
            table = pa.Table.from_batches(self._waiting, self._schema)
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))
            self._waiting, self._bytes = [], 0


@contextlib.contextmanager
def appearing(fs: Any, folder: str, name: str, *, durable: bool = False) -> Iterator[BinaryIO]:
    """A file that appears under its name when the block ends without an error; otherwise nothing is left behind.
    ``durable``: on a local disk, it then survives a power failure."""
    if "file" in (fs.protocol if isinstance(fs.protocol, tuple) else (fs.protocol,)):
        unfinished = Path(folder) / f".{name}"
        make_folder(unfinished.parent, private=True)
        try:
            with open_private(unfinished) as local:
                yield local
                if durable:
                    local.flush()
                    os.fsync(local.fileno())
            unfinished.rename(unfinished.with_name(name))
            if durable:
                sync_folder(unfinished.parent)
        finally:
            unfinished.unlink(missing_ok=True)
        return
    # An upload becomes an object only with its last request, which is not sent after an error.
    remote = fs.open(f"{folder}/{name}", "wb", autocommit=False)
    try:
        yield cast(BinaryIO, remote)
        remote.close()
        remote.commit()
    except BaseException:
        remote.discard()
        remote.closed = True
        raise


def _remove(fs: Any, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        fs.rm(path, recursive=True)
