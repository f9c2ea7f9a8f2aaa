"""Starting a server, waiting until it answers, ending it; servers end with the test process, even a killed one."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

HOST = "127.0.0.1"

#: Of setpriv, which also sets it after the user: the kernel forgets it when a process changes that.
_WITH_US = ["--pdeathsig", "KILL"]


class NotInstalled(Exception):
    """What a server needs is not on this machine; says what installs it."""


class ServerFailed(Exception):
    """The server ended or did not answer in time; carries the end of its log."""


@contextmanager
def running(
    command: Sequence[str],
    *,
    log: Path,
    answers: Callable[[], bool],
    seconds: float = 60,
    env: Mapping[str, str] | None = None,
    user: str | None = None,
    stop_seconds: float = 15,
) -> Iterator[subprocess.Popen[bytes]]:
    """The process, once ``answers`` is true. ``env`` is added to ours; ``user`` needs root. It ends with the
    thread that starts it."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            [*(as_user(user) or _ends_with_us()), *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, **(env or {})},
            cwd=log.parent,
            start_new_session=True,
        )
    try:
        _wait(process, answers, seconds, log, command[0])
        yield process
    finally:
        process.terminate()
        try:
            process.wait(stop_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def importing_tests() -> dict[str, str]:
    """What is added to the environment of a process in any folder, so that it can import this repository's modules."""
    root = str(Path(__file__).parents[2])
    return {"PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def children_of(pid: int, name: str) -> list[int]:
    """The processes called ``name`` that this one started."""
    found = (folder for folder in Path("/proc").glob("[0-9]*") if _stat(folder)[:2] == (name, pid))
    return [int(folder.name) for folder in found]


def _stat(process: Path) -> tuple[str, int]:
    """Its name and its parent."""
    try:
        before, _, after = (process / "stat").read_text().rpartition(")")
    except OSError:  # it has ended meanwhile
        return "", 0
    return before.partition("(")[2], int(after.split()[1])


def as_user(user: str | None) -> list[str]:
    """What a command begins with to run as this user; needs root. Not by ``subprocess``, which then forks as a whole,
    fork handlers of libraries included: gRPC's crash such a child now and then."""
    return ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", *_WITH_US, "--"] if user else []


def _ends_with_us() -> list[str]:
    """KILL, because TERM lets some servers wait for their clients, which may outlive us too."""
    return ["setpriv", *_WITH_US, "--"] if shutil.which("setpriv") else []


def _wait(process: subprocess.Popen[bytes], answers: Callable[[], bool], seconds: float, log: Path, name: str) -> None:
    deadline = time.monotonic() + seconds
    while not answers():
        if process.poll() is not None or time.monotonic() > deadline:
            why = f"did not answer within {seconds:.0f} s" if process.poll() is None else "ended"
            raise ServerFailed(f"{name} {why}:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.05)
