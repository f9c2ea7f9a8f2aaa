"""What takes connections and never answers: SIGTERM ends a run within 30 s, and without one it ends by itself.

A store is a listening socket that nobody reads from; an engine is suspended with SIGSTOP, so that its kernel goes on
to take connections and acknowledge packets.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flowctl.connectors.delta.location import TableLocation
from flowctl.engine import timeouts
from flowctl.engine.start import open_engine
from flowctl.errors import TransientError
from flowctl.run.failure import translate, whole_text
from flowctl.spec.spec import SparkSettings
from flowctl.storage.stores import s3 as s3_store
from tests.e2e.flows import Flow, sqlite_rows, sqlite_script
from tests.e2e.test_spark_server import spark_server
from tests.services import s3
from tests.services.processes import children_of
from tests.services.s3_proxy import S3Proxy

pytestmark = pytest.mark.server

SPEC = """
version: 1
flow: shop
state: "{state}"
spark: {{url: "{spark}"}}
storage:
  "s3://silent":
    {{endpoint: "{endpoint}", region: us-east-1, access_key: "${{secret:env:AK}}", secret_key: "${{secret:env:SK}}"}}
connections:
  src: {{type: sqlite, path: source.db}}
  dst: {{type: sqlite, path: target.db}}
  lake: {{type: delta, path: "{lake}"}}
  inbox: {{type: files, path: "s3://silent/inbox"}}
tables:
{tables}
"""
COPY = "  copy: {from: src:orders, to: dst:copy, mode: truncate}\n"
ENDLESS = (
    "  endless: {from: {sql: \"SELECT count(*) AS n FROM {{ ref('copy') }} a, RANGE(1000000) b, RANGE(1000000) c"
    ' WHERE c.id % 7 = a.id"}, to: dst:endless, mode: truncate}\n'
)


class SilentStore:
    """Takes every connection and reads nothing. ``asked`` is set by the first one."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked = threading.Event()
        self._held: list[socket.socket] = []

    def __enter__(self) -> SilentStore:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for connection in self._held:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                self._held.append(self._listener.accept()[0])
            except OSError:
                return
            self.asked.set()


@pytest.fixture
def store() -> Iterator[SilentStore]:
    with SilentStore() as store:
        yield store


def flow_over(folder: Path, tables: str, *, endpoint: str = "http://127.0.0.1:9", **places: str) -> Flow:
    flow = Flow(folder, {"AK": "a", "SK": "b"})
    sqlite_script(folder / "source.db", "CREATE TABLE orders (id INTEGER PRIMARY KEY); INSERT INTO orders VALUES (1)")
    given = {"state": "state", "spark": "sail", "lake": "lake", **places}
    flow.write(SPEC.format(tables=tables, endpoint=endpoint, **given))
    return flow


def must_end(process: subprocess.Popen[str]) -> str:
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=90)
    assert time.monotonic() - started < 30, out + err
    assert process.returncode == 4, out + err
    return out + err


@pytest.mark.full
@pytest.mark.parametrize(
    ("tables", "places"),
    [
        (COPY, {"state": "s3://silent/state"}),
        ("  there: {from: src:orders, to: lake:there, mode: truncate}\n", {"lake": "s3://silent/lake"}),
        ("  read: {from: 'inbox:*.csv', to: dst:read, mode: append}\n", {}),
    ],
    ids=["state", "delta", "files"],
)
def test_sigterm_ends_a_run_whose_store_never_answers(
    tmp_path: Path, store: SilentStore, tables: str, places: dict[str, str]
) -> None:
    flow = flow_over(tmp_path, tables, endpoint=store.endpoint, **places)
    process = flow.start("apply", "flow.yaml")
    assert store.asked.wait(60)
    must_end(process)


@pytest.mark.full
@pytest.mark.parametrize(("spark", "client"), [("sail", "object_store"), ("local[2]", "Hadoop")])
def test_sigterm_ends_a_run_whose_engine_waits_for_a_store(tmp_path: Path, spark: str, client: str) -> None:
    """Its own client of S3 then, not flowctl's: a table with partitions is written by the engine."""
    split = "  split: {from: src:orders, to: lake:split, mode: truncate, layout: {partition_by: [part]}}\n"
    with s3.moto() as server, S3Proxy(server.endpoint) as proxy:
        server.client().create_bucket(Bucket="silent")
        proxy.silent_at = "/part-"
        flow = flow_over(tmp_path, split, endpoint=proxy.endpoint, lake="s3://silent/lake", spark=spark)
        sqlite_script(tmp_path / "source.db", "ALTER TABLE orders ADD COLUMN part TEXT; UPDATE orders SET part = 'a'")
        process = flow.start("apply", "flow.yaml")
        assert client in proxy.kept_waiting.get(timeout=90)
        must_end(process)
        proxy.silent_at = None
        assert "1 committed" in flow.apply(expect=0).out


@contextmanager
def suspended(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            return


def started(flow: Flow, table: str) -> subprocess.Popen[str]:
    process = flow.start("apply", "flow.yaml")
    assert process.stderr is not None
    assert any(line.startswith(f"{table}: ") for line in iter(process.stderr.readline, ""))
    return process


def at_work(flow: Flow) -> subprocess.Popen[str]:
    """A run whose second table never ends."""
    process = started(flow, "endless")
    time.sleep(3)  # it is at work in the engine then
    return process


@pytest.mark.full
def test_sigterm_ends_a_run_whose_jvm_is_suspended(tmp_path: Path) -> None:
    flow = flow_over(tmp_path, COPY + ENDLESS, spark="local[2]")
    process = at_work(flow)
    [engine] = children_of(process.pid, "java")
    with suspended(engine):
        told = must_end(process)
    assert "Run again to finish it" in told
    assert not Path(f"/proc/{engine}").exists()
    assert sqlite_rows(tmp_path / "target.db", "SELECT id FROM copy") == [(1,)]


@pytest.mark.full
def test_sigterm_ends_a_run_whose_sail_is_suspended(tmp_path: Path) -> None:
    flow = flow_over(tmp_path, COPY)
    process = started(flow, "copy")
    [engine] = children_of(process.pid, "python")
    with suspended(engine):
        must_end(process)
    assert not Path(f"/proc/{engine}").exists()
    flow.apply()
    assert sqlite_rows(tmp_path / "target.db", "SELECT id FROM copy") == [(1,)]


@pytest.mark.full
def test_sigterm_ends_a_run_whose_spark_connect_server_is_suspended(tmp_path: Path) -> None:
    with spark_server({}) as (server, port):
        flow = flow_over(tmp_path, COPY + ENDLESS, spark=f"sc://localhost:{port}")
        process = at_work(flow)
        [jvm] = children_of(server.pid, "java")
        with suspended(jvm):
            must_end(process)


def test_deltalake_gives_a_store_up_that_never_answers(store: SilentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    from deltalake import DeltaTable

    monkeypatch.setattr(s3_store, "REQUEST", 1)
    keys = {"access_key": "a", "secret_key": "b", "endpoint": store.endpoint, "region": "us-east-1"}
    location = TableLocation("s3://silent/lake", {"s3://silent": keys})
    with pytest.raises(OSError, match="after 2 retries"):
        DeltaTable(location.url, storage_options=location.options)


@pytest.mark.full
def test_fsspec_gives_a_store_up_that_never_answers(store: SilentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.exceptions import ReadTimeoutError

    monkeypatch.setattr(s3_store, "SILENCE", 1)
    keys = {"access_key": "a", "secret_key": "b", "endpoint": store.endpoint, "region": "us-east-1"}
    with pytest.raises(ReadTimeoutError):
        TableLocation("s3://silent/lake", {"s3://silent": keys}).file_system().cat_file("s3://silent/lake/x")


@pytest.mark.full
@pytest.mark.parametrize("url", ["sail", "local[2]"])
def test_an_engine_of_ours_that_does_not_answer_is_ended_and_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "ENGINE_PING", 0.1)
    monkeypatch.setattr(timeouts, "ENGINE_SILENCE", 3.0)
    with open_engine(SparkSettings(url=url), [], {}, "small") as engine:
        session = engine.session_for("copy")
        assert engine.process is not None
        os.kill(engine.process.pid, signal.SIGSTOP)
        with pytest.raises(Exception) as failed:
            session.range(3).count()
        lost = engine.lost(whole_text(failed.value))
    assert lost is not None and "Spark did not answer for 3 s and was ended" in lost.message


@pytest.mark.full
def test_a_spark_connect_server_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "SERVER_SILENCE", 1)
    monkeypatch.setattr(timeouts, "SERVER_ANSWER", 1)
    with spark_server({}) as (server, port):
        [jvm] = children_of(server.pid, "java")
        with open_engine(SparkSettings(url=f"sc://localhost:{port}"), [], {}, "small") as engine:
            session = engine.session_for("copy")
            with suspended(jvm), pytest.raises(Exception) as failed:
                session.range(3).count()
    assert isinstance(translate(failed.value, None), TransientError)


@pytest.mark.full
def test_sigterm_ends_a_spark_connect_server_whose_jvm_is_suspended() -> None:
    with spark_server({}) as (server, _):
        [jvm] = children_of(server.pid, "java")
        with suspended(jvm):
            started = time.monotonic()
            server.terminate()
            server.communicate(timeout=90)
        assert time.monotonic() - started < 30 and server.returncode == 0
        assert not Path(f"/proc/{jvm}").exists()
