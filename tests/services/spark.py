"""Spark servers from the pyspark wheel: flowctl's own Spark Connect server, a standalone cluster."""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.services.processes import HOST, free_port, listens, running

_WORKERS = 2
_DAEMON = {
    "SPARK_NO_DAEMONIZE": "1",
    "SPARK_LOCAL_IP": HOST,
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "PYSPARK_PYTHON": sys.executable,
}


@contextmanager
def connect_server(master: str = "local[2]") -> Iterator[str]:
    """The ``sc://`` URL of the server that `flowctl spark-server` starts."""
    port = free_port()
    conf = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "2"}
    settings = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    command = [sys.executable, "-m", "flowctl", "spark-server", "--port", str(port), "--url", master, "--verbose"]
    with tempfile.TemporaryDirectory(prefix="flowctl-connect-", ignore_cleanup_errors=True) as folder:
        log = Path(folder, "connect.log")
        with running(
            [*command, *settings], log=log, answers=lambda: "Spark Connect at" in log.read_text(), seconds=120
        ):
            yield f"sc://{HOST}:{port}"


@contextmanager
def cluster(memory: str = "1g") -> Iterator[str]:
    """A ``spark://`` URL with two workers of one core each."""
    port, ui = free_port(), free_port()
    url = f"spark://{HOST}:{port}"
    master = ["org.apache.spark.deploy.master.Master", "-h", HOST, "-p", str(port), "--webui-port", str(ui)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flowctl-cluster-")))
        program = _program("spark-class")
        log = folder / "master.log"
        stack.enter_context(running([program, *master], log=log, answers=lambda: listens(ui), env=_DAEMON))
        for number in range(1, _WORKERS + 1):
            worker = ["org.apache.spark.deploy.worker.Worker", "-h", HOST, "-c", "1", "-m", memory]
            worker += ["--webui-port", "0", "-d", str(folder / f"worker-{number}"), url]
            stack.enter_context(
                running(
                    [program, *worker],
                    log=folder / f"worker-{number}.log",
                    answers=lambda expected=number: _workers(ui) >= expected,  # type: ignore[misc]
                    env=_DAEMON,
                )
            )
        yield url


def _workers(ui: int) -> int:
    # No proxy between us and ourselves, whatever the environment says.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(f"http://{HOST}:{ui}/json/", timeout=5) as response:
        return int(json.load(response)["aliveworkers"])


def _program(name: str) -> str:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    return str(Path(spec.origin).parent / "bin" / name)
