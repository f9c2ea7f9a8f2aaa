"""A busy topic, and everything that happens to those around it: each message is once a row, or once a dead letter."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from flowctl.crashpoints import POINTS
from tests.e2e.flows import Flow
from tests.e2e.kafka.load import ERRORS, POISON, VERSIONS, error_of
from tests.e2e.kafka.test_dead_letters import letters_of
from tests.e2e.targets import ENV, Databases, Kind, TargetPlace, place
from tests.services import kafka, schemas
from tests.services.kafka import Broker
from tests.services.schemas import Registry

#: Messages per second, and kills at random moments; of each test.
RATE = int(os.environ.get("FLOWCTL_TEST_RATE", "50000"))
KILLS = int(os.environ.get("FLOWCTL_TEST_KILLS", "100"))


class World:
    """A broker and a registry, each of which may be stopped for a while."""

    def __init__(self, broker: Broker, registry: Registry) -> None:
        self.broker, self.registry = broker, registry
        self._running = {"broker": ExitStack(), "registry": ExitStack()}

    def start(self, name: str) -> None:
        server = self.broker if name == "broker" else self.registry
        self._running[name].enter_context(server.started())

    def stop(self, name: str) -> None:
        self._running[name].close()


@contextmanager
def world() -> Iterator[World]:
    with kafka.broker() as broker, schemas.registry() as registry:
        made = World(broker, registry)
        try:
            for name in ("broker", "registry"):
                made.start(name)
            yield made
        finally:
            for name in ("registry", "broker"):
                made.stop(name)


def query(target: TargetPlace, text: str) -> list[tuple[Any, ...]]:
    """The rows of ``text``, a query of the table `t`."""
    return sorted(target.fetch(text.replace("FROM t", "FROM {table}")))


def must_have_each_message_once(target: TargetPlace, sent: list[int]) -> None:
    """``sent`` are the numbers of messages of the partitions."""
    good = [n - len(range(POISON, n, 100)) for n in sent]
    rows = 'SELECT "_partition", count(*), count(DISTINCT "_offset"), min("_offset"), max("_offset") FROM t GROUP BY 1'
    last = [max(at for at in range(n) if at % 100 != POISON) for n in sent]
    assert query(target, rows) == [(at, count, count, 0, last[at]) for at, count in enumerate(good)]
    name = f"CASE WHEN id >= {VERSIONS[1]} THEN 'n' || CAST(id % 1000 AS VARCHAR) END"
    price = f"CASE WHEN id >= {VERSIONS[2]} THEN id % 30000 ELSE 1 END"
    # Rows from before the column `price` have none; later ones of older schemas its default.
    is_wrong = (
        f'(id <> "_offset") OR (id % 100 = {POISON}) OR (name IS DISTINCT FROM {name})'
        f" OR (price IS NULL AND id >= {VERSIONS[2]}) OR (price * 100 <> {price})"
    )
    assert query(target, f"SELECT count(*) FROM t WHERE {is_wrong}") == [(0,)]
    letters = letters_of(target)
    poison = [range(POISON, n, 100) for n in sent]
    errors = {error: [sum(error_of(at) == error for at in numbers) for numbers in poison] for error in ERRORS}
    found = query(
        letters,
        'SELECT "_partition", "_error", count(*), count(DISTINCT "_offset"),'
        f' sum(CASE WHEN "_offset" % 100 = {POISON} THEN 0 ELSE 1 END) FROM t GROUP BY 1, 2',
    )
    wanted = [(at, error, n, n, 0) for error, counts in errors.items() for at, n in enumerate(counts) if n]
    assert sorted((*row[:4], int(row[4])) for row in found) == sorted(wanted)


def expire_what_was_read(flow: Flow, address: str, topic: str) -> None:
    """As a short retention does, up to the recorded position."""
    shown = flow.run("state", "show", "flow.yaml", "orders", "--format", "json")
    if shown.code == 0 and (position := shown.json()["table"]["position"]):
        for partition, offset in position["offsets"].items():
            kafka.expire(address, topic, int(partition), int(offset))


@pytest.mark.full
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", ["delta", "postgres"])
def test_under_load_each_message_is_a_row_or_a_letter_once(
    kind: Kind, tmp_path: Path, databases: Databases, topic: str
) -> None:
    flow, target = Flow(tmp_path, ENV), place(kind, tmp_path, databases)
    chance, events = random.Random(kind), ["broker", "registry", "partition", "broker", "registry"]
    with world() as made:
        address, url = made.broker.address, made.registry.url
        kafka.create_topic(address, topic, 2)
        flow.write(
            f"""version: 1
flow: bus
state: state
spark: {{url: sail}}
connections:
  bus: {{type: kafka, brokers: "{address}", registry: {{url: "{url}"}}}}
  out: {target.connection}
tables:
  orders:
    from: "bus:{topic}"
    to: "out:{target.object}"
    mode: append
    format: {{type: avro}}
    dead_letters: {{}}
    every: 2s
"""
        )
        command = [sys.executable, "-m", "tests.e2e.kafka.load", address, url, topic, str(RATE), "7000"]
        with (tmp_path / "load.log").open("w") as log:
            load = subprocess.Popen(command, stdout=log, stderr=log)
        begun = time.monotonic()
        lives = [*POINTS, *[None] * KILLS]
        chance.shuffle(lives)
        due = [at * len(lives) // (len(events) + 1) for at in range(1, len(events) + 1)]
        try:
            for at, point in enumerate(lives):
                event = ""
                if point is None and due and at >= due[0]:
                    due.pop(0)
                    event = events.pop(0)
                print(f"{time.monotonic() - begun:.0f} s, life {at}: {point or 'at random'} {event}", flush=True)
                if event == "partition":
                    kafka.add_partitions(address, topic, 3)
                if point is not None:
                    flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=None)
                    continue
                follow = (tmp_path / "follow.log").open("a")
                with follow:
                    process = flow.start("apply", "flow.yaml", "--follow", output=follow)
                    time.sleep(min(20, chance.expovariate(1 / 6)))
                    if event in ("broker", "registry"):
                        made.stop(event)
                        time.sleep(chance.uniform(2, 6))
                        made.start(event)
                        time.sleep(chance.uniform(2, 6))
                    process.kill()
                    process.wait()
                if at % 10 == 0:
                    expire_what_was_read(flow, address, topic)
        finally:
            load.send_signal(signal.SIGTERM)
            assert load.wait(timeout=600) == 0
        sent = json.loads((tmp_path / "load.log").read_text().splitlines()[-1])
        print(f"{sum(sent):,} messages in {len(sent)} partitions, {len(lives)} kills")
        begun = time.monotonic()
        flow.apply()
        flow.apply()
        print(f"the rest took {time.monotonic() - begun:.0f} s")
        assert len(sent) == 3
        must_have_each_message_once(target, sent)
        assert flow.actions() == {"orders": "none"}
