"""The contract of one kind of storage: what each library that reaches it is given.

A store is one module in :mod:`flowctl.storage.stores`, found by the scheme of a URL. fsspec reads and writes state, the
buffer and files, ``deltalake`` the logs of Delta tables, Hadoop whatever Spark's executors touch; Sail takes what
``deltalake`` does. ``given`` are the options that the spec's ``storage`` has for a URL, secrets revealed; empty, the
library's own environment counts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from flowctl.storage.blobs import BlobStore

Given = Mapping[str, str]


class Store(ABC):
    """``schemes`` are those of its URLs, the usual one first. ``environment`` is what credentials are read from where
    ``takes_credentials`` is false. ``jars`` are the sets of ``ivy.xml`` that Spark needs for it. ``place`` describes a
    store that other hosts do not reach; one that other processes do not reach either ``is_of_process``."""

    schemes: ClassVar[tuple[str, ...]]
    has_buckets: ClassVar[bool] = True
    takes_credentials: ClassVar[bool] = False
    environment: ClassVar[str] = ""
    jars: ClassVar[tuple[str, ...]] = ()
    place: ClassVar[str] = ""
    is_of_process: ClassVar[bool] = False

    @abstractmethod
    def open(self, url: str, given: Given, *, unsafe: bool, private: bool) -> BlobStore:
        """As :func:`flowctl.storage.options.open_store`."""

    def fsspec_options(self, given: Given) -> dict[str, Any]:
        """Constructor arguments of the fsspec file system."""
        return {}

    def deltalake_options(self, given: Given) -> dict[str, str]:
        """``storage_options`` of ``deltalake.DeltaTable``, and Sail's environment."""
        return {}

    def deltalake_timeouts(self) -> dict[str, str]:
        """More of them: how long a request may take."""
        return {}

    def hadoop_conf(self, bucket: str, given: Given) -> dict[str, str]:
        """Spark settings that let executors reach ``bucket``."""
        return {}

    def spark_url(self, url: str) -> str:
        """The URL as Spark writes it."""
        return url


class CloudStore(Store):
    """An object store with a conditional create, which fsspec's file system sends (``mode="create"``)."""

    def blob_options(self, given: Given) -> dict[str, Any]:
        """Constructor arguments of the file system that keeps state and leases."""
        return self.fsspec_options(given)

    def open(self, url: str, given: Given, *, unsafe: bool, private: bool) -> BlobStore:
        from flowctl.storage.objects import ObjectStore

        return ObjectStore(url, self.blob_options(given), unsafe=unsafe)
