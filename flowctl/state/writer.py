"""One thread that writes the state for a whole run: each write combines all changes that have arrived since the last.

Each change is a pure function of the document. A change that does not apply fails alone. A write that fails ends the
run: the content of the log is then unknown, so every change in it and after it gets the same :class:`AbortRun`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from flowctl.errors import AbortRun
from flowctl.model.commit import Commit, Intent
from flowctl.state import document as documents
from flowctl.state.document import Recorded, StateDocument
from flowctl.state.store import StateStore

Change = Callable[[StateDocument], StateDocument]
Waiting = tuple[Change, Future[StateDocument]]


class StateWriter:
    """Thread-safe. ``check`` is called before each write and raises if the lease is lost (``Lease.check``)."""

    def __init__(self, store: StateStore, document: StateDocument, check: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._document = document
        self._check = check
        self._failure: AbortRun | None = None
        self._closed = False
        self._entering = threading.Lock()
        self._waiting: deque[Waiting] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="state writer")

    @property
    def document(self) -> StateDocument:
        """The document as last written (or as read, before the first write)."""
        return self._document

    def begin(self, intents: Mapping[str, Intent]) -> StateDocument:
        """Writes all intents in one change; returns when they are stored."""
        return self.change(lambda document: documents.with_intents(document, intents)).result()

    def committed(self, commit: Commit, recorded: Recorded) -> Future[StateDocument]:
        """Records a commit that exists in the target. The future is done when the record is stored: acknowledge the
        source only then."""
        return self.change(lambda document: documents.with_commit(document, commit, recorded))

    def change(self, apply: Change) -> Future[StateDocument]:
        """The future's result is the document as stored; :class:`AbortRun` if it could not be stored."""
        future: Future[StateDocument] = Future()
        with self._entering:
            if self._closed:
                future.set_exception(AbortRun("the run's state is closed already"))
            else:
                self._waiting.append((apply, future))
                self._thread.submit(self._write_waiting)
        return future

    def close(self) -> None:
        """Writes what is still pending and ends the thread."""
        with self._entering:
            self._closed = True
        self._thread.shutdown()

    def __enter__(self) -> StateWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write_waiting(self) -> None:
        """Writes nothing if an earlier call already took the change that this one was submitted for."""
        document, applied = self._document, []
        for apply, future in [self._waiting.popleft() for _ in range(len(self._waiting))]:
            try:
                document = apply(document)
                applied.append(future)
            except Exception as refusal:  # noqa: BLE001  as below
                future.set_exception(refusal)
        failure = self._failure or (self._stored(document) if applied else None)
        for future in applied:
            if failure:
                future.set_exception(failure)
            else:
                future.set_result(self._document)

    def _stored(self, document: StateDocument) -> AbortRun | None:
        try:
            self._check()
            self._document = self._store.write(document)
        except AbortRun as failure:
            self._failure = failure
        except Exception as cause:  # noqa: BLE001  the callers wait for a result in every case
            self._failure = AbortRun(f"state could not be written: {type(cause).__name__}: {cause}")
            self._failure.__cause__ = cause
        return self._failure
