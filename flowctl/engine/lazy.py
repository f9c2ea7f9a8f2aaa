"""Spark, started once it is sure that a table needs it, and by nobody else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TYPE_CHECKING

from flowctl.engine.base import Engine
from flowctl.engine.cost import is_interpreted
from flowctl.engine.processes import kill_all
from flowctl.errors import EngineFailed, TableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LazyEngine:
    """A context manager that ends Spark, if it was started. ``loads`` are those of the tables. Thread-safe."""

    def __init__(self, start: Callable[[ExitStack], Engine], loads: Mapping[str, int | None]) -> None:
        self._start = start
        self._loads = loads
        self._stack = ExitStack()
        self._started: Future[Engine] | None = None
        self._is_abandoned = False
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Starts Spark in a thread: the caller knows that a table will need it. What goes wrong is raised to the tables
        that ask for a session."""
        with self._lock:
            if self._started is None:
                self._started = Future()
                threading.Thread(target=self._fulfil, args=(self._started,), name="Spark's start").start()

    def session(self, table_id: str) -> SparkSession:
        self.begin()
        assert self._started is not None
        engine = self._started.result()
        return engine.session_for(table_id, interpreted=is_interpreted(self._loads.get(table_id)))

    def lost(self, text: str) -> EngineFailed | TableError | None:
        """The engine's end, asked after an error with this ``text``; None while it lives, or was never there."""
        if self._is_abandoned:
            return TableError("stopped: Spark did not end what it was doing", hint="Run again to finish it")
        engine = self._running()
        return engine.lost(text) if engine else None

    def interrupt(self) -> None:
        """Asks Spark to end what it is doing; nothing when it is not there yet."""
        if engine := self._running():
            engine.interrupt_all()

    def abandon(self) -> None:
        """Spark is not waited for any longer: whoever waits for it hears an error."""
        self._is_abandoned = True
        kill_all()
        if engine := self._running():
            engine.abandon()

    def _running(self) -> Engine | None:
        started = self._started
        return started.result() if started and started.done() and not started.exception() else None

    def _fulfil(self, started: Future[Engine]) -> None:
        try:
            started.set_result(self._start(self._stack))
        except BaseException as error:  # noqa: BLE001 - it is the tables' to report
            started.set_exception(error)

    def __enter__(self) -> LazyEngine:
        return self

    def __exit__(self, *_: object) -> None:
        """Waits for a start under way: what it has started by then must be ended too."""
        if self._started is not None:
            self._started.exception()
        self._stack.close()
