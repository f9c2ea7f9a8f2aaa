"""The state log of one flow: ``state/<serial>.json``. The newest number is the state; a write creates the next one.

``latest.json`` only saves a listing: it may be missing, stale or invalid. The log is followed upwards from where it
points; if that leads nowhere, the log is listed. Numbers may be missing below the newest (pruned, or lost), which
changes nothing. None is ever missing above it, because a number is only created from the newest one.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
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
HINT = "latest.json"
#: Pruning lists the log, so it is not done with every write.
PRUNE_EVERY = 25

_NAME = re.compile(re.escape(FOLDER) + r"(\d+)\.json")


@dataclass(frozen=True)
class Retention:
    """Which numbers of a log are kept: the newest ``numbers``; of the others those younger than ``age`` by the store's
    clock, and with ``hourly`` only the newest one of each hour."""

    numbers: int = 100
    age: dt.timedelta = dt.timedelta(days=30)
    hourly: bool = False


@dataclass(frozen=True)
class Version:
    """One kept number of the log, as the store lists it."""

    serial: int
    modified: dt.datetime
    size: int


class StateStore:
    """Reads and writes one log below ``prefix``, which is empty or ends in a slash; ``blobs`` is opened at
    ``<state>/<flow>``."""

    def __init__(self, blobs: BlobStore, *, prefix: str = "", retention: Retention = Retention()) -> None:
        self.blobs = blobs
        self._prefix = prefix
        self._retention = retention
        self._shapes: dict[str, bytes] = {}

    def read(self) -> StateDocument:
        """The newest document; an empty one with a new lineage for a flow that never ran. :class:`AbortRun` if the
        newest is damaged or written by a newer flowctl."""
        return self._from_hint() or self._from_listing() or new_document()

    def read_serial(self, serial: int) -> StateDocument:
        """One kept number; :class:`UsageError` if it does not exist."""
        found = self._get(serial)
        if found is None:
            raise UsageError(
                f"there is no state number {serial}", hint="List the kept ones with `flowctl state history`"
            )
        return found

    def history(self) -> list[Version]:
        """The kept numbers, newest first."""
        versions = [Version(serial, info.modified, info.size) for serial, info in self._list()]
        return sorted(versions, key=lambda version: version.serial, reverse=True)

    def write(self, document: StateDocument) -> StateDocument:
        """Creates the number after ``document.serial`` and returns it as stored. :class:`StateConflict` if another
        writer created it: nothing was written then."""
        wanted = replace(document, serial=document.serial + 1, write_id=_write_id())
        encoded = codec.encode(wanted)
        wanted = replace(wanted, shapes=encoded.shapes_name)
        if encoded.shapes_name != document.shapes and encoded.shapes:
            self.blobs.create(self._prefix + encoded.shapes_name, encoded.shapes)
            self._shapes = {encoded.shapes_name: encoded.shapes}
        name = self._name(wanted.serial)
        if not self._create(name, encoded.document, wanted.write_id):
            raise self._conflict(wanted.serial)
        self._point_at(wanted.serial)
        if wanted.serial % PRUNE_EVERY == 0:
            file_log.sweep(self.blobs, self.prune(), wanted.positions())
        return wanted

    def prune(self) -> int:
        """Deletes numbers that are no longer kept, and shapes that no kept number refers to. The oldest kept number."""
        listed = sorted(self._list())
        if not listed:
            return 0
        newest = listed[-1][1].modified
        hours: set[dt.datetime] = set()
        oldest = listed[-self._retention.numbers :][0][0]
        for serial, info in reversed(listed[: -self._retention.numbers]):
            hour = info.modified.replace(minute=0, second=0, microsecond=0)
            is_extra = self._retention.hourly and hour in hours
            if is_extra or newest - info.modified > self._retention.age:
                self.blobs.delete(info.name)
            else:
                oldest = serial
            hours.add(hour)
        self._sweep_shapes(oldest, listed[-1][0])
        return oldest

    def _sweep_shapes(self, oldest: int, newest: int) -> None:
        """References never fall: what lies below those of the oldest and the newest number has none any more. A
        document that was put back by hand may refer to less than those before it."""
        ends = [self.blobs.get(self._name(serial)) for serial in (oldest, newest)]
        needed = min(shapes.serial_of(codec.reference_of(data)[1]) if data else 0 for data in ends)
        for info in self.blobs.list(self._prefix + shapes.FOLDER):
            if 0 < shapes.serial_of(info.name.removeprefix(self._prefix)) < needed:
                self.blobs.delete(info.name)

    def _create(self, name: str, data: bytes, write_id: str) -> bool:
        """Whether the blob belongs to this writer now. A refused or failed create may have succeeded, its answer
        lost."""
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

    def _from_hint(self) -> StateDocument | None:
        document = self._get(self._read_hint())
        if document is None:
            return None
        for serial in itertools.count(document.serial + 1):
            following = self._get(serial)
            if following is None:
                return document
            document = following
        return document

    def _read_hint(self) -> int:
        data = self.blobs.get(self._prefix + HINT)
        try:
            return int(json.loads(data)["serial"]) if data else 0
        except (ValueError, KeyError, TypeError):
            return 0

    def _from_listing(self) -> StateDocument | None:
        return self._get(max((serial for serial, _ in self._list()), default=0))

    def _point_at(self, serial: int) -> None:
        # Racing writers may leave either of theirs, or none: it is a hint.
        self.blobs.delete(self._prefix + HINT)
        self.blobs.create(self._prefix + HINT, json.dumps({"serial": serial}).encode())

    def _get(self, serial: int) -> StateDocument | None:
        data = self.blobs.get(self._name(serial)) if serial > 0 else None
        if data is None:
            return None
        # The name determines the serial: a document restored by hand from a backup may contain another.
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
