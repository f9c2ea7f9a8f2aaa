"""The blob contract: one suite over every store, on real servers."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import pytest

from flowctl.errors import AbortRun
from flowctl.state.document import new_document
from flowctl.state.store import StateStore
from flowctl.storage.blobs import BlobStore
from tests.services.s3 import S3Server
from tests.services.s3_proxy import S3Proxy
from tests.storage.stores import StoreAddress, address_on

WRITERS = 16
ROUNDS = 6
Answer = TypeVar("Answer")


def at_once(actions: list[Callable[[], Answer]]) -> list[Answer]:
    """Runs all actions in threads that start together."""
    barrier = threading.Barrier(len(actions))

    def start(action: Callable[[], Answer]) -> Answer:
        barrier.wait()
        return action()

    with ThreadPoolExecutor(len(actions)) as threads:
        return list(threads.map(start, actions))


def test_what_was_created_is_read_back_by_another_client(address: StoreAddress) -> None:
    assert address.client().create("state/1.json", b"one") is True
    assert address.client().get("state/1.json") == b"one"


def test_a_taken_name_is_refused_and_left_as_it_is(blobs: BlobStore, address: StoreAddress) -> None:
    blobs.create("state/1.json", b"first")
    assert address.client().create("state/1.json", b"second") is False
    assert blobs.get("state/1.json") == b"first"


def test_what_is_not_there_reads_as_none_and_deletes_in_silence(blobs: BlobStore) -> None:
    assert blobs.get("state/1.json") is None
    blobs.delete("state/1.json")
    assert blobs.list("state/") == []


def test_a_listing_is_one_folder_with_sizes_and_is_never_stale(address: StoreAddress) -> None:
    reader, writer = address.client(), address.client()
    assert reader.list("state/") == []
    writer.create("state/1.json", b"one")
    writer.create("state/2.json", b"three")
    writer.create("state/deeper/3.json", b"x")
    writer.create("statement.json", b"x")
    assert [(info.name, info.size) for info in reader.list("state/")] == [("state/1.json", 3), ("state/2.json", 5)]
    writer.delete("state/1.json")
    assert [info.name for info in reader.list("state/")] == ["state/2.json"]


def test_modified_is_aware_and_of_one_clock(blobs: BlobStore) -> None:
    blobs.create("state/1.json", b"")
    blobs.create("state/2.json", b"")
    first, second = blobs.list("state/")
    assert first.modified.tzinfo is not None
    assert dt.timedelta(0) <= second.modified - first.modified < dt.timedelta(minutes=1)


def test_a_deleted_name_can_be_created_again(blobs: BlobStore) -> None:
    blobs.create("state/1.json", b"1")
    blobs.delete("state/1.json")
    assert blobs.create("state/1.json", b"2") is True
    assert blobs.get("state/1.json") == b"2"


def test_of_sixteen_racing_creators_exactly_one_wins(address: StoreAddress) -> None:
    clients = [address.client() for _ in range(WRITERS)]
    for name in (f"state/{round}.json" for round in range(ROUNDS)):
        won = at_once([partial(client.create, name, str(n).encode()) for n, client in enumerate(clients)])
        assert won.count(True) == 1
        assert clients[0].get(name) == str(won.index(True)).encode()


def test_a_store_that_says_412_without_a_condition_is_understood(moto: S3Server, proxy: S3Proxy) -> None:
    proxy.habit = "names no condition"
    address = address_on(moto, proxy.endpoint)
    assert address.client().create("state/1.json", b"first") is True
    assert address.client().create("state/1.json", b"second") is False


def test_a_store_that_ignores_conditions_is_refused_unless_unsafe(moto: S3Server, proxy: S3Proxy) -> None:
    proxy.habit = "ignores conditions"
    address = address_on(moto, proxy.endpoint)
    with pytest.raises(AbortRun, match="does not honour conditional writes") as refusal:
        address.client().create("state/1.json", b"one")
    assert "unsafe: true" in refusal.value.hint
    unsafe = address.client(unsafe=True)
    assert unsafe.create("state/1.json", b"one") is True
    assert unsafe.create("state/1.json", b"two") is False


def test_a_write_whose_answer_was_lost_is_known_as_our_own(moto: S3Server, proxy: S3Proxy) -> None:
    address = address_on(moto, proxy.endpoint)
    store = StateStore(address.client())
    first = store.write(new_document())
    proxy.habit = "loses answers"
    second = store.write(first)
    assert proxy.lost > 0
    proxy.habit = "none"
    assert StateStore(address.client()).read() == second


def test_a_store_that_is_not_there_says_where_to_look() -> None:
    address = StoreAddress(
        "s3://nowhere/x", {"s3://nowhere": {"endpoint": "http://127.0.0.1:9", "region": "us-east-1"}}
    )
    with pytest.raises(AbortRun, match=r"cannot read s3://nowhere/x/state/1.json") as failure:
        address.client().get("state/1.json")
    assert "storage" in failure.value.hint


def test_folders_are_those_directly_below(blobs: BlobStore) -> None:
    assert blobs.folders("streams/") == []
    for name in ("streams/one/state/1.json", "streams/two/lease/1.json", "streams/note"):
        blobs.create(name, b"")
    assert blobs.folders("streams/") == ["one", "two"]
