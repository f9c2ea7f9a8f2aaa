"""Addresses of empty, real stores: for the state tests, and for flows that live in a bucket."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from flowctl.spec.schema import storage_schema
from flowctl.storage.blobs import BlobStore
from flowctl.storage.options import open_store


class ObjectServer(Protocol):
    """A running server of an object store."""

    def storage(self) -> dict[str, Any]:
        """The options of one entry of a spec's ``storage``."""

    def make_bucket(self, name: str) -> str:
        """Its URL."""

    def contents(self, bucket: str) -> dict[str, bytes]:
        """Every object by its name, as a client of the store's vendor sees it."""


@dataclass(frozen=True)
class StoreAddress:
    """Where a store lies; ``client()`` opens it anew, as another process would."""

    url: str
    storage: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def client(self, *, unsafe: bool = False) -> BlobStore:
        return open_store(self.url, self.storage, unsafe=unsafe)


@dataclass(frozen=True)
class Bucket:
    """A bucket or container that a test has for itself. ``url`` is its root."""

    url: str
    server: ObjectServer

    @property
    def storage(self) -> dict[str, dict[str, Any]]:
        return {self.url: self.server.storage()}

    @property
    def contents(self) -> dict[str, bytes]:
        return self.server.contents(self.url.partition("://")[2])

    @property
    def secrets(self) -> dict[str, str]:
        """The variables that the spec's references name."""
        properties = storage_schema(self.url)["properties"]
        secret = {key: value for key, value in self.server.storage().items() if properties[key].get("writeOnly")}
        return {f"STORE_{key}".upper(): str(value) for key, value in secret.items()}

    @property
    def spec(self) -> str:
        """The spec's key ``storage``."""
        references = {f"STORE_{key}".upper(): key for key in self.server.storage()}
        secret = {references[name]: f"${{secret:env:{name}}}" for name in self.secrets}
        return "storage: " + json.dumps({self.url: {**self.server.storage(), **secret}})


def new_bucket(server: ObjectServer) -> Bucket:
    return Bucket(server.make_bucket(f"lake-{uuid.uuid4().hex[:12]}"), server)


def address_on(server: ObjectServer, endpoint: str = "") -> StoreAddress:
    """In a new bucket of ``server``, reached through ``endpoint`` when that is given."""
    bucket = new_bucket(server)
    reached = {**server.storage(), **({"endpoint": endpoint} if endpoint else {})}
    return StoreAddress(f"{bucket.url}/_flowctl/shop", {bucket.url: reached})
