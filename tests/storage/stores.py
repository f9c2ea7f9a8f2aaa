"""Addresses of empty, real stores for the state tests."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import Any

from flowctl.storage.blobs import BlobStore
from flowctl.storage.options import open_store
from tests.services.azurite import AzureServer
from tests.services.gcs import GoogleServer
from tests.services.s3 import S3Server


@dataclass(frozen=True)
class StoreAddress:
    """Where a store lies; ``client()`` opens it anew, as another process would."""

    url: str
    storage: dict[str, dict[str, Any]] = field(default_factory=dict)

    def client(self, *, unsafe: bool = False) -> BlobStore:
        return open_store(self.url, self.storage, unsafe=unsafe)


def s3_address(server: S3Server, endpoint: str = "") -> StoreAddress:
    """A new bucket of ``server``, reached through ``endpoint`` when that is given."""
    bucket = f"lake-{uuid.uuid4().hex[:12]}"
    server.client().create_bucket(Bucket=bucket)
    reached = replace(server, endpoint=endpoint or server.endpoint)
    return StoreAddress(f"s3://{bucket}/_flowctl/shop", {f"s3://{bucket}": dict(reached.storage())})


def azure_address(server: AzureServer) -> StoreAddress:
    """A new container of ``server``."""
    container = f"lake-{uuid.uuid4().hex[:12]}"
    server.client().create_container(container)
    return StoreAddress(f"az://{container}/_flowctl/shop", {f"az://{container}": server.storage()})


def gcs_address(server: GoogleServer) -> StoreAddress:
    """A new bucket of ``server``."""
    bucket = f"lake-{uuid.uuid4().hex[:12]}"
    server.client().create_bucket(bucket)
    return StoreAddress(f"gs://{bucket}/_flowctl/shop", {f"gs://{bucket}": server.storage()})
