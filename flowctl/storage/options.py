"""The options of each library for a URL: one place in the spec (``storage``) configures fsspec, deltalake and Hadoop.

A URL takes its credentials from the longest prefix that covers it, at a path boundary: ``s3://lake`` covers
``s3://lake/x`` and not ``s3://lake2``. A URL that no prefix covers uses the SDK's own environment: all functions then
return only timeouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowctl.diagnostics import Mark
from flowctl.errors import TableError
from flowctl.spec import urls
from flowctl.spec.secrets import reveal
from flowctl.storage.blobs import BlobStore
from flowctl.storage.store import Given, Store
from flowctl.storage.stores import by_scheme
from flowctl.storage.urls import local_path, scheme

Storage = Mapping[str, Mapping[str, Any]]
#: What a store is asked for beyond the ranges that are read of a file, in bytes: s3fs would fetch 50 MiB for each.
READ_AHEAD = 1 << 20


def store_of(url: str) -> Store:
    """The store of the URL's scheme. :class:`TableError` if there is none; `validate` reports this unless the URL is
    a secret."""
    if store := by_scheme().get(scheme(url)):
        return store
    schemes = ", ".join(by_scheme())
    raise TableError(f"there is no storage {scheme(url)}://", hint=f"Use a local path, or one of {schemes}")


def credentials(url: str, storage: Storage) -> Mapping[str, Any]:
    """The spec's options for the longest prefix that covers ``url``; secrets are still references."""
    wanted = _normal(url)
    covering = [prefix for prefix in storage if (wanted + "/").startswith(_normal(prefix) + "/")]
    return storage[max(covering, key=lambda prefix: len(_normal(prefix)))] if covering else {}


def open_store(
    url: str, storage: Storage, *, unsafe: bool = False, private: bool = True, mark: Mark | None = None
) -> BlobStore:
    """The blob store at ``url``. Stores that do not honour conditional creates are refused at the first ``create``,
    unless ``unsafe``. ``private``: files created on a disk are accessible to this user only
    (:func:`flowctl.storage.durable.private_modes`). ``mark``: the place in the spec that its errors name."""
    return store_of(url).open(url, _given(url, storage), unsafe=unsafe, private=private, mark=mark)


def fsspec_options(url: str, storage: Storage) -> dict[str, Any]:
    """Constructor arguments of the URL's fsspec file system."""
    return store_of(url).fsspec_options(_given(url, storage))


def deltalake_options(url: str, storage: Storage) -> dict[str, str]:
    """``storage_options`` of ``deltalake.DeltaTable``."""
    return store_of(url).deltalake_options(_given(url, storage))


def deltalake_timeouts(url: str) -> dict[str, str]:
    """Additional ``storage_options``: timeouts of a request."""
    return store_of(url).deltalake_timeouts()


def hadoop_conf(url: str, storage: Storage) -> dict[str, str]:
    """Spark settings that let executors reach the URL's bucket."""
    bucket = _normal(url).partition("://")[2].partition("/")[0]
    return store_of(url).hadoop_conf(bucket, _given(url, storage))


def spark_url(url: str, storage: Storage) -> str:
    """The URL in Spark's form: ``s3a://…`` for S3, ``file:///…`` for local paths."""
    return store_of(url).spark_url(url, _given(url, storage))


def _given(url: str, storage: Storage) -> Given:
    store = store_of(url)
    if not store.takes_credentials:
        return {}
    written = {key: reveal(value) for key, value in credentials(url, storage).items()}
    given = {key: str(value) for key, value in written.items() if value is not False}
    if "endpoint" in given and (flaw := urls.flaw_of_endpoint(given["endpoint"])):
        raise TableError(
            f"the endpoint of the storage for {scheme(url)}:// cannot be read: {flaw}",
            hint="Write https://host:port in `storage`, or where its secret is kept",
        )
    return store.complete(url, given)


def _normal(url: str) -> str:
    if scheme(url) == "file":
        return local_path(url).as_posix().rstrip("/")
    return f"{scheme(url)}://{url.partition('://')[2].rstrip('/')}"
