"""The thread that captures a stream into its landing log while its tables are read and written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from flowctl import crashpoints
from flowctl.connectors.stream import StreamSource
from flowctl.model.position import Position
from flowctl.model.table_info import ObjectName
from flowctl.run import events
from flowctl.run.streaming.retention import Kept
from flowctl.spec.spec import StreamSpec
from flowctl.storage.lander import BatchLimits, Lander
from flowctl.storage.landing import LandedBatch, LandingLog


class Capturing:
    """``check`` raises if the stream's lease is lost. The context ends the capture: what has not landed by then is
    captured again. :attr:`goal` may be moved while it runs (None: it goes on)."""

    def __init__(
        self,
        stream: StreamSpec,
        source: StreamSource,
        log: LandingLog,
        kept: Kept,
        check: Callable[[], None],
        listener: events.Listener,
    ) -> None:
        self.goal: Position | None = None
        self.newest: LandedBatch | None = None
        self._stream = stream
        self._source = source
        self._log = log
        self._kept = kept
        self._check = check
        self._listener = listener
        self._news = threading.Event()
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"capture {stream.name}")
        self._running: Future[None] | None = None

    def start(self, newest: LandedBatch, objects: Sequence[ObjectName], seconds: float | None) -> None:
        """``seconds``: a batch lands at least this often, if there is anything; None: only by size."""
        self.newest = newest
        limits = BatchLimits(self._stream.batch_rows, self._stream.batch_bytes, seconds)
        lander = Lander(self._log, newest, limits, self._check, self._landed, lambda: self._kept.is_full, objects)
        self._running = self._pool.submit(self._capture, newest, objects, lander)

    @property
    def is_done(self) -> bool:
        """Whether nothing more lands: it has reached the goal, or failed."""
        return self._running is not None and self._running.done()

    def wait(self, seconds: float) -> None:
        """Until a batch has landed since the last call, the capture has ended, or the time is over."""
        self._news.wait(seconds)
        self._news.clear()

    def stop(self) -> None:
        self._stopping.set()

    def result(self) -> None:
        """Waits for the end, and raises the error that ended it."""
        if self._running is not None:
            self._running.result()

    def _capture(self, newest: LandedBatch, objects: Sequence[ObjectName], lander: Lander) -> None:
        try:
            self._source.capture(self._stream, objects, newest.upper, lambda: self.goal, lander, self._stopping)
            crashpoints.reached("acknowledged")
        finally:
            self._pool.submit(self._news.set)  # once this has ended

    def _landed(self, batch: LandedBatch) -> None:
        self.newest = batch
        self._kept.landed(batch)
        self._listener(events.BatchLanded(self._stream.name, batch.batch, batch.changes, batch.bytes, str(batch.upper)))
        self._news.set()

    def __enter__(self) -> Capturing:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._pool.shutdown(wait=True)
