"""The contract of one kind of storage: the options of each library that accesses it.

A store is one module in :mod:`flowctl.storage.stores`, found by the scheme of a URL. fsspec reads and writes state, the
buffer and files, ``deltalake`` the logs of Delta tables, Hadoop whatever Spark's executors access; Sail takes the same
options as ``deltalake``. ``given`` are the options that the spec's ``storage`` has for a URL, secrets revealed; if it
is empty, the library uses its own environment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from flowctl.diagnostics import Mark
from flowctl.storage.blobs import BlobStore

Given = Mapping[str, str]


class Store(ABC):
    """``schemes`` are those of its URLs, the usual one first. ``bucket`` is its word for what a URL begins with.
    ``jars`` are the sets of ``ivy.xml`` that Spark needs for it; ``not_on_spark`` are the keys of ``storage`` that
    Spark cannot use, each with the next step; ``has_one_set_on_spark`` if Spark takes the same credentials for all of
    its URLs. ``place`` describes a store that other hosts cannot reach; ``is_of_process`` if other processes cannot
    reach it either."""

    schemes: ClassVar[tuple[str, ...]]
    has_buckets: ClassVar[bool] = True
    takes_credentials: ClassVar[bool] = False
    bucket: ClassVar[str] = "bucket"
    not_on_spark: ClassVar[Mapping[str, str]] = {}
    has_one_set_on_spark: ClassVar[bool] = False
    jars: ClassVar[tuple[str, ...]] = ()
    place: ClassVar[str] = ""
    is_of_process: ClassVar[bool] = False

    @abstractmethod
    def open(self, url: str, given: Given, *, unsafe: bool, private: bool, mark: Mark | None) -> BlobStore:
        """As :func:`flowctl.storage.options.open_store`."""

    def complete(self, url: str, given: Given) -> Given:
        """``given`` with what the URL and the environment add. The other methods get the result."""
        return given

    def fsspec_options(self, given: Given) -> dict[str, Any]:
        """Constructor arguments of the fsspec file system."""
        return {}

    def deltalake_options(self, given: Given) -> dict[str, str]:
        """``storage_options`` of ``deltalake.DeltaTable``, and Sail's environment."""
        return {}

    def deltalake_timeouts(self) -> dict[str, str]:
        """Additional ``storage_options``: timeouts of a request."""
        return {}

    def hadoop_conf(self, bucket: str, given: Given) -> dict[str, str]:
        """Spark settings that let executors reach ``bucket``."""
        return {}

    def spark_url(self, url: str, given: Given) -> str:
        """The URL in Spark's form."""
        return url


class CloudStore(Store):
    """An object store with a conditional create, which the fsspec file system sends (``mode="create"``)."""

    def blob_options(self, given: Given) -> dict[str, Any]:
        """Constructor arguments of the file system that stores state and leases."""
        return self.fsspec_options(given)

    def open(self, url: str, given: Given, *, unsafe: bool, private: bool, mark: Mark | None) -> BlobStore:
        from flowctl.storage.objects import ObjectStore

        return ObjectStore(url, self.blob_options(given), bucket=self.bucket, unsafe=unsafe, mark=mark)
