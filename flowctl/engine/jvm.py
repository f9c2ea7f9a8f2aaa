"""A child JVM for Spark: starts it, connects to it, and ends it with its context.

pyspark's own launcher is not used: it can start the JVM only after pyspark is imported, polls for its response only ten
times a second, and leaves no handle to end the JVM when it is interrupted. Otherwise, this works like that launcher.
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

#: Seconds between two polls for the JVM's response.
_LOOK = 0.02


@contextmanager
def launch(conf: Mapping[str, str], scratch: Path, log: Path | None, stop_seconds: float) -> Iterator[Any]:
    """Starts a JVM with these settings and yields py4j's gateway to it; the JVM ends with the context, if necessary by
    force. Without ``log``, its output goes to this process's standard error. ``scratch`` is this process's own
    folder."""
    answer = scratch / "gateway"
    with output(log) as out, child(_start(conf, answer, out), stop_seconds) as process:
        gateway = _gateway(process, answer, log)
        try:
            with watch(process, lambda: gateway.jvm.java.lang.System.nanoTime()):
                yield gateway
        finally:
            _forget(gateway)


def tail(file: Path | None, lines: int) -> str:
    """The last lines of a log; empty if there is none."""
    if file is None or not file.is_file():
        return ""
    return "\n".join(file.read_text(errors="replace").splitlines()[-lines:])


def _start(conf: Mapping[str, str], answer: Path, out: int) -> subprocess.Popen[bytes]:
    """Starts the JVM in its own process session, so that it receives neither Ctrl-C nor the group's SIGTERM. It ends
    when the pipe to its standard input closes, so also if this process is killed."""
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
    # Import while the JVM starts: the pyspark modules that the first table needs take as long.
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
    """Parses the file that Spark's gateway writes; the file appears atomically, so it is complete."""
    port, length = struct.unpack_from(">ii", answer)
    return port, answer[8 : 8 + length].decode()


def _forget(gateway: Any) -> None:
    """Removes pyspark's global reference to the gateway, so that the next engine of this process gets a new JVM with
    its own settings."""
    from pyspark import SparkContext

    with suppress(Exception):  # a JVM that died cannot be shut down
        gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None


@contextmanager
def output(log: Path | None) -> Iterator[int]:
    """The file descriptor for an engine process's output: the log, or a pipe to this process's standard error, which
    redacts secrets."""
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
    """The reason for a failure, from a log that may end in a page of usage help."""
    lines = [
        line.strip() for line in tail(file, 200).splitlines() if re.search(r"\b(Error|ERROR|\w*Exception)\b", line)
    ]
    return " | ".join(lines[:3]) or tail(file, 5)
