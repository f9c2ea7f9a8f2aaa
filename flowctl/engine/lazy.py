"""The only place that starts Spark during a run, once a table is certain to need it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Protocol

from flowctl.engine.base import Engine
from flowctl.engine.cost import is_interpreted
from flowctl.engine.processes import kill_all
from flowctl.errors import EngineFailed, TableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class RunEngine(Protocol):
    """An engine as the tables of a run use it."""

    def begin(self) -> None: ...

    def session(self, table_id: str) -> SparkSession: ...

    def renew(self, table_ids: Iterable[str]) -> None: ...

    def lost(self, text: str) -> EngineFailed | TableError | None: ...

    def interrupt(self) -> None: ...

    def abandon(self) -> None: ...


class LazyEngine:
    """A context manager that ends Spark if it was started. ``loads`` maps table ids to loads. Thread-safe."""

    def __init__(self, start: Callable[[ExitStack], Engine], loads: Mapping[str, int | None]) -> None:
        self._start = start
        self._loads = loads
        self._stack = ExitStack()
        self._started: Future[Engine] | None = None
        self._is_abandoned = False
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Starts Spark in a thread; call it when a table is certain to need it. Errors are raised to the tables that
        request a session."""
        with self._lock:
            if self._started is None:
                self._started = Future()
                threading.Thread(target=self._fulfil, args=(self._started,), name="Spark's start").start()

    def session(self, table_id: str) -> SparkSession:
        self.begin()
        assert self._started is not None
        engine = self._started.result()
        return engine.session_for(table_id, interpreted=is_interpreted(self._loads.get(table_id)))

    def renew(self, table_ids: Iterable[str]) -> None:
        """As :meth:`flowctl.engine.base.Engine.renew`."""
        if engine := self._running():
            engine.renew(table_ids)

    def is_swollen(self) -> bool:
        engine = self._running()
        return engine is not None and engine.is_swollen()

    def lost(self, text: str) -> EngineFailed | TableError | None:
        """Why the engine has ended; None if it is running or was never started. Called after an error with this
        ``text``."""
        if self._is_abandoned:
            return TableError("stopped: Spark did not end what it was doing", hint="Run again to finish it")
        engine = self._running()
        return engine.lost(text) if engine else None

    def interrupt(self) -> None:
        """Asks Spark to cancel its work; does nothing if it has not started yet."""
        if engine := self._running():
            engine.interrupt_all()

    def abandon(self) -> None:
        """Stops waiting for Spark: threads that wait for it get an error."""
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
        except BaseException as error:  # noqa: BLE001 - the tables report it
            started.set_exception(error)

    def __enter__(self) -> LazyEngine:
        return self

    def __exit__(self, *_: object) -> None:
        """Waits for a start in progress, because what it starts must be ended too."""
        if self._started is not None:
            self._started.exception()
        self._stack.close()


class RestartedEngine:
    """An engine for a process that runs for weeks: after it has ended, or failed to start, or grown too large, the next
    use starts another. A context manager as :class:`LazyEngine`. Thread-safe. A table is in use from :meth:`session`
    until :meth:`renew`."""

    def __init__(self, make: Callable[[], LazyEngine]) -> None:
        self._make = make
        self._engine = make()
        self._used: set[str] = set()
        self._lock = threading.Lock()

    def begin(self) -> None:
        self._engine.begin()

    def session(self, table_id: str) -> SparkSession:
        with self._lock:
            self._used.add(table_id)
            engine = self._engine
        try:
            return engine.session(table_id)
        except Exception:
            self._replace(engine)
            raise

    def renew(self, table_ids: Iterable[str]) -> None:
        ids, engine = list(table_ids), self._engine
        engine.renew(ids)
        with self._lock:
            self._used.difference_update(ids)
        if engine.is_swollen():
            self._replace(engine, only_unused=True)

    def lost(self, text: str) -> EngineFailed | TableError | None:
        engine = self._engine
        why = engine.lost(text)
        if isinstance(why, EngineFailed):
            self._replace(engine)
        return why

    def interrupt(self) -> None:
        self._engine.interrupt()

    def abandon(self) -> None:
        self._engine.abandon()

    def _replace(self, ended: LazyEngine, *, only_unused: bool = False) -> None:
        with self._lock:
            if self._engine is not ended or (only_unused and self._used):
                return  # another thread has seen it too, or a table is at work
            self._engine = self._make()
        with suppress(Exception):  # what has ended may not close cleanly
            ended.__exit__()

    def __enter__(self) -> RestartedEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.__exit__()
