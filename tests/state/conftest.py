"""Stores for the contract suite: each entry of ``STORES`` is one empty, real store."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowctl.storage.blobs import BlobStore
from tests.services import s3
from tests.state.s3_proxy import S3Proxy
from tests.state.stores import StoreAddress, s3_address

STORES = [
    "disk",
    "memory",
    pytest.param("s3-moto", marks=pytest.mark.server),
    pytest.param("s3-versitygw", marks=[pytest.mark.server, pytest.mark.full]),
]


@pytest.fixture(params=STORES)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> StoreAddress:
    match request.param:
        case "disk":
            return StoreAddress(str(tmp_path / "state" / "shop"))
        case "memory":
            return StoreAddress(f"memory://{uuid.uuid4().hex}/shop")
        case "s3-moto":
            return s3_address(request.getfixturevalue("moto"))
        case "s3-versitygw":
            return s3_address(request.getfixturevalue("versitygw"))
        case unknown:
            raise AssertionError(unknown)


@pytest.fixture
def blobs(address: StoreAddress) -> BlobStore:
    return address.client()


@pytest.fixture(scope="session")
def moto() -> Iterator[s3.S3Server]:
    with s3.moto() as server:
        yield server


@pytest.fixture(scope="session")
def versitygw() -> Iterator[s3.S3Server]:
    with s3.versitygw() as server:
        yield server


@pytest.fixture
def proxy(moto: s3.S3Server) -> Iterator[S3Proxy]:
    with S3Proxy(moto.endpoint) as between:
        yield between
