"""A signal ends a run in any case: the grace, the engine's end, the process's own."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from flowctl.engine import processes, timeouts
from flowctl.errors import ExitCode

#: A run that waits for what never comes, with a child that is suspended; it says when it is ready for a signal.
STUCK = """
import os, signal, subprocess, sys, threading, time
from flowctl.run import signals
from flowctl.engine import processes, timeouts

timeouts.GRACE, timeouts.ABANDON, timeouts.LAST = 0.2, 1.5, 3.0
say = lambda text: print(text, flush=True)
sleeper = subprocess.Popen(["sleep", "600"], stdin=subprocess.PIPE)
os.kill(sleeper.pid, signal.SIGSTOP)
interruption = signals.Interruption()
hang = threading.Event().wait
interruption.of(lambda: (say("interrupted"), hang()), lambda: (say("given up"), hang()))
with processes.child(sleeper, 600), signals.graceful(interruption, say):
    say(sleeper.pid)
    threading.Event().wait()
"""


def test_a_run_that_waits_for_ever_is_interrupted_given_up_and_ended_with_its_children() -> None:
    process = subprocess.Popen([sys.executable, "-c", STUCK], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    sleeper = int(process.stdout.readline())
    process.terminate()
    told, _ = process.communicate(timeout=60)
    assert process.returncode == ExitCode.TABLE
    assert [line.split(":")[0].split(" after")[0] for line in told.splitlines()] == [
        "SIGTERM",
        "interrupted",
        "given up",
        "some work has not ended",
    ]
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(sleeper)], stdout=subprocess.PIPE).stdout
    assert state[:1] in (b"", b"Z"), "it has ended; a zombie if nobody waits for it"


@pytest.fixture
def sleeper(monkeypatch: pytest.MonkeyPatch) -> subprocess.Popen[bytes]:
    monkeypatch.setattr(timeouts, "ENGINE_PING", 0.01)
    monkeypatch.setattr(timeouts, "ENGINE_SILENCE", 0.2)
    return subprocess.Popen(["sleep", "600"], stdin=subprocess.PIPE)


def test_an_engine_that_does_not_answer_is_ended(sleeper: subprocess.Popen[bytes]) -> None:
    for_ever = threading.Event()
    with processes.child(sleeper, 60), processes.watch(sleeper, for_ever.wait):
        assert sleeper.wait(60) == -9
    for_ever.set()
    assert processes.was_silent(sleeper)


def test_an_engine_that_answers_or_refuses_is_left_alone(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "ENGINE_SILENCE", 20)  # a busy machine is silent for a while, too
    asked = threading.Semaphore(0)

    def ping() -> None:
        asked.release()
        raise ConnectionRefusedError

    with processes.child(sleeper, 0), processes.watch(sleeper, ping):
        for _ in range(30):
            assert asked.acquire(timeout=60)
        assert sleeper.poll() is None
    assert not processes.was_silent(sleeper) and sleeper.returncode == -9
