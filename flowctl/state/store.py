"""The state log of one flow: ``state/<serial>.json``. The highest serial is the current state; a write creates the
next one.

The log is listed for each read: nothing else says which serial is the highest. A blob with its number could lag behind,
and serials below the highest may be missing (pruned, or lost), which has no effect.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import socket
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

from flowctl.errors import AbortRun, StateConflict, UsageError
from flowctl.state import codec, file_log, shapes
from flowctl.state.document import StateDocument, new_document
from flowctl.storage.blobs import BlobInfo, BlobStore

FOLDER = "state/"
#: Pruning lists the log, so it is not done with every write.
PRUNE_EVERY = 25

_NAME = re.compile(re.escape(FOLDER) + r"(\d+)\.json")


@dataclass(frozen=True)
class Retention:
    """Which serials of a log are kept: the newest ``numbers``, and, by the store's clock, all that are younger than
    ``recent`` and the newest in each ``step`` until ``age``. A run writes the whole document for each of its tables.

    A writer that was suspended meanwhile must not find its number free again: ``recent`` is longer than leases live.
    """

    numbers: int = 100
    age: dt.timedelta = dt.timedelta(days=30)
    step: dt.timedelta = dt.timedelta(minutes=1)
    recent: dt.timedelta = dt.timedelta(hours=1)


@dataclass(frozen=True)
class Version:
    """One kept serial of the log, as the store lists it; ``size`` is in bytes."""

    serial: int
    modified: dt.datetime
    size: int


class StateStore:
    """Reads and writes one log below ``prefix``, which is empty or ends in a slash; ``blobs`` is the store at
    ``<state>/<flow>``."""

    def __init__(self, blobs: BlobStore, *, prefix: str = "", retention: Retention = Retention()) -> None:
        self.blobs = blobs
        self._prefix = prefix
        self._retention = retention
        self._shapes: dict[str, bytes] = {}

    def read(self) -> StateDocument:
        """The newest document, or an empty one with a new lineage for a flow that never ran. Raises :class:`AbortRun`
        if the newest is damaged or was written by a newer flowctl."""
        return self._get(self._newest_serial()) or new_document()

    def read_serial(self, serial: int) -> StateDocument:
        """The document of one kept serial; :class:`UsageError` if it does not exist."""
        found = self._get(serial)
        if found is None:
            raise UsageError(
                f"there is no state number {serial}", hint="List the kept ones with `flowctl state history`"
            )
        return found

    def history(self) -> list[Version]:
        """The kept serials, newest first."""
        versions = [Version(serial, info.modified, info.size) for serial, info in self._list()]
        return sorted(versions, key=lambda version: version.serial, reverse=True)

    def write(self, document: StateDocument) -> StateDocument:
        """Creates the serial after ``document.serial`` and returns the document as stored. Raises
        :class:`StateConflict` if another writer created that serial; the log is then unchanged."""
        wanted = replace(document, serial=document.serial + 1, write_id=_write_id())
        encoded = codec.encode(wanted)
        wanted = replace(wanted, shapes=encoded.shapes_name)
        if encoded.shapes_name != document.shapes and encoded.shapes:
            self.blobs.create(self._prefix + encoded.shapes_name, encoded.shapes)
            self._shapes = {encoded.shapes_name: encoded.shapes}
        name = self._name(wanted.serial)
        if not self._create(name, encoded.document, wanted.write_id):
            raise self._conflict(wanted.serial)
        if wanted.serial % PRUNE_EVERY == 0:
            oldest = self.prune()
            if not self._prefix:  # the file logs are the flow's own
                file_log.sweep(self.blobs, oldest, wanted.positions())
        return wanted

    def prune(self) -> int:
        """Deletes serials that are no longer kept, and shapes that no kept serial refers to. Returns the oldest kept
        serial."""
        listed = sorted(self._list())
        if not listed:
            return 0
        newest = listed[-1][1].modified
        steps: set[int] = set()
        oldest = listed[-self._retention.numbers :][0][0]
        for serial, info in reversed(listed[: -self._retention.numbers]):
            step = int(info.modified.timestamp() // self._retention.step.total_seconds())
            age = newest - info.modified
            if (step in steps and age > self._retention.recent) or age > self._retention.age:
                self.blobs.delete(info.name)
            else:
                oldest = serial
            steps.add(step)
        self._sweep_shapes(oldest, listed[-1][0])
        return oldest

    def _sweep_shapes(self, oldest: int, newest: int) -> None:
        """Serials of shapes never decrease along the log, so those below the references of the oldest and the newest
        document are unused. The newest is checked too: a document restored by hand may refer to a lower one."""
        ends = [self.blobs.get(self._name(serial)) for serial in (oldest, newest)]
        needed = min(shapes.serial_of(codec.reference_of(data)[1]) if data else 0 for data in ends)
        for info in self.blobs.list(self._prefix + shapes.FOLDER):
            if 0 < shapes.serial_of(info.name.removeprefix(self._prefix)) < needed:
                self.blobs.delete(info.name)

    def _create(self, name: str, data: bytes, write_id: str) -> bool:
        """Whether the blob now belongs to this writer. A create that was refused or failed may have succeeded if its
        response was lost."""
        try:
            if self.blobs.create(name, data):
                return True
        except AbortRun:
            if self._writer_of(name) == write_id:
                return True
            raise
        return self._writer_of(name) == write_id

    def _writer_of(self, name: str) -> str:
        data = self.blobs.get(name)
        return codec.reference_of(data)[0] if data is not None else ""

    def _conflict(self, serial: int) -> StateConflict:
        writer = self._writer_of(self._name(serial)) or "another process, which has removed it since"
        return StateConflict(
            f"state number {serial} was written by {_describe_writer(writer)} meanwhile",
            hint="Run again: what is committed already is found in the targets",
        )

    def _newest_serial(self) -> int:
        return max((serial for serial, _ in self._list()), default=0)

    def _get(self, serial: int) -> StateDocument | None:
        data = self.blobs.get(self._name(serial)) if serial > 0 else None
        if data is None:
            return None
        # The name determines the serial: a document restored by hand from a backup may contain a different one.
        return replace(codec.decode(data, f"{self.blobs.url}/{self._name(serial)}", self._read_shapes), serial=serial)

    def _read_shapes(self, name: str) -> bytes | None:
        if name not in self._shapes and (blob := self.blobs.get(self._prefix + name)) is not None:
            self._shapes = {name: blob}
        return self._shapes.get(name)

    def _list(self) -> Iterator[tuple[int, BlobInfo]]:
        for info in self.blobs.list(self._prefix + FOLDER):
            if match := _NAME.fullmatch(info.name.removeprefix(self._prefix)):
                yield int(match[1]), info

    def _name(self, serial: int) -> str:
        return f"{self._prefix}{FOLDER}{serial}.json"


def _write_id() -> str:
    return f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex}"


def _describe_writer(write_id: str) -> str:
    match write_id.split("/"):
        case [host, pid, _]:
            return f"process {pid} on {host}"
        case _:
            return write_id
