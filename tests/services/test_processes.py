"""Servers of tests end with the process that started them, however it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from tests.services.mariadb import PASSWORD, USER
from tests.services.processes import HOST, listens

#: What starts each server, as ``url``; and a client of it that stays connected.
_KINDS: dict[str, tuple[str, Callable[[int, str], AbstractContextManager[Any]]]] = {
    "postgres": ("postgres.server() as url", lambda port, url: closing(psycopg.connect(url))),
    "mariadb": (
        "mariadb.server() as made, nullcontext(made.url) as url",
        lambda port, url: closing(pymysql.connect(host=HOST, port=port, user=USER, password=PASSWORD)),
    ),
    "moto": ("s3.moto() as made, nullcontext(made.endpoint) as url", lambda port, url: nullcontext()),
}


@pytest.mark.server
@pytest.mark.parametrize("kind", _KINDS)
def test_a_killed_process_leaves_no_server(kind: str) -> None:
    """Even while a client that outlives the process is connected."""
    opened, connect = _KINDS[kind]
    code = f"""
import time
from contextlib import nullcontext
from tests.services import mariadb, postgres, s3
with {opened}:
    print(url, flush=True)
    time.sleep(600)
"""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o1777)  # servers may have users of their own
        command, env = [sys.executable, "-c", code], {**os.environ, "TMPDIR": folder}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            port = int(url.rpartition(":")[2].partition("/")[0])
            with connect(port, url):
                assert listens(port)
                process.kill()
                assert eventually_closed(port)


def eventually_closed(port: int) -> bool:
    deadline = time.monotonic() + 30
    while listens(port) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not listens(port)
