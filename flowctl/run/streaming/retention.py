"""How long captured batches are kept, and how much room they take."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

from flowctl.spec.spec import StreamSpec
from flowctl.state.document import StateDocument
from flowctl.state.streams import needed
from flowctl.storage.landing import LandedBatch, LandingLog

#: Seconds between two looks for batches that are no longer kept.
_EVERY = 60.0


class Kept:
    """The captured batches of one stream. Batches land in the thread that captures; the one that applies prunes."""

    def __init__(self, stream: StreamSpec, log: LandingLog) -> None:
        self._stream = stream
        self._log = log
        self._lock = threading.Lock()
        self._bytes = sum(log.files().values())
        self._pruned_at: float | None = None

    @property
    def bytes(self) -> int:
        return self._bytes

    @property
    def is_full(self) -> bool:
        """Whether to capture no more before some are applied and removed."""
        return self._bytes > self._stream.max_bytes

    def landed(self, batch: LandedBatch) -> None:
        with self._lock:
            self._bytes += batch.bytes

    def prune(self, document: StateDocument, table_ids: Collection[str]) -> None:
        """Removes what is older than the stream keeps, or more than it may keep, and was applied to all these tables:
        once a minute, or at once if there is no room."""
        now = time.monotonic()
        is_due = self._pruned_at is None or now - self._pruned_at >= _EVERY
        if is_due or self.is_full:
            self._pruned_at = now
            floor = needed(document, table_ids)
            self._log.prune(floor, self._stream.keep, self._stream.max_bytes)
            with self._lock:
                self._bytes = sum(self._log.files().values())
