"""`flowctl spark-server`: runs share it through `spark.url`, a password keeps others out, SIGTERM ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flowctl.engine.server import TOKEN_VARIABLE
from flowctl.errors import ExitCode
from tests.e2e.flows import Flow
from tests.e2e.orders import must_be_right, write_flow
from tests.e2e.targets import place
from tests.services.processes import children_of

pytestmark = pytest.mark.server

SMALL = ("--url", "local[2]", "--conf", "spark.driver.memory=1g", "--conf", "spark.sql.shuffle.partitions=2")


@pytest.mark.full
def test_runs_share_it_until_it_is_ended(tmp_path: Path) -> None:
    token = {TOKEN_VARIABLE: "only-for-us-4711"}
    with spark_server(token) as (server, port):
        flow = Flow(tmp_path, token)
        target = place("delta", tmp_path)
        # The name, not the number: to any other address pyspark sends a password only over TLS.
        source = write_flow(flow, "merge", target, f"sc://localhost:{port}")
        flow.apply()
        must_be_right("merge", target, source)
        source.change("merge", 1)
        stranger = flow.apply(env={TOKEN_VARIABLE: ""}, expect=None)
        assert stranger.code == ExitCode.BROKEN
        assert TOKEN_VARIABLE in stranger.err, stranger.err
        flow.apply()
        must_be_right("merge", target, source)
        [jvm] = children_of(server.pid, "java")
        server.send_signal(signal.SIGTERM)
        out, err = server.communicate(timeout=60)
        assert (server.returncode, out, err) == (ExitCode.OK, "", "")
        assert not Path(f"/proc/{jvm}").exists()


@contextmanager
def spark_server(env: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The process and its port, once it says that clients may come."""
    command = [sys.executable, "-m", "flowctl", "spark-server", "--port", "0", *SMALL]
    server = subprocess.Popen(
        command, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line.startswith("Spark Connect at sc://127.0.0.1:"), (line, server.communicate(timeout=60))
        yield server, int(line.split()[3].rpartition(":")[2])
    finally:
        server.kill()
        server.communicate()
