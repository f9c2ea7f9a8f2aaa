"""How long a change takes from its commit in PostgreSQL until a reader of the target sees it, with `apply --follow`.

A writer commits a fixed number of changes per second, half inserts, half updates. A reader polls the target for the
greatest id it can see. Beside the latency: what the server keeps of its log for the slot, and flowctl's memory.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any
from urllib.parse import urlsplit

import psycopg

from flowctl.engine.processes import resident_bytes
from tests.services import postgres

#: Changes of one transaction.
_AT_ONCE = 10
#: Seconds between two looks at the target.
_LOOK = 0.02


@dataclass
class Run:
    """What was seen: seconds of each transaction until it was visible, bytes of log kept for the slot, and bytes in
    memory, each second."""

    latencies: list[float] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)


def measure(target: str, every: str, rate: int, seconds: float) -> Run:
    """``target`` is `postgres` or `delta`; ``every`` is the stream's `batch.every`."""
    with postgres.server() as url, tempfile.TemporaryDirectory(prefix="flowctl-latency-") as name:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE ticks (id bigint PRIMARY KEY, version int, payload text)")
            connection.execute("INSERT INTO ticks SELECT n, 0, md5(n::text) FROM generate_series(1, 10000) n")
        folder = Path(name)
        _write_spec(folder, url, target, every)
        with followed(folder, url) as process:
            seen = visible(target, url, folder)
            while seen() < 10_000:
                time.sleep(_LOOK)
            time.sleep(5)  # the first rounds warm its caches
            return _observe(url, seen, process.pid, rate, seconds)


def _write_spec(folder: Path, url: str, target: str, every: str) -> None:
    parts = urlsplit(url)
    own = f"postgresql://{parts.username}:${{secret:env:BENCH_PASSWORD}}@{parts.hostname}:{parts.port}{parts.path}"
    to = {"postgres": "pg:copy.ticks", "delta": "lake:ticks"}[target]
    spec: dict[str, Any] = {
        "version": 1,
        "flow": "latency",
        "state": "state",
        "connections": {"pg": {"type": "postgres", "url": own}, "lake": {"type": "delta", "path": "lake"}},
        "spark": {"url": "sail"},
        "streams": {"changes": {"from": "pg", "batch": {"every": every}}},
        "tables": {"ticks": {"from": "changes:public.ticks", "to": to, "mode": "merge"}},
    }
    (folder / "flow.yaml").write_text(json.dumps(spec))  # which is YAML


@contextmanager
def followed(folder: Path, url: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "flowctl", "apply", "flow.yaml", "--follow"]
    env = {**os.environ, "BENCH_PASSWORD": urlsplit(url).password or ""}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        if process.wait(60) != 0:
            print((folder / "log").read_text()[-2000:], file=sys.stderr)


def visible(target: str, url: str, folder: Path) -> Callable[[], int]:
    """A function that returns the greatest id that a reader sees; 0 if there is no table yet."""
    if target == "postgres":
        connection = psycopg.connect(url, autocommit=True)

        def in_database() -> int:
            try:
                return int(connection.execute("SELECT max(id) FROM copy.ticks").fetchall()[0][0] or 0)
            except psycopg.errors.Error:
                return 0

        return in_database
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder
    from deltalake.exceptions import TableNotFoundError

    known = {-1: 0}

    def in_lake() -> int:
        try:
            table = DeltaTable(str(folder / "lake" / "ticks"))
        except TableNotFoundError:
            return 0
        if (version := table.version()) not in known:
            found = QueryBuilder().register("ticks", table).execute("SELECT max(id) AS id FROM ticks").read_all()
            known[version] = int(pa.table(found).column("id")[0].as_py() or 0)
        return known[version]

    return in_lake


def _observe(url: str, seen: Callable[[], int], pid: int, rate: int, seconds: float) -> Run:
    run, committed, lock = Run(), [], threading.Lock()
    done = threading.Event()

    def write() -> None:
        with psycopg.connect(url) as connection:
            began, last = time.monotonic(), 10_000
            for number in range(int(rate * seconds / _AT_ONCE)):
                time.sleep(max(0.0, began + number * _AT_ONCE / rate - time.monotonic()))
                half = _AT_ONCE // 2
                connection.execute(
                    "INSERT INTO ticks SELECT n, 0, md5(n::text) FROM generate_series(%s::int, %s::int) n",
                    [last + 1, last + half],
                )
                connection.execute(
                    "UPDATE ticks SET version = version + 1 WHERE id BETWEEN %s AND %s", [last - half + 1, last]
                )
                connection.commit()
                last += half
                with lock:
                    committed.append((last, time.monotonic()))
        done.set()

    def sample() -> None:
        query = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint FROM pg_replication_slots"
        with psycopg.connect(url, autocommit=True) as connection:
            while not done.wait(1):
                run.kept.append(int(connection.execute(query).fetchall()[0][0]))
                run.memory.append(resident(pid))

    threads = [threading.Thread(target=one) for one in (write, sample)]
    for thread in threads:
        thread.start()
    while not done.is_set() or committed:
        there, now = seen(), time.monotonic()
        with lock:
            while committed and committed[0][0] <= there:
                run.latencies.append(now - committed.pop(0)[1])
        time.sleep(_LOOK)
    for thread in threads:
        thread.join()
    return run


def resident(pid: int) -> int:
    """Of the process and those below it."""
    own = resident_bytes(pid)
    children = Path(f"/proc/{pid}/task").glob("*/children")
    return own + sum(resident(int(child)) for file in children for child in file.read_text().split())


def table(rate: int, seconds: float) -> Iterator[str]:
    """Lines of Markdown, as each run ends."""
    yield f"{rate:,} changes/s for {seconds:.0f} s, in transactions of {_AT_ONCE}; seconds from commit to visible"
    yield ""
    yield "| target | `every` | p50 | p99 | most | log kept, most MB | memory, first → last third, MB |"
    yield "|---|---|---:|---:|---:|---:|---|"
    for target in ("postgres", "delta"):
        for every in ("1s", "5s"):
            run = measure(target, every, rate, seconds)
            cuts = quantiles(run.latencies, n=100)
            third = len(run.memory) // 3
            before, after = megabytes(run.memory[:third]), megabytes(run.memory[-third:])
            yield (
                f"| {target} | {every} | {cuts[49]:.2f} | {cuts[98]:.2f} | {max(run.latencies):.2f} |"
                f" {max(run.kept) / 1e6:.0f} | {before:.0f} → {after:.0f} |"
            )


def megabytes(samples: Sequence[int]) -> float:
    return max(samples) / 1e6
