"""A stream of a real server, captured into a landing log of the test's own and decoded."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from flowctl.changes.decoded import Changes, concatenated
from flowctl.connectors.postgres import copy_reading
from flowctl.connectors.postgres.changes.moment import PostgresMoment
from flowctl.connectors.postgres.changes.stream import PostgresStreams
from flowctl.connectors.postgres.client import client
from flowctl.connectors.postgres.columns import transfer
from flowctl.connectors.postgres.conditions import COMPARISONS
from flowctl.connectors.source import Relation
from flowctl.connectors.sql.parts import Cut, Parts
from flowctl.diagnostics import Mark
from flowctl.model.position import LsnPosition, lsn_from_text
from flowctl.model.table_info import Column, ObjectName
from flowctl.spec.spec import StreamSpec
from flowctl.storage.disk import DiskStore
from flowctl.storage.lander import BatchLimits, Lander
from flowctl.storage.landing import LandedBatch, LandingLog

STREAM = StreamSpec(name="cdc", flow="shop", connection="pg", mark=Mark("flow.yaml", 1))
NO_LIMITS = BatchLimits(10**9, 10**12)


@dataclass
class Captured:
    """The stream of some tables of one database."""

    url: str
    folder: Path
    objects: Sequence[ObjectName]
    stream: StreamSpec = STREAM

    def __post_init__(self) -> None:
        self.source = PostgresStreams(client({"url": self.url}))
        flow = str(self.folder / "state" / self.stream.flow)
        self.log = LandingLog(DiskStore(flow), flow, f"streams/{self.stream.name}/", {})

    @contextmanager
    def begin(self) -> Iterator[PostgresMoment]:
        """Publication, slot and batch 0."""
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

    def head(self) -> LsnPosition:
        """Behind everything that has committed, also without waiting for the disk."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = on")
            connection.execute("SELECT pg_logical_emit_message(true, 'flowctl', 'flushes the log')")
            row = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
            assert row is not None
            return lsn_from_text(row[0])

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

    def snapshot_rows(
        self, object: ObjectName, found: Sequence[Column], wanted: Sequence[Column]
    ) -> list[dict[str, Any]]:
        """What a reader of the whole table gets now. ``found`` are its columns, ``wanted`` have the types to read."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("SET TimeZone = 'UTC'; SET IntervalStyle = 'postgres'; SET extra_float_digits = 3")
            transfers = tuple(transfer(*pair) for pair in zip(wanted, found, strict=True))
            parts = Parts(transfers, COMPARISONS.from_clause(Relation(object)), Cut(), "true")
            return [row for batch in copy_reading.read_here(connection, parts) for row in batch.to_pylist()]


def _equal(values: Any, number: int) -> Any:
    import pyarrow.compute as pc

    return pc.equal(values, number)
