"""Spark starts once, beside its caller, and is ended with the run; whoever asks for a session hears what went wrong."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

import pytest

from flowctl.engine.lazy import LazyEngine
from flowctl.errors import EngineFailed


class FakeEngine:
    """In place of Spark; the real one is in ``test_session.py`` and behind every run of the other tests."""

    def __init__(self) -> None:
        self.may_start = threading.Event()
        self.starts = 0
        self.ended = False
        self.interrupted = False
        self.failure: Exception | None = None

    def start(self, stack: ExitStack) -> Any:
        self.starts += 1
        assert self.may_start.wait(10)
        if self.failure is not None:
            raise self.failure
        stack.callback(self._end)
        return self

    def session_for(self, table_id: str, *, interpreted: bool) -> Any:
        assert not self.ended
        return table_id, interpreted

    def interrupt_all(self) -> None:
        self.interrupted = True

    def _end(self) -> None:
        self.ended = True


def test_nobody_asks_and_nothing_starts() -> None:
    fake = FakeEngine()
    with LazyEngine(fake.start, {}) as engine:
        engine.interrupt()
    assert (fake.starts, fake.interrupted) == (0, False)


def test_it_starts_beside_its_caller_and_once() -> None:
    fake = FakeEngine()
    with LazyEngine(fake.start, {"small": 1, "large": 10**9}) as engine:
        engine.begin()
        engine.begin()
        engine.interrupt()
        assert not fake.interrupted
        fake.may_start.set()
        assert engine.session("small") == ("small", True)
        assert engine.session("large") == ("large", False)
        engine.interrupt()
        assert fake.interrupted
    assert (fake.starts, fake.ended) == (1, True)


def test_every_table_hears_why_it_did_not_start() -> None:
    fake = FakeEngine()
    fake.failure = EngineFailed("no Java")
    fake.may_start.set()
    with LazyEngine(fake.start, {}) as engine:
        for table in ("one", "two"):
            with pytest.raises(EngineFailed, match="no Java"):
                engine.session(table)
        engine.interrupt()
    assert (fake.starts, fake.ended) == (1, False)


def test_a_run_that_ends_before_spark_has_started_ends_it_all_the_same() -> None:
    fake = FakeEngine()
    later = threading.Timer(0.2, fake.may_start.set)
    with LazyEngine(fake.start, {}) as engine:
        engine.begin()
        later.start()
    assert fake.ended
