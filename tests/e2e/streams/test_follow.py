"""`flowctl apply --follow`: streams beside tables that run at intervals, until SIGTERM."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from flowctl.engine.processes import resident_bytes
from tests.e2e.flows import Flow
from tests.e2e.streams.flow import flush, place, write_flow
from tests.e2e.streams.sources import database_of
from tests.e2e.streams.targets import (
    DeltaPlace,
    are_equal,
    has_begun,
    must_equal,
    must_have_every_change,
    orphans,
    source_rows,
)
from tests.e2e.streams.workload import Workload

pytestmark = pytest.mark.server
FAST = "batch: {every: 1s, rows: 2000}"
#: Minutes of the soak.
MINUTES = float(os.environ.get("FLOWCTL_TEST_SOAK", "20"))


@contextmanager
def followed(flow: Flow, *args: str) -> Iterator[subprocess.Popen[str]]:
    """The process, which must end well after SIGTERM."""
    log = flow.folder / "follow.log"
    with log.open("w") as output:
        process = flow.start("apply", "flow.yaml", "--follow", *args, output=output)
    try:
        yield process
    except BaseException:
        process.kill()
        process.wait()
        print(log.read_text())
        raise
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 0, log.read_text()


def children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):  # the thread has ended meanwhile
            found += map(int, (task / "children").read_text().split())
    return [*found, *(below for one in found for below in children(one))]


def wait_for(is_so: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, "it did not come to be in time"
        time.sleep(0.2)


def have_all(flow: Flow, url: str, targets: tuple[str, ...]) -> bool:
    return are_equal(url, *(place(flow, url, target) for target in targets))


def test_targets_follow_the_source(tmp_path: Path, source_url: str) -> None:
    workload = Workload(source_url, seed=11, big=20_000, rows=300)
    workload.create()
    targets = ("dw", "lake", "lite")
    polled = '  polled: {from: "source:public.tags", to: "lake:polled", mode: truncate, every: 1s}\n'
    flow = write_flow(tmp_path, source_url, targets, polled, FAST)
    with followed(flow):
        workload.start(pause=0.02)
        wait_for(lambda: has_begun(source_url))
        found: list[str] = []
        until = time.monotonic() + 8
        while time.monotonic() < until:
            found += orphans(source_url)
        workload.stop()
        flush(source_url)
        wait_for(lambda: have_all(flow, source_url, targets))
        tags = source_rows(source_url, "tags")
        wait_for(lambda: DeltaPlace(tmp_path / "lake").rows("polled", ["kind", "name", "weight"]) == tags)
    assert not found


def test_a_followed_stream_is_left_to_its_process(tmp_path: Path, postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE one (id int PRIMARY KEY); CREATE TABLE two (id int)")
    tables = '  one: {from: "cdc:public.one", to: "lake:one", mode: merge}\n'
    tables += '  two: {from: "source:public.two", to: "lake:two", mode: truncate}\n'
    flow = write_flow(tmp_path, postgres_database, [], tables, FAST)
    with followed(flow):
        wait_for(lambda: (tmp_path / "lake" / "one").exists())
        done = flow.run("apply", "flow.yaml", expect=0)
        assert "left to the run that works on the stream cdc" in done.words
        assert (tmp_path / "lake" / "two").exists()
        flow.run("apply", "flow.yaml", "--select", "cdc", expect=5)
        flow.run("state", "resnapshot", "flow.yaml", "one", "--yes", expect=5)


@pytest.mark.full
def test_a_new_table_a_broken_one_and_a_lost_connection(tmp_path: Path, postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE one (id int PRIMARY KEY)")
        tables = '  "${table}": {from: "cdc:public.*", to: "lake:${table}", mode: merge}\n'
        flow = write_flow(tmp_path, postgres_database, [], tables, FAST)
        with followed(flow):
            wait_for(lambda: (tmp_path / "lake" / "one").exists())
            for number in range(5):
                connection.execute("INSERT INTO one VALUES (%s)", [number])
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'flowctl' AND pid <> pg_backend_pid()"
                )
                time.sleep(1)
            flush(postgres_database)
            wait_for(lambda: len(DeltaPlace(tmp_path / "lake").rows("one", ["id"])) == 5)


@pytest.mark.full
@pytest.mark.parametrize("seed", [21, 22])
def test_random_kills_of_a_followed_stream(seed: int, tmp_path: Path, source_url: str) -> None:
    import random

    chosen, workload = random.Random(seed), Workload(source_url, seed=seed, big=50_000, rows=500)
    workload.create()
    targets = ("dw", "lake", "lite")
    log = '  orders_log: {from: "cdc:public.orders", to: "lake:orders_log", mode: append}\n'
    flow = write_flow(tmp_path, source_url, targets, log, FAST)
    oracle = database_of(source_url).oracle()
    flow.apply()
    workload.start(pause=0.02)
    try:
        for _ in range(int(os.environ.get("FLOWCTL_TEST_KILLS", "100")) // 2):
            process = flow.start("apply", "flow.yaml", "--follow")
            time.sleep(0.5 + chosen.random() * 5)
            process.kill()
            out, err = process.communicate()
            assert process.returncode == -signal.SIGKILL, f"{out}\n{err}"
    finally:
        workload.stop()
    flush(source_url)
    flow.apply()
    for target in targets:
        must_equal(source_url, place(flow, source_url, target))
    must_have_every_change(oracle, DeltaPlace(tmp_path / "lake"), {"orders": "orders_log"})


@pytest.mark.full
@pytest.mark.timeout(MINUTES * 60 + 600)
def test_soak(tmp_path: Path, postgres_database: str) -> None:
    """Memory, open files, threads and segments stay flat."""
    workload = Workload(postgres_database, seed=31, big=100_000, rows=2_000)
    workload.create()
    targets = ("dw", "lake")
    flow = write_flow(tmp_path, postgres_database, targets, "", "batch: {every: 1s, rows: 50000}, buffer: {keep: 30s}")
    samples: list[tuple[int, int, int, int]] = []
    segments = tmp_path / "state" / "shop" / "streams" / "cdc" / "segments"
    with followed(flow) as process:
        workload.start(pause=0.01)
        until = time.monotonic() + MINUTES * 60
        while time.monotonic() < until:
            time.sleep(5)
            family = [process.pid, *children(process.pid)]
            own = Path(f"/proc/{process.pid}")
            files, threads = len(list((own / "fd").iterdir())), len(list((own / "task").iterdir()))
            count = len(list(segments.iterdir())) if segments.exists() else 0
            samples.append((sum(map(resident_bytes, family)) >> 20, files, threads, count))
            print(*samples[-1], flush=True)
        workload.stop()
        flush(postgres_database)
        wait_for(lambda: have_all(flow, postgres_database, targets))
    first, last = samples[len(samples) // 4 : len(samples) // 2], samples[-len(samples) // 4 :]
    for at, (what, slack) in enumerate((("memory", 1.3), ("files", 1.2), ("threads", 1.2), ("segments", 1.5))):
        before, after = (max(sample[at] for sample in part) for part in (first, last))
        assert after <= before * slack + 10, f"{what}: {before} → {after}"
