"""A topic that `apply --follow` reads: how long a message takes until a reader of the target sees it, and how many
messages a second it takes once it is warm. A thousandth of the messages is poison.

The rate is measured with what has gathered while flowctl was stopped (SIGSTOP): it contains neither its start nor the
producer.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any, Literal

from bench.latency import followed, megabytes, resident, visible
from tests.services import kafka, postgres, schemas

Kind = Literal["json", "avro"]
_TOPIC, _POISON = "ticks", 1000
_AVRO = {
    "type": "record",
    "name": "Tick",
    "fields": [{"name": name, "type": kind} for name, kind in (("id", "long"), ("user", "long"), ("url", "string"))],
}
_DECLARED = {"id": "bigint", "user": "bigint", "url": "string"}


@dataclass
class Run:
    """Seconds until messages were visible, bytes in memory each second, and messages per second once it was warm."""

    latencies: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)


class Ticks:
    """Messages with ascending ids, in one partition."""

    def __init__(self, address: str, kind: Kind, schema: int) -> None:
        self.address, self.kind, self.count = address, kind, 0
        self.header = schemas.framed(schema, b"")

    def send(self, made: Any, count: int) -> None:
        for id in range(self.count + 1, self.count + count + 1):
            value = b"poison" if id % _POISON == 7 else self._value(id)
            while True:
                try:
                    made.produce(_TOPIC, value)
                    break
                except BufferError:
                    made.poll(0.1)
        self.count += count

    def _value(self, id: int) -> bytes:
        url = b"https://shop.example/p/%06d" % (id % 10_000)
        if self.kind == "json":
            return b'{"id": %d, "user": %d, "url": "%b"}' % (id, id % 997, url)
        return self.header + schemas.avro_long(id) + schemas.avro_long(id % 997) + schemas.avro_long(len(url)) + url


def measure(kind: Kind, target: str, every: str, rate: int, seconds: float, burst: int) -> Run:
    with (
        kafka.broker() as broker,
        broker.started() as address,
        schemas.registry() as registry,
        registry.started() as url,
        postgres.server() as database,
        tempfile.TemporaryDirectory(prefix="flowctl-topic-") as name,
    ):
        kafka.create_topic(address, _TOPIC)
        schema = schemas.register(url, f"{_TOPIC}-value", json.dumps(_AVRO))
        folder, ticks, run = Path(name), Ticks(address, kind, schema), Run()
        _write_spec(folder, address, url, database, kind, target, every)
        with kafka.producer(address) as made, followed(folder, database) as process:
            ticks.send(made, 10_000)
            made.flush(30)
            seen = visible(target, database, folder)
            _wait(seen, ticks.count)
            time.sleep(5)
            _observe(run, ticks, made, seen, process.pid, rate, seconds)
            for _ in range(2):
                run.rates.append(_burst(ticks, made, seen, process.pid, burst))
        return run


def _write_spec(folder: Path, address: str, url: str, database: str, kind: Kind, target: str, every: str) -> None:
    own = database.replace("etl-secret", "${secret:env:BENCH_PASSWORD}")
    format = {"type": "json", "schema": _DECLARED} if kind == "json" else {"type": "avro"}
    to = {"postgres": "pg:copy.ticks", "delta": "lake:ticks"}[target]
    table = {"from": f"bus:{_TOPIC}", "to": to, "mode": "append", "format": format, "dead_letters": {}, "every": every}
    spec = {
        "version": 1,
        "flow": "topic",
        "state": "state",
        "connections": {
            "bus": {"type": "kafka", "brokers": address, "registry": {"url": url}},
            "pg": {"type": "postgres", "url": own},
            "lake": {"type": "delta", "path": "lake"},
        },
        "spark": {"url": "sail"},
        "tables": {"ticks": table},
    }
    (folder / "flow.yaml").write_text(json.dumps(spec))  # which is YAML


def _wait(seen: Callable[[], int], id: int) -> None:
    until = time.monotonic() + 600
    while seen() < id:
        if time.monotonic() > until:
            raise TimeoutError(f"{seen()} of {id} messages are visible")
        time.sleep(0.02)


def _observe(run: Run, ticks: Ticks, made: Any, seen: Callable[[], int], pid: int, rate: int, seconds: float) -> None:
    sent: list[tuple[int, float]] = []
    lock, done = threading.Lock(), threading.Event()

    def write() -> None:
        began, share = time.monotonic(), rate // 100
        for number in range(int(seconds * 100)):
            time.sleep(max(0.0, began + number / 100 - time.monotonic()))
            ticks.send(made, share)
            made.poll(0)
            with lock:
                sent.append((ticks.count, time.monotonic()))
        done.set()

    def sample() -> None:
        while not done.wait(1):
            run.memory.append(resident(pid))

    threads = [threading.Thread(target=one) for one in (write, sample)]
    for thread in threads:
        thread.start()
    while not done.is_set() or sent:
        there, now = seen(), time.monotonic()
        with lock:
            while sent and sent[0][0] <= there:
                run.latencies.append(now - sent.pop(0)[1])
        time.sleep(0.02)
    for thread in threads:
        thread.join()


def _burst(ticks: Ticks, made: Any, seen: Callable[[], int], pid: int, count: int) -> float:
    processes = [pid, *_below(pid)]
    for one in processes:
        os.kill(one, signal.SIGSTOP)
    try:
        ticks.send(made, count)
        made.flush(60)
    finally:
        for one in processes:
            os.kill(one, signal.SIGCONT)
    began = time.monotonic()
    _wait(seen, ticks.count)
    return count / (time.monotonic() - began)


def _below(pid: int) -> list[int]:
    children = [int(one) for file in Path(f"/proc/{pid}/task").glob("*/children") for one in file.read_text().split()]
    return [*children, *(found for child in children for found in _below(child))]


def table(rate: int, seconds: float, burst: int) -> Iterator[str]:
    """Lines of Markdown, as each run ends."""
    yield f"{rate:,} messages/s for {seconds:.0f} s, 1 in {_POISON:,} poison; then twice {burst:,} at once. On Sail."
    yield ""
    yield "| messages | target | `every` | p50 s | p99 s | most s | memory, first → last third, MB | messages/s, warm |"
    yield "|---|---|---|---:|---:|---:|---|---|"
    combinations: list[tuple[Kind, str, str]] = [
        ("json", "delta", "1s"),
        ("avro", "delta", "1s"),
        ("json", "postgres", "1s"),
        ("json", "delta", "5s"),
    ]
    for kind, target, every in combinations:
        run = measure(kind, target, every, rate, seconds, burst)
        cuts, third = quantiles(run.latencies, n=100), len(run.memory) // 3
        memory = f"{megabytes(run.memory[:third]):.0f} → {megabytes(run.memory[-third:]):.0f}"
        rates = ", ".join(f"{one:,.0f}" for one in run.rates)
        latency = f"{cuts[49]:.2f} | {cuts[98]:.2f} | {max(run.latencies):.2f}"
        yield f"| {kind} | {target} | {every} | {latency} | {memory} | {rates} |"
