"""Where state lives: numbered documents in a store with one conditional operation.

**Guarantees.** ``create`` creates a blob *if its name is free*, atomically: of any number of racing creators exactly
one gets True, and a visible blob is complete and survives a power failure. Nothing is ever overwritten. ``get`` and
``list`` see every ``create`` and ``delete`` that returned before them. ``modified`` is by the store's own clock, so two
blobs of one store can be compared; it must not be compared with the clock of any host.

A ``create`` whose response was lost may have succeeded: callers put a unique id into what they write, and read it back.
Any other failure is an :class:`AbortRun`; nothing here retries for longer than the client library does.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol


@dataclass(frozen=True, order=True)
class BlobInfo:
    """``name`` is relative to the store's URL; ``size`` is in bytes; ``modified`` is aware, by the store's clock."""

    name: str
    size: int
    modified: dt.datetime


class BlobStore(Protocol):
    """Names are slash-separated and relative to ``url``. ``prefix`` ends in a slash; ``list`` is not recursive."""

    url: str

    def get(self, name: str) -> bytes | None: ...

    def list(self, prefix: str) -> list[BlobInfo]: ...

    def folders(self, prefix: str) -> Sequence[str]:
        """The names of the folders directly below ``prefix``, without a slash."""

    def create(self, name: str, data: bytes) -> bool:
        """Returns False if a blob of that name already exists; it is left unchanged."""

    def delete(self, name: str) -> None:
        """Does nothing if the blob does not exist."""


class MemoryStore:
    """All instances with the same URL in this process share their blobs. For tests and experiments."""

    _shared: ClassVar[dict[str, dict[str, tuple[bytes, dt.datetime]]]] = {}
    _lock: ClassVar[Any] = threading.Lock()

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        with self._lock:
            self._blobs = self._shared.setdefault(self.url, {})

    def get(self, name: str) -> bytes | None:
        with self._lock:
            return self._blobs[name][0] if name in self._blobs else None

    def list(self, prefix: str) -> list[BlobInfo]:
        with self._lock:
            return sorted(
                BlobInfo(name, len(data), modified)
                for name, (data, modified) in self._blobs.items()
                if name.startswith(prefix) and "/" not in name[len(prefix) :]
            )

    def folders(self, prefix: str) -> Sequence[str]:
        with self._lock:
            below = (name[len(prefix) :].split("/") for name in self._blobs if name.startswith(prefix))
            return sorted({parts[0] for parts in below if len(parts) > 1})

    def create(self, name: str, data: bytes) -> bool:
        with self._lock:
            if name in self._blobs:
                return False
            self._blobs[name] = (data, dt.datetime.now(dt.UTC))
            return True

    def delete(self, name: str) -> None:
        with self._lock:
            self._blobs.pop(name, None)
