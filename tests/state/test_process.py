"""Whether the process that holds a lease has certainly ended."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flowctl.state.process import Process


@pytest.fixture
def child() -> Any:
    """Runs until the test ends, or ends it."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True) as running:
        yield running
        if running.poll() is None:
            running.communicate("\n")


def described(pid: int) -> Process:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return replace(Process.current(), pid=pid, started=fields[19])


def test_a_running_process_is_not_gone_and_one_that_ended_is(child: subprocess.Popen[str]) -> None:
    process = described(child.pid)
    assert not process.is_gone()
    assert replace(process, started="1").is_gone()  # another process got its number
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process.is_gone()  # not reaped yet
    child.wait()
    assert process.is_gone()


def test_a_process_that_only_its_user_may_see_is_not_gone(
    child: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `hidepid`: `/proc` has no folder of it, and it takes no signal of this user."""
    process, read = described(child.pid), Path.read_text

    def hidden(path: Path, *arguments: Any, **options: Any) -> str:
        if str(path) == f"/proc/{child.pid}/stat":
            raise FileNotFoundError(path)
        return read(path, *arguments, **options)

    def refuse(pid: int, signal: int) -> None:
        assert (pid, signal) == (child.pid, 0)
        raise PermissionError

    monkeypatch.setattr(Path, "read_text", hidden)
    assert not process.is_gone()
    monkeypatch.setattr(os, "kill", refuse)
    assert not process.is_gone()
