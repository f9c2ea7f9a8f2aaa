"""Sail: a Spark Connect server in a Rust library (`pysail`, from PyPI), in a process of its own. No JVM, no jars.

It does not run inside this process: Sail ends on Ctrl-C, runs Python functions under its process's GIL, and a crash in
its native code would end the run. Like a JVM, the child ends when the pipe to this process closes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from flowctl import extras
from flowctl.engine import timeouts
from flowctl.engine.conf import session_conf, this_machine
from flowctl.engine.connect import ConnectEngine, client
from flowctl.engine.cost import Size
from flowctl.engine.jvm import output, tail
from flowctl.engine.processes import child, watch
from flowctl.engine.scratch import scratch_folder
from flowctl.engine.session import ENGINE_KEY, SAIL
from flowctl.errors import EngineFailed
from flowctl.spec.spec import SparkSettings

_STOP_SECONDS = 5.0


def require() -> None:
    """:class:`EngineFailed` if pysail is not installed; imports nothing."""
    if not extras.is_installed("pysail"):
        raise EngineFailed("spark.url: sail needs pysail, which is not installed", hint=extras.install_hint("pysail"))


@contextmanager
def open_sail(
    settings: SparkSettings, storage_environment: Mapping[str, str], size: Size, *, verbose: bool
) -> Iterator[ConnectEngine]:
    """As :func:`flowctl.engine.start.open_engine`."""
    conf = {**session_conf(settings, size, ()), ENGINE_KEY: SAIL}
    memory = this_machine().memory // 2
    with scratch_folder() as scratch:
        log = None if verbose else scratch / "sail.log"
        with (
            server(storage_environment, memory, scratch, log) as (url, process),
            client(url, conf, process, log) as engine,
        ):
            yield engine


#: The statistics of a Parquet file leave out NaN. Sail 0.7.2 takes a column whose smallest value is its largest for
#: constant, so that -1 and NaN are read as -1 and -1; and it skips row groups and pages with a NaN that a condition
#: wants.
_EXACT = {
    "SAIL_EXECUTION__COLLECT_STATISTICS": "false",
    "SAIL_PARQUET__PRUNING": "false",
    "SAIL_PARQUET__ENABLE_PAGE_INDEX": "false",
}


@contextmanager
def server(
    environment: Mapping[str, str], memory: int, scratch: Path, log: Path | None
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Starts a server; yields its ``sc://`` URL and its process. ``environment`` contains the object store's
    credentials, which the library reads only from variables; ``memory`` is what queries may use, in bytes, before they
    spill to ``scratch``. Without ``log``, its output goes to this process's standard error."""
    require()
    settings = {
        "RUST_LOG": "error" if log is not None else "warn",
        "SAIL_SPARK__SESSION_TIMEOUT_SECS": str(timeouts.ENGINE_IDLE),
        "SAIL_RUNTIME__MEMORY_POOL__TYPE": "fair",
        "SAIL_RUNTIME__MEMORY_POOL__FAIR__MAX_SIZE": str(memory),
        "SAIL_RUNTIME__TEMPORARY_FILES__PATHS": json.dumps([str(scratch)]),
        **os.environ,
        **_EXACT,
        **environment,
    }
    with output(log) as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "flowctl.engine.sail_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=out,
            start_new_session=True,
            env=settings,
        )
        with child(process, _STOP_SECONDS):
            address = f"127.0.0.1:{_port(process, log)}"
            with watch(process, lambda: _answer(address)):
                yield f"sc://{address}", process


def _answer(address: str) -> None:
    """Returns once the server has responded; a suspended one does not, although its kernel accepts connections."""
    import grpc

    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(timeout=2 * timeouts.ENGINE_SILENCE)


def _port(process: subprocess.Popen[bytes], log: Path | None) -> int:
    # Import while Sail starts: the pyspark modules that the first table needs take longer.
    import pyspark.sql.connect.session
    import pyspark.sql.functions  # noqa: F401

    assert process.stdout is not None
    late = threading.Timer(timeouts.ENGINE_START, process.kill)
    late.daemon = True
    late.start()
    port = process.stdout.readline().strip()
    process.stdout.close()
    late.cancel()
    if not port.isdigit():
        why = " | ".join(tail(log, 3).splitlines()) or f"exit code {process.wait()}"
        raise EngineFailed(f"Sail did not start: {why}", hint="Run again with --verbose to see all of it")
    return int(port)
