"""A stream that is followed while everything around it fails in turn: the source restarts, the target's server is down,
the object store of state and lake refuses. At the end every target equals its source, and nothing is there twice."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.e2e.flows import Flow
from tests.e2e.streams.flow import PASSWORD, flush
from tests.e2e.streams.targets import DeltaPlace, DwPlace, are_equal, must_equal
from tests.e2e.streams.test_follow import followed, wait_for
from tests.e2e.streams.workload import Workload
from tests.services import postgres, s3
from tests.services.postgres import Cluster
from tests.services.s3_proxy import S3Proxy

pytestmark = [pytest.mark.server, pytest.mark.full]

#: Failures of each test.
FAILURES = int(os.environ.get("FLOWCTL_TEST_FAILURES", "30"))


class Restarted:
    """A cluster that can be stopped and started while others use it."""

    def __init__(self, made: Cluster) -> None:
        self.made = made
        self._stack = ExitStack()

    def start(self) -> None:
        self._stack.enter_context(self.made.started())

    def stop(self, *, at_once: bool = False) -> None:
        """``at_once``: as after a crash of the server."""
        if at_once:
            os.kill(int((self.made.data / "postmaster.pid").read_text().split()[0]), signal.SIGQUIT)
        self._stack.close()


@contextmanager
def restartable() -> Iterator[Restarted]:
    with postgres.cluster() as made:
        server = Restarted(made)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def database(server: Restarted, name: str) -> str:
    with psycopg.connect(server.made.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return f"{server.made.url.rpartition('/')[0]}/{name}"


def spec(folder: Path, source: str, target: str, endpoint: str, server: s3.S3Server) -> Flow:
    flow = Flow(folder, {**PASSWORD, "S3_ACCESS": server.access_key, "S3_SECRET": server.secret_key})
    urls = [url.replace("etl-secret", "${secret:env:PG_PASSWORD}") for url in (source, target)]
    flow.write(f"""
version: 1
flow: shop
state: s3://shop/state
storage:
  s3://shop: {{endpoint: "{endpoint}", region: {server.region}, access_key: "${{secret:env:S3_ACCESS}}",
    secret_key: "${{secret:env:S3_SECRET}}"}}
connections:
  pg: {{type: postgres, url: "{urls[0]}"}}
  dw: {{type: postgres, url: "{urls[1]}"}}
  lake: {{type: delta, path: s3://shop/lake}}
spark: {{url: sail}}
streams:
  cdc: {{from: pg, batch: {{every: 1s, rows: 20000}}}}
tables:
  "dw_${{table}}": {{from: "cdc:public.*", to: "dw:dw.${{table}}", mode: merge}}
  "lake_${{table}}": {{from: "cdc:public.*", to: "lake:${{table}}", mode: merge}}
  orders_log: {{from: "cdc:public.orders", to: "lake:orders_log", mode: append}}
""")
    return flow


def lake_of(server: s3.S3Server) -> DeltaPlace:
    """The tables in the store, read without the proxy."""
    options = {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_REGION": server.region,
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
        "AWS_ALLOW_HTTP": "true",
    }
    return DeltaPlace("s3://shop/lake", options)


@pytest.mark.parametrize("seed", [41])
def test_everything_around_a_stream_fails(seed: int, tmp_path: Path) -> None:
    chosen = random.Random(seed)
    with restartable() as source, restartable() as target, s3.moto() as store, S3Proxy(store.endpoint) as proxy:
        store.client().create_bucket(Bucket="shop")
        there, dw, lake = database(source, "shop"), database(target, "dw"), lake_of(store)
        workload = Workload(there, seed=seed, big=50_000, rows=500)
        workload.create()
        flow = spec(tmp_path, there, dw, proxy.endpoint, store)
        flow.apply()

        def restart(server: Restarted, seconds: float) -> None:
            server.stop(at_once=chosen.random() < 0.5)
            time.sleep(seconds)
            server.start()

        def refuse(seconds: float) -> None:
            proxy.habit = "unavailable"
            time.sleep(seconds)
            proxy.habit = "none"

        def lose_answers(seconds: float) -> None:
            proxy.habit = "loses answers"
            time.sleep(seconds)
            proxy.habit = "none"

        failures = (lambda s: restart(source, s), lambda s: restart(target, s), refuse, lose_answers)
        with followed(flow):
            workload.start(pause=0.05)
            for number in range(FAILURES):
                time.sleep(1 + chosen.random() * 3)
                failures[number % len(failures)](0.2 + chosen.random() * 4)
            workload.stop()
            flush(there)
            wait_for(lambda: are_equal(there, DwPlace(dw), lake), seconds=400)
        flow.apply()
        must_equal(there, DwPlace(dw))
        must_equal(there, lake)
        assert threading.active_count() < 50
