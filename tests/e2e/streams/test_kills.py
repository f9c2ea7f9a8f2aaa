"""A stream under load, killed at random again and again, its connections cut, while readers look on: at the end every
target equals its source, and what is appended is there once, in order."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pymysql
import pytest

from tests.e2e.flows import Flow
from tests.e2e.streams.flow import flush, place, write_flow
from tests.e2e.streams.sources import database_of
from tests.e2e.streams.targets import (
    DeltaPlace,
    cut_orphans,
    must_be_history,
    must_be_marked,
    must_equal,
    must_have_every_change,
    orphans,
)
from tests.e2e.streams.workload import Workload

pytestmark = pytest.mark.server

#: Kills of each test; `make test-full` does three of them. On a busy machine, a kill and the run after it take up to a
#: minute.
KILLS = int(os.environ.get("FLOWCTL_TEST_KILLS", "100"))

MORE = """
  documents_log: {from: "cdc:public.documents", to: "lake:documents_log", mode: append}
  orders_log: {from: "cdc:public.orders", to: "lake:orders_log", mode: append}
  customers_history: {from: "cdc:public.customers", to: "lake:customers_history", mode: scd2}
  documents_soft: {from: "cdc:public.documents", to: "lake:documents_soft", mode: merge, deletes: {action: soft}}
"""


class Readers:
    """Look for children without a parent all the time: in the PostgreSQL target, and in the lake through its cuts."""

    def __init__(self, url: str, lake: Path) -> None:
        self.found: list[str] = []
        self.looks = {"dw": 0, "lake": 0}
        self._stopping = threading.Event()
        looks = {"dw": lambda: orphans(url), "lake": lambda: cut_orphans(lake)}
        self._threads = [threading.Thread(target=self._look, args=item, name=item[0]) for item in looks.items()]
        for thread in self._threads:
            thread.start()

    def _look(self, name: str, look: Callable[[], list[str] | None]) -> None:
        while not self._stopping.wait(0.2):
            try:
                found = look()
            except (psycopg.Error, pymysql.Error):  # not made yet, or the server restarts
                continue
            except Exception as error:  # noqa: BLE001 - a reader that cannot read is a finding
                self.found.append(f"{name}: {error!r}")
                return
            self.found += found or []
            self.looks[name] += found is not None

    @property
    def have_looked(self) -> bool:
        return all(self.looks.values())

    def stop(self) -> None:
        """Raises if something was found, or nothing was looked at."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        assert not self.found
        assert self.have_looked


@dataclass
class Lives:
    """How long runs live, in seconds at most. On a busy machine a pass takes many times as long as on an idle one, so
    all live longer once five in a row were killed: whatever they take, some come to their end. The last that did shows
    how long the next need."""

    chosen: random.Random
    longest: float = 6.0
    in_a_row: int = 0

    def spend(self, flow: Flow) -> int | None:
        """Kills a run at random; its exit code if it was faster."""
        started = time.monotonic()
        process = flow.start("apply", "flow.yaml")
        try:
            process.communicate(timeout=0.3 + self.chosen.random() * self.longest)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            self.in_a_row += 1
            if self.in_a_row % 5 == 0:
                self.longest *= 2
            return None
        self.in_a_row, self.longest = 0, max(6.0, 1.5 * (time.monotonic() - started))
        return process.returncode


@pytest.mark.full
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_kills_under_load(seed: int, tmp_path: Path, source_url: str) -> None:
    chosen = random.Random(seed)
    workload = Workload(source_url, seed=seed, big=50_000, rows=1_000)
    workload.create()
    targets = ("dw", "lake", "lite")
    flow = write_flow(tmp_path, source_url, targets, MORE, "batch: {rows: 1000}")
    database = database_of(source_url)
    oracle = database.oracle()
    flow.apply()
    readers = Readers(source_url, tmp_path / "lake")
    workload.start(pause=0.05)
    lives, kills = Lives(chosen), 0
    try:
        while kills < KILLS or not readers.have_looked:
            code = lives.spend(flow)
            kills += code is None
            assert code in (None, 0), f"exit {code} after {kills} kills"
            if chosen.random() < 0.05:
                database.cut_connections()
    finally:
        workload.stop()
        readers.stop()
    flush(source_url)
    flow.apply()
    for target in targets:
        must_equal(source_url, place(flow, source_url, target))
    lake = DeltaPlace(tmp_path / "lake")
    logs = {"documents": "documents_log", "orders": "orders_log"}
    must_have_every_change(oracle, lake, logs)
    must_be_history(source_url, lake, "customers", "customers_history", ["id"])
    must_be_marked(source_url, lake, "documents", "documents_soft")
    oracle.end()
