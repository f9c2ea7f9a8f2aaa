"""A stream of a real server, captured into a landing log of the test's own and decoded."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flowctl.changes.decoded import Changes, concatenated
from flowctl.connectors.stream import Moment, StreamSource
from flowctl.diagnostics import Mark
from flowctl.model.position import Position
from flowctl.model.table_info import Column, ObjectName
from flowctl.spec.spec import StreamSpec
from flowctl.storage.disk import DiskStore
from flowctl.storage.lander import BatchLimits, Lander
from flowctl.storage.landing import LandedBatch, LandingLog

STREAM = StreamSpec(name="cdc", flow="shop", connection="source", mark=Mark("flow.yaml", 1))
NO_LIMITS = BatchLimits(10**9, 10**12)


@dataclass
class Captured(ABC):
    """The stream of some tables of one database."""

    url: str
    folder: Path
    objects: Sequence[ObjectName]
    stream: StreamSpec = STREAM

    def __post_init__(self) -> None:
        self.source = self.opened()
        flow = str(self.folder / "state" / self.stream.flow)
        self.log = LandingLog(DiskStore(flow), flow, f"streams/{self.stream.name}/", {})

    @abstractmethod
    def opened(self) -> StreamSource: ...

    @abstractmethod
    def head(self) -> Position:
        """Behind everything that has committed."""

    @contextmanager
    def begin(self) -> Iterator[Moment]:
        """What the source needs, the reader, and batch 0."""
        info = self.source.describe_stream(self.stream, self.objects)
        self.source.prepare(self.stream, info.source_changes)
        with self.source.moment(self.stream, self.objects, creates_reader=True) as moment:
            self.log.create(LandedBatch(0, moment.at, moment.at, moment.event_at))
            yield moment

    def capture(self, limits: BatchLimits = NO_LIMITS) -> LandedBatch:
        """Everything up to now; the newest batch."""
        newest = self.log.newest()
        assert newest is not None
        lander = Lander(self.log, newest, limits)
        head = self.head()
        self.source.capture(self.stream, self.objects, newest.upper, lambda: head, lander, threading.Event())
        found = self.log.newest()
        assert found is not None
        return found

    def changes(self, columns: Sequence[Column], key: Sequence[str], object: ObjectName, after: int = 0) -> Changes:
        """All captured changes of a table."""
        newest = self.log.newest()
        assert newest is not None
        parts = []
        for batch in self.log.between(after, newest.batch):
            landed = batch.table(object)
            if landed is None:
                continue
            for rows in self.log.rows(batch, [int(number) for number in landed.shapes]):
                for number, digest in landed.shapes.items():
                    of_shape = rows.filter(_equal(rows["shape"], int(number)))
                    if of_shape.num_rows:
                        parts.append(self.source.decoder(self.log.shape(digest)).decode(of_shape, columns, key))
        return concatenated(parts)


def _equal(values: Any, number: int) -> Any:
    import pyarrow.compute as pc

    return pc.equal(values, number)
