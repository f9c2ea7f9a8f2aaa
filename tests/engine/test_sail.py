"""Sail's process: it outlives nobody, and nobody's Ctrl-C ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flowctl.connectors.sql.timeouts import STATEMENT
from flowctl.engine import sail
from flowctl.errors import EngineFailed

OPEN = """
import os, signal, sys, time
from flowctl.errors import EngineFailed
from flowctl.engine.start import open_engine
from flowctl.spec.spec import SparkSettings
signal.signal(signal.SIGINT, lambda *_: None)
with open_engine(SparkSettings("sail"), [], {}, "small") as engine:
    print(engine.process.pid, flush=True)
    sys.stdin.readline()
    print(engine.spark.range(3).count(), flush=True)
    engine.process.kill()
    engine.process.wait()
    try:
        engine.session_for("orders")
    except EngineFailed as error:
        print(error.message, flush=True)
"""

#: Two engines, the first of which ends; its session is collected while the second one's threads are at work.
COLLECT = """
import gc
from flowctl.engine.start import open_engine
from flowctl.spec.spec import SparkSettings
from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator as Results
with open_engine(SparkSettings("sail"), [], {}, "small") as second:
    with open_engine(SparkSettings("sail"), [], {}, "small") as first:
        first.spark.range(3).count()
    second.spark.range(3).count()
    threads = Results._release_thread_pool_instance
    assert threads is not None
    with threads._shutdown_lock:
        del first
        gc.collect()
    assert Results._release_thread_pool_instance is threads
    print(second.spark.range(3).count())
"""


#: How long Sail keeps a session that asks nothing: what is given, else flowctl's bound.
IDLE = """
import os, sys, time
from pathlib import Path
from pyspark.errors import PySparkException
from pyspark.sql.connect.session import SparkSession
from flowctl.engine import sail
from flowctl.errors import EngineFailed
folder = Path(sys.argv[1])
for given in ({"SAIL_SPARK__SESSION_TIMEOUT_SECS": "1"}, {}):
    with sail.server(given, 1 << 28, folder, folder / "log") as (url, process):
        session = SparkSession.builder.remote(url).create()
        session.range(3).count()
        time.sleep(3)
        try:
            print(session.range(3).count())
        except PySparkException as error:
            print("is not running" in str(error))
        variables = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\\0")
        print(*(one.decode() for one in variables if one.startswith(b"SAIL_SPARK__")), flush=True)
os._exit(0)  # pyspark would look for the servers for ten minutes
"""

#: For the server: a thread of Sail's that begins to import pyspark waits until the main thread does, too.
IMPORT_AT_ONCE = """
import sys, threading
begun = threading.Event()
def wait(event, given):
    if event != "import":
        return
    if threading.current_thread() is threading.main_thread():
        if given[0] == "pyspark.sql.types":
            begun.set()
    elif given[0] == "pyspark.conf":
        begun.wait(20)
sys.addaudithook(wait)
"""

#: The first session, as soon as the server's port is known.
FIRST = """
import os, sys
from pathlib import Path
from pyspark.errors import PySparkException
from pyspark.sql.connect.session import SparkSession
from flowctl.engine import sail
folder = Path(sys.argv[1])
path = os.pathsep.join([sys.argv[1], os.environ.get("PYTHONPATH", "")])
with sail.server({"PYTHONPATH": path}, 1 << 28, folder, folder / "log") as (url, _):
    session = SparkSession.builder.remote(url).create()
    try:
        print(session.createDataFrame([(1,)], "id INT").count(), flush=True)
    except PySparkException as error:
        print(error, flush=True)
os._exit(0)  # pyspark would look for the server for ten minutes
"""


def opened() -> tuple[subprocess.Popen[str], int]:
    """A process that has opened Sail, in a group of its own, and Sail's process id."""
    process = subprocess.Popen(
        [sys.executable, "-c", OPEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


@pytest.mark.server
def test_ctrl_c_does_not_reach_it_and_its_death_is_told() -> None:
    process, _ = opened()
    os.killpg(process.pid, signal.SIGINT)
    told, _ = process.communicate("go on\n", timeout=60)
    assert told.splitlines() == ["3", "Spark has ended by itself (killed by signal 9)"]
    assert process.returncode == 0


@pytest.mark.server
def test_it_ends_with_a_run_that_is_killed() -> None:
    process, server = opened()
    assert Path(f"/proc/{server}").exists()
    process.kill()
    process.communicate()
    until = time.monotonic() + 30
    while Path(f"/proc/{server}/cmdline").exists() and Path(f"/proc/{server}/cmdline").read_bytes():
        assert time.monotonic() < until, "Sail's process is still there"
        time.sleep(0.05)


@pytest.mark.server
def test_a_session_that_has_ended_leaves_the_threads_of_others_alone() -> None:
    told = subprocess.run([sys.executable, "-c", COLLECT], capture_output=True, text=True, timeout=60)
    assert (told.stdout, told.returncode) == ("3\n", 0), told.stderr


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sail.extras, "is_installed", lambda name: False)
    with pytest.raises(EngineFailed) as missing:
        sail.require()
    assert "flowctl[sail]" in missing.value.hint


@pytest.mark.full
@pytest.mark.server
def test_a_session_that_waits_for_long_is_kept(tmp_path: Path) -> None:
    """Sail's own default is 15 minutes: landing a large source takes longer, and nothing is asked meanwhile."""
    done = subprocess.run([sys.executable, "-c", IDLE, str(tmp_path)], capture_output=True, text=True, check=True)
    lost, short, kept, long = done.stdout.splitlines()
    assert (lost, short, kept) == ("True", "SAIL_SPARK__SESSION_TIMEOUT_SECS=1", "3")
    name, _, seconds = long.partition("=")
    assert name == "SAIL_SPARK__SESSION_TIMEOUT_SECS"
    assert int(seconds) > STATEMENT


@pytest.mark.server
def test_the_first_session_begins_once_pyspark_is_imported(tmp_path: Path) -> None:
    """Two threads that import parts of pyspark at once find some half initialized. Sail then takes pyspark for 3.5, and
    refuses settings that 4.1 reads: `configuration not found`."""
    (tmp_path / "sitecustomize.py").write_text(IMPORT_AT_ONCE)
    done = subprocess.run([sys.executable, "-c", FIRST, str(tmp_path)], capture_output=True, text=True)
    assert done.stdout == "1\n", done.stderr
