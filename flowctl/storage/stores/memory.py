"""This process's memory, for tests and experiments."""

from __future__ import annotations

from typing import ClassVar

from flowctl.diagnostics import Mark
from flowctl.storage.blobs import BlobStore, MemoryStore
from flowctl.storage.store import Given, Store


class MemoryOfProcess(Store):
    schemes: ClassVar = ("memory",)
    has_buckets: ClassVar = False
    place: ClassVar = "in this process's memory"
    is_of_process: ClassVar = True

    def open(self, url: str, given: Given, *, unsafe: bool, private: bool, mark: Mark | None) -> BlobStore:
        return MemoryStore(url)


STORE = MemoryOfProcess()
