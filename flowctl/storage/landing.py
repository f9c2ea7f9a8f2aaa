"""The landing log of a change stream: numbered, immutable batches of captured changes.

``landed/<n>.json``, created if absent, is the manifest of batch ``n``; it names the files in ``segments/`` that count.
A batch ends at a commit of the source and begins where the one before it ends. Creating ``n`` *is* the record that
everything up to its end has landed: a process that loses the race for a number has captured nothing, and may leave
files that no manifest names. Everything is below ``<state>/<flow>/streams/<stream>/``.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import os
import re
import socket
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO

from flowctl import crashpoints
from flowctl.changes.shape import Shape
from flowctl.errors import AbortRun, StateConflict
from flowctl.model import codec
from flowctl.model.codec import in_json
from flowctl.model.position import Position
from flowctl.model.table_info import ObjectName
from flowctl.storage.blobs import BlobStore
from flowctl.storage.buffer import appearing
from flowctl.storage.options import Storage, fsspec_options
from flowctl.storage.urls import scheme

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 1
#: Rows of a row group: enough to compress well, few enough that a table's rows are found without reading much else.
ROW_GROUP_ROWS = 64 * 1024
_NAME = re.compile(r"landed/(\d+)\.json")


@dataclass(frozen=True)
class Segment:
    """One file. ``bytes`` is its size, ``rows`` the number of changes in it."""

    name: str
    bytes: int
    rows: int


@dataclass(frozen=True)
class LandedTable:
    """The changes of one table in a batch. ``shapes`` maps the numbers in the segments to digests of shapes, in the
    order of their first change; ``truncated``: a change of the whole table is among them."""

    object: ObjectName
    shapes: Mapping[str, str]
    changes: int
    truncated: bool = field(default=False, metadata=in_json("not_default"))

    def only(self, taken: Mapping[str, int]) -> LandedTable | None:
        """The part of which ``taken`` has the number of changes, by shape; None if that is nothing."""
        shapes = {number: digest for number, digest in self.shapes.items() if taken.get(number)}
        return replace(self, shapes=shapes, changes=sum(taken[number] for number in shapes)) if shapes else None


@dataclass(frozen=True)
class LandedBatch:
    """One manifest. ``event_at`` (RFC 3339) is the greatest event time up to here; empty if there was none yet.
    ``captured`` are all tables whose changes would be in it; not known of batches of an older flowctl."""

    batch: int
    lower: Position = field(metadata=in_json(name="from"))
    upper: Position = field(metadata=in_json(name="to"))
    event_at: str = ""
    segments: tuple[Segment, ...] = ()
    tables: tuple[LandedTable, ...] = ()
    captured: tuple[ObjectName, ...] = field(default=(), metadata=in_json("not_default"))
    write_id: str = ""
    format: int = FORMAT

    @property
    def changes(self) -> int:
        return sum(table.changes for table in self.tables)

    @property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.segments)

    def table(self, object: ObjectName) -> LandedTable | None:
        return next((table for table in self.tables if table.object == object), None)


class LandingLog:
    """Reads and writes the batches of one stream. ``blobs`` is the store at ``url``, the flow's folder; ``prefix`` is
    the stream's part of it and ends in a slash."""

    def __init__(self, blobs: BlobStore, url: str, prefix: str, storage: Storage) -> None:
        self._blobs = blobs
        self._prefix = prefix
        self._url = url
        self._storage = storage
        self._read: dict[int, LandedBatch] = {}
        self._shapes: dict[str, Shape] = {}

    def batch(self, number: int) -> LandedBatch | None:
        if number not in self._read:
            data = self._blobs.get(self._name(number))
            if data is None:
                return None
            self._read[number] = self._decoded(data, number)
        return self._read[number]

    def newest(self, known: int = 0) -> LandedBatch | None:
        """The newest batch; ``known`` is one that exists, or existed, if any does. None if nothing has landed."""
        found = self.batch(known)
        if found is None:
            listed = self.numbers()
            return self.newest(listed[-1]) if listed else None
        for number in itertools.count(known + 1):
            following = self.batch(number)
            if following is None:
                return found
            found = following
        return found

    def numbers(self) -> list[int]:
        """The numbers of all batches that are kept, ascending."""
        return sorted(self._manifests())

    def _manifests(self) -> dict[int, dt.datetime]:
        """When each batch was landed, by the store's clock."""
        found = {info.name.removeprefix(self._prefix): info for info in self._blobs.list(f"{self._prefix}landed/")}
        return {int(match[1]): info.modified for name, info in found.items() if (match := _NAME.fullmatch(name))}

    def between(self, lower: int, upper: int) -> list[LandedBatch]:
        """The batches above ``lower``, up to ``upper``. Raises :class:`AbortRun` if one is missing."""
        found = []
        for number in range(lower + 1, upper + 1):
            batch = self.batch(number)
            if batch is None:
                raise AbortRun(
                    f"batch {number} of the stream is not there any more: {self._blobs.url}/{self._name(number)}",
                    hint="Restore it, or take the tables' content anew with `flowctl state resnapshot`",
                )
            found.append(batch)
        return found

    def create(self, batch: LandedBatch) -> LandedBatch:
        """Lands ``batch``: from now on everything up to its end counts as captured. :class:`StateConflict` if another
        process has created the number."""
        write_id = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex}"
        document = {**codec.to_json(batch), "write_id": write_id}
        data = (json.dumps({"format": FORMAT, **document}, ensure_ascii=False) + "\n").encode()
        name = self._name(batch.batch)
        try:
            is_made = self._blobs.create(name, data)
        except AbortRun:
            if self._blobs.get(name) != data:
                raise
            is_made = True
        if not is_made and self._blobs.get(name) != data:
            raise StateConflict(
                f"batch {batch.batch} of the stream was captured by another process meanwhile", hint="Run again"
            )
        landed = codec.from_json(LandedBatch, document)
        self._read[batch.batch] = landed
        return landed

    def put_shape(self, shape: Shape) -> None:
        """Stores a shape, before the first batch that names it."""
        if shape.digest not in self._shapes:
            data = (json.dumps(codec.to_json(shape), ensure_ascii=False) + "\n").encode()
            self._blobs.create(f"{self._prefix}described/{shape.digest}.json", data)
            self._shapes[shape.digest] = shape

    def shape(self, digest: str) -> Shape:
        if digest not in self._shapes:
            name = f"{self._prefix}described/{digest}.json"
            data = self._blobs.get(name)
            if data is None:
                raise AbortRun(f"{self._blobs.url}/{name} is not there", hint="Restore it from a copy of the store")
            self._shapes[digest] = codec.from_json(Shape, json.loads(data))
        return self._shapes[digest]

    @contextmanager
    def new_segment(self, number: int) -> Iterator[tuple[str, BinaryIO]]:
        """A new file for batch ``number`` or a later one, and its name; visible and durable when the block ends without
        an error."""
        name = f"{number}-{uuid.uuid4().hex}.parquet"
        fs, folder = self._segments
        with appearing(fs, folder, name, durable=True) as file:
            yield name, file

    def rows(self, batch: LandedBatch, numbers: Collection[int]) -> Iterator[pa.RecordBatch]:
        """The rows of the shapes with these numbers, in the order of the source, as in
        :func:`flowctl.changes.segment.segment_schema`."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        fs, folder = self._segments
        wanted = pa.array(sorted(numbers), pa.int32())
        low, high = min(numbers), max(numbers)
        for segment in batch.segments:
            with fs.open(f"{folder}/{segment.name}", "rb") as file, pq.ParquetFile(file) as found:
                for group in range(found.num_row_groups):
                    bounds = found.metadata.row_group(group).column(0).statistics
                    if bounds is not None and (bounds.max < low or bounds.min > high):
                        continue
                    rows = found.read_row_group(group)
                    rows = rows.filter(pc.is_in(rows["shape"], wanted))
                    yield from rows.to_batches()

    def changes_from(self, batch: LandedBatch, tables: Iterable[LandedTable], first: int) -> Mapping[str, int]:
        """The number of changes of ``tables`` from the order ``first`` on, by the number of their shape."""
        import pyarrow.compute as pc

        found: Counter[str] = Counter()
        numbers = [int(number) for table in tables for number in table.shapes]
        for rows in self.rows(batch, numbers) if numbers else ():
            taken = rows.filter(pc.greater_equal(rows["lsn"], first))["shape"]
            found.update({str(one["values"]): one["counts"] for one in pc.value_counts(taken).to_pylist()})
        return found

    def has_leftovers(self, newest: int) -> bool:
        """Whether there are files for a batch above ``newest``."""
        return any(_number_of(name) > newest for name in self.files())

    def sweep(self, newest: int) -> list[str]:
        """Removes files that no manifest names. Call only under the stream's lease, while nothing is captured.

        A file is made for a batch, and becomes part of that or a later one: those above ``newest`` are part of none. Of
        those below all batches, which a process that lost its lease may leave, the manifests tell."""
        there, numbers = self.files(), self.numbers()
        gone = [name for name in there if _number_of(name) > newest]
        if numbers and (old := [name for name in there if _number_of(name) < numbers[0]]):
            batches = [self.batch(number) for number in numbers]
            named = {segment.name for batch in batches if batch is not None for segment in batch.segments}
            gone += [name for name in old if name not in named]
        fs, folder = self._segments
        for name in gone:
            fs.rm_file(f"{folder}/{name}")
        return gone

    def remove_all(self) -> None:
        """Removes every batch, of a stream that has ended."""
        fs, folder = self._segments
        for name in self.files():
            fs.rm_file(f"{folder}/{name}")
        for number in self.numbers():
            self._blobs.delete(self._name(number))
        self._read.clear()

    def files(self) -> dict[str, int]:
        """The size of each file of captured changes, by name."""
        fs, folder = self._segments
        try:
            found = fs.ls(folder, detail=True)
        except FileNotFoundError:
            return {}
        return {one["name"].rstrip("/").rpartition("/")[2]: one["size"] or 0 for one in found}

    def prune(self, needed: int, keep: float, max_bytes: int) -> list[int]:
        """Removes the oldest batches below ``needed``: those that landed more than ``keep`` seconds before the newest,
        and as many others as take more than ``max_bytes``. Returns their numbers. Removes the files first, the manifest
        last: a process that is killed in between removes them again."""
        listed = self._manifests()
        size = sum(self.files().values())
        removed: list[int] = []
        for number in sorted(listed):
            age = (listed[max(listed)] - listed[number]).total_seconds()
            if number >= needed or (age <= keep and size <= max_bytes):
                break
            if batch := self.batch(number):
                size -= batch.bytes
                self._remove_files(batch)
            crashpoints.reached("batch_pruned")
            self._blobs.delete(self._name(number))
            self._read.pop(number, None)
            removed.append(number)
        return removed

    def _remove_files(self, batch: LandedBatch) -> None:
        fs, folder = self._segments
        for segment in batch.segments:
            with suppress(FileNotFoundError):
                fs.rm_file(f"{folder}/{segment.name}")

    @property
    def _segments(self) -> tuple[Any, str]:
        import fsspec

        options = {} if scheme(self._url) == "file" else fsspec_options(self._url, self._storage)
        fs, root = fsspec.core.url_to_fs(self._url, use_listings_cache=False, **options)
        return fs, f"{root}/{self._prefix}segments"

    def _name(self, number: int) -> str:
        return f"{self._prefix}landed/{number}.json"

    def _decoded(self, data: bytes, number: int) -> LandedBatch:
        try:
            content = json.loads(data)
            if content["format"] > FORMAT:
                raise AbortRun(
                    f"batch {number} of the stream was written by a newer flowctl",
                    hint="Use that flowctl or a newer one",
                )
            return codec.from_json(LandedBatch, content)
        except (ValueError, KeyError, TypeError) as cause:
            raise AbortRun(
                f"{self._blobs.url}/{self._name(number)} is damaged ({type(cause).__name__}: {cause})",
                hint="Restore it from a copy of the store",
            ) from cause


def _number_of(name: str) -> int:
    """The batch for which the file was made; that of a file still being written (a dotfile) counts too."""
    number = name.lstrip(".").partition("-")[0]
    return int(number) if number.isdigit() else -1
