"""One thread that writes state for a whole run: each write combines all changes that have arrived since the last one.

Each change is a pure function of the document. A change that does not apply fails alone. A write that fails ends the
run: the content of the log is then unknown, so every change in it and after it gets the same :class:`AbortRun`.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from flowctl.errors import AbortRun, FlowctlError
from flowctl.model.commit import Commit, Intent
from flowctl.state import document as documents
from flowctl.state.document import Recorded, StateDocument
from flowctl.state.store import StateStore

Change = Callable[[StateDocument], StateDocument]


class StateWriter:
    """Thread-safe. ``check`` is called before each write and raises if the lease is lost (``Lease.check``)."""

    def __init__(self, store: StateStore, document: StateDocument, check: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._document = document
        self._check = check
        self._failure: AbortRun | None = None
        self._closed = False
        self._entering = threading.Lock()
        self._changes: queue.SimpleQueue[_Wanted | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, name="state writer", daemon=True)
        self._thread.start()

    @property
    def document(self) -> StateDocument:
        """As last written (or read, before the first write)."""
        return self._document

    def begin(self, intents: Mapping[str, Intent]) -> StateDocument:
        """Writes all intents at once; returns when they are stored."""
        return self.change(lambda document: documents.with_intents(document, intents)).result()

    def committed(self, commit: Commit, recorded: Recorded) -> Future[StateDocument]:
        """Records a sequence number that the target has. Done when stored: acknowledge the source only then."""
        return self.change(lambda document: documents.with_commit(document, commit, recorded))

    def change(self, apply: Change) -> Future[StateDocument]:
        """The future's result is the document as stored; :class:`AbortRun` when it could not be."""
        wanted = _Wanted(apply)
        with self._entering:
            if self._closed:
                wanted.future.set_exception(AbortRun("the run's state is closed already"))
            else:
                self._changes.put(wanted)
        return wanted.future

    def close(self) -> None:
        """Writes what is still pending and ends the thread."""
        with self._entering:
            if not self._closed:
                self._closed = True
                self._changes.put(None)
        self._thread.join()

    def __enter__(self) -> StateWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write_all(self) -> None:
        while (first := self._changes.get()) is not None:
            batch, ended = self._gather(first)
            self._write(batch)
            if ended:
                return

    def _gather(self, first: _Wanted) -> tuple[list[_Wanted], bool]:
        batch = [first]
        while True:
            try:
                wanted = self._changes.get_nowait()
            except queue.Empty:
                return batch, False
            if wanted is None:
                return batch, True
            batch.append(wanted)

    def _write(self, batch: list[_Wanted]) -> None:
        document, applied = self._document, []
        for wanted in batch:
            try:
                document = wanted.apply(document)
                applied.append(wanted)
            except FlowctlError as refusal:
                wanted.future.set_exception(refusal)
        if not applied:
            return
        failure = self._failure or self._store_document(document)
        for wanted in applied:
            if failure:
                wanted.future.set_exception(failure)
            else:
                wanted.future.set_result(self._document)

    def _store_document(self, document: StateDocument) -> AbortRun | None:
        try:
            self._check()
            self._document = self._store.write(document)
        except AbortRun as failure:
            self._failure = failure
        except Exception as cause:  # noqa: BLE001  the callers wait for a result in every case
            self._failure = AbortRun(f"state could not be written: {type(cause).__name__}: {cause}")
            self._failure.__cause__ = cause
        return self._failure


class _Wanted:
    def __init__(self, apply: Change) -> None:
        self.apply = apply
        self.future: Future[StateDocument] = Future()
