"""A JVM of our own for Spark: started, spoken to, and ended with its context.

pyspark's own launcher is not used: it can start the JVM only after pyspark is imported, looks for its answer ten times
a second, and leaves nothing to end when it is interrupted. What else it does is done here in its way.
"""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from flowctl.engine import jars, timeouts
from flowctl.engine.environment import change_environment
from flowctl.engine.processes import child, watch
from flowctl.errors import EngineFailed

#: Seconds between two looks for the JVM's answer.
_LOOK = 0.02


@contextmanager
def launch(conf: Mapping[str, str], scratch: Path, log: Path | None, stop_seconds: float) -> Iterator[Any]:
    """A JVM with these settings, as py4j's gateway to it; ended, by force if it must be, with the context. Without
    ``log`` its output goes to our standard error. ``scratch`` is a folder of this process's own."""
    answer = scratch / "gateway"
    with output(log) as out, child(_start(conf, answer, out), stop_seconds) as process:
        gateway = _gateway(process, answer, log)
        try:
            with watch(process, lambda: gateway.jvm.java.lang.System.nanoTime()):
                yield gateway
        finally:
            _forget(gateway)


def tail(file: Path | None, lines: int) -> str:
    """The last lines of a log; empty where there is none."""
    if file is None or not file.is_file():
        return ""
    return "\n".join(file.read_text(errors="replace").splitlines()[-lines:])


def _start(conf: Mapping[str, str], answer: Path, out: int) -> subprocess.Popen[bytes]:
    """In a session of its own: neither Ctrl-C nor the group's SIGTERM reaches it. It ends when the pipe to its standard
    input closes, so also when this process is killed."""
    home = Path(os.environ.get("SPARK_HOME") or jars.spark_jars().parent)
    settings = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    return subprocess.Popen(
        [str(home / "bin" / "spark-submit"), *settings, "pyspark-shell"],
        stdin=subprocess.PIPE,
        stdout=out,
        stderr=out,
        start_new_session=True,
        env={**os.environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer)},
    )


def _gateway(process: subprocess.Popen[bytes], answer: Path, log: Path | None) -> Any:
    # While the JVM starts: what the first table needs of pyspark takes as long to import.
    import pyspark.sql.functions  # noqa: F401
    from pyspark.java_gateway import launch_gateway

    until = time.monotonic() + timeouts.ENGINE_START
    while not answer.is_file():
        if time.monotonic() > until:
            raise EngineFailed(
                f"Spark's JVM did not start within {timeouts.ENGINE_START:.0f} s",
                hint="Check this machine's load and memory, and run again",
            )
        if process.poll() is not None:
            raise EngineFailed(
                f"Spark's JVM did not start: {_cause(log) or f'exit code {process.returncode}'}",
                hint="Run again with --verbose to see all of it",
            )
        time.sleep(_LOOK)
    port, secret = _port_and_secret(answer.read_bytes())
    with change_environment({"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}):
        gateway = launch_gateway()
    gateway.proc = process
    return gateway


def _port_and_secret(answer: bytes) -> tuple[int, str]:
    """As Spark's gateway writes them: the file appears complete."""
    port, length = struct.unpack_from(">ii", answer)
    return port, answer[8 : 8 + length].decode()


def _forget(gateway: Any) -> None:
    """pyspark keeps the gateway for good; the next engine of this process gets a JVM with its own settings."""
    from pyspark import SparkContext

    with suppress(Exception):  # a JVM that died has nobody to shut down
        gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None


@contextmanager
def output(log: Path | None) -> Iterator[int]:
    """Where an engine's process writes to: the log, or a pipe to our own standard error and its redactor."""
    if log is not None:
        with log.open("wb") as file:
            yield file.fileno()
        return
    reads, writes = os.pipe()
    threading.Thread(target=_pass_on, args=(reads,), daemon=True).start()
    try:
        yield writes
    finally:
        os.close(writes)


def _pass_on(reads: int) -> None:
    with open(reads, errors="replace") as lines:
        for line in lines:
            sys.stderr.write(line)


def _cause(file: Path | None) -> str:
    """What went wrong, out of a log that may end in a page of help."""
    lines = [
        line.strip() for line in tail(file, 200).splitlines() if re.search(r"\b(Error|ERROR|\w*Exception)\b", line)
    ]
    return " | ".join(lines[:3]) or tail(file, 5)
