"""A local disk, or a mounted share with hard links."""

from __future__ import annotations

from typing import ClassVar

from flowctl.diagnostics import Mark
from flowctl.storage.blobs import BlobStore
from flowctl.storage.store import Given, Store
from flowctl.storage.urls import local_path


class LocalStore(Store):
    schemes: ClassVar = ("file",)
    has_buckets: ClassVar = False
    place: ClassVar = "on this host's disk"

    def open(self, url: str, given: Given, *, unsafe: bool, private: bool, mark: Mark | None) -> BlobStore:
        from flowctl.storage.disk import DiskStore

        return DiskStore(url, private=private, mark=mark)

    def spark_url(self, url: str, given: Given) -> str:
        return f"file://{local_path(url).absolute()}"  # Hadoop does not decode what a URI would encode


STORE = LocalStore()
