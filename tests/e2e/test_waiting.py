"""SIGTERM ends a run within 30 s, whatever it waits for: a lock in PostgreSQL, or a server that does not answer."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.e2e.flows import Flow
from tests.services import postgres as servers
from tests.services.postgres import paused_later

pytestmark = pytest.mark.server

SPEC = """
version: 1
flow: shop
state: state
spark: {url: sail}
connections:
  pg: {type: postgres, url: "${secret:env:URL}"}
tables:
  copy: {from: pg:public.orders, to: pg:public.copy, mode: merge, key: [id], cursor: {column: id},
         deletes: {detect: missing_keys}}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with servers.server() as url:
        yield url


@pytest.fixture
def flow(tmp_path: Path, server: str) -> Flow:
    """One that has run before."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(
            "DROP TABLE IF EXISTS orders, copy, _flowctl_commits; CREATE TABLE orders (id bigint PRIMARY KEY, v text);"
            "INSERT INTO orders SELECT i, 'v' FROM generate_series(1, 100) i"
        )
    made = Flow(tmp_path, {"URL": server})
    made.write(SPEC)
    made.apply()
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("INSERT INTO orders VALUES (101, 'new')")
    return made


@contextmanager
def locked(url: str, table: str) -> Iterator[Callable[[], bool]]:
    """Somebody else has the table for himself; the function tells whether flowctl waits for him."""
    with psycopg.connect(url) as other, psycopg.connect(url, autocommit=True) as watcher:
        other.execute(f"LOCK TABLE {table}".encode())
        yield lambda: bool(
            watcher.execute(
                "SELECT 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
                " WHERE NOT l.granted AND a.application_name = 'flowctl'"
            ).fetchone()
        )
        other.rollback()


def ended(process: subprocess.Popen[str]) -> tuple[float, str]:
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=90)
    return time.monotonic() - started, out + err


@pytest.mark.full
@pytest.mark.parametrize("table", ["copy", "orders", "_flowctl_commits"])
def test_sigterm_ends_a_run_that_waits_for_a_lock(flow: Flow, server: str, table: str) -> None:
    """Of the target while keys are compared, of the source while planning, of the record while committing."""
    with locked(server, table) as waits:
        process = flow.start("apply", "flow.yaml")
        until = time.monotonic() + 60
        while not waits():
            assert time.monotonic() < until and process.poll() is None, process.communicate()
            time.sleep(0.05)
        seconds, told = ended(process)
    assert seconds < 30, told
    assert process.returncode == 4, told
    flow.apply()
    with psycopg.connect(server) as connection:
        assert connection.execute("SELECT count(*), count(DISTINCT id) FROM copy").fetchone() == (101, 101)


@pytest.mark.full
@pytest.mark.parametrize("moment", ["planning", "staging", "committing"])
def test_sigterm_ends_a_run_whose_server_is_paused(flow: Flow, server: str, moment: str) -> None:
    table = {"planning": "orders", "staging": "copy", "committing": "_flowctl_commits"}[moment]
    with locked(server, table) as waits:
        process = flow.start("apply", "flow.yaml")
        until = time.monotonic() + 60
        while not waits():
            assert time.monotonic() < until and process.poll() is None, process.communicate()
            time.sleep(0.05)
        with paused_later(server) as pause:
            pause()
            seconds, told = ended(process)
    assert seconds < 30, told
    assert process.returncode == 4, told
    flow.apply()
