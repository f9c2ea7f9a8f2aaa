"""Streams of which nothing changes: a heartbeat moves them on, and nothing else does."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from flowctl.model.table_info import ObjectName
from flowctl.storage.lander import Lander
from flowctl.storage.landing import LandedBatch
from tests.connectors.captured import NO_LIMITS, STREAM
from tests.connectors.postgres.changes.streaming import Captured
from tests.services import postgres
from tests.services.postgres_versions import VERSIONS, programs

pytestmark = pytest.mark.server
OBJECT = ObjectName(("public", "quiet"))


@contextmanager
def captured(url: str, folder: Path, heartbeat: float | None) -> Iterator[tuple[Captured, Lander]]:
    """A stream of one table that is captured without an end, beside another table that keeps changing."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE quiet (id int PRIMARY KEY); CREATE TABLE busy (id int PRIMARY KEY)")
        on = Captured(url, folder, [OBJECT], replace(STREAM, heartbeat=heartbeat))
        with on.begin():
            pass
        newest = on.log.newest()
        assert newest is not None
        lander, stopping = Lander(on.log, newest, NO_LIMITS), threading.Event()
        reading = threading.Thread(
            target=on.source.capture, args=(on.stream, [OBJECT], newest.upper, lambda: None, lander, stopping)
        )
        reading.start()
        try:
            yield on, lander
        finally:
            stopping.set()
            reading.join()
            on.source.drop_reader(on.stream)


def must_move_on(url: str, folder: Path) -> None:
    with captured(url, folder, 0.3) as (on, _), psycopg.connect(url, autocommit=True) as connection:
        begun, until = time.time(), time.monotonic() + 30
        while len(on.log.numbers()) < 4:
            assert time.monotonic() < until
            connection.execute("INSERT INTO busy SELECT coalesce(max(id), 0) + 1 FROM busy")
            time.sleep(0.05)
        batches = [batch for number in on.log.numbers() if (batch := on.log.batch(number))]
        must_be_a_chain(batches)
        assert all(batch.changes == 0 and not batch.segments for batch in batches)
        row = connection.execute(
            "SELECT %s::timestamptz > to_timestamp(%s), confirmed_flush_lsn > %s::pg_lsn FROM pg_replication_slots",
            [batches[-1].event_at, begun - 1, str(batches[0].upper)],
        ).fetchone()
        assert row == (True, True)


def must_be_a_chain(batches: list[LandedBatch]) -> None:
    for before, after in itertools.pairwise(batches):
        assert after.lower == before.upper
        assert after.upper > before.upper  # type: ignore[operator]
        assert after.event_at > before.event_at


def test_a_heartbeat_moves_a_quiet_stream_on(tmp_path: Path, postgres_database: str) -> None:
    must_move_on(postgres_database, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("major", VERSIONS)
def test_in_every_version(major: int, tmp_path: Path) -> None:
    with postgres.cluster(programs(major)) as made, made.started() as server, postgres.database(server, "shop") as url:
        must_move_on(url, tmp_path)


@pytest.mark.full
def test_without_one_nothing_lands(tmp_path: Path, postgres_database: str) -> None:
    """Nor is anything kept of transactions in which nothing concerns the stream."""
    with (
        captured(postgres_database, tmp_path, None) as (on, lander),
        psycopg.connect(postgres_database, autocommit=True) as connection,
    ):
        for number in range(50):
            connection.execute("INSERT INTO busy VALUES (%s)", [number])
        time.sleep(2)
        assert on.log.numbers() == [0]
        assert lander.is_empty
