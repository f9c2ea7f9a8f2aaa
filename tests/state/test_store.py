"""The state log over every store: the newest number is the state, writing is creating the next."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flowctl.errors import AbortRun, StateConflict, UsageError
from flowctl.state.document import StateDocument, new_document
from flowctl.state.store import HINT, KEEP_NUMBERS, StateStore
from flowctl.storage.blobs import BlobStore
from tests.state.stores import StoreAddress
from tests.unit.state.examples import committed

WRITERS = 16
ROUNDS = 3


def written(store: StateStore, count: int) -> StateDocument:
    document = store.read()
    for number in range(count):
        document = store.write(committed(document, "orders", day=number % 28 + 1))
    return document


def test_a_flow_that_never_ran_reads_as_an_empty_document(address: StoreAddress) -> None:
    document = StateStore(address.client()).read()
    assert (document.serial, dict(document.tables)) == (0, {})


def test_what_was_written_is_read_by_another_client(address: StoreAddress) -> None:
    document = written(StateStore(address.client()), 3)
    assert document.serial == 3
    assert StateStore(address.client()).read() == document


def test_writing_from_an_old_number_is_a_conflict_that_names_the_writer(address: StoreAddress) -> None:
    store, other = StateStore(address.client()), StateStore(address.client())
    read = store.read()
    theirs = other.write(committed(other.read(), "orders", 1))
    with pytest.raises(StateConflict, match=f"state number 1 was written by process {os.getpid()} on"):
        store.write(committed(read, "customers", 2))
    assert store.read() == theirs


def test_of_sixteen_racing_writers_exactly_one_wins_each_number(address: StoreAddress) -> None:
    stores = [StateStore(address.client()) for _ in range(WRITERS)]
    barrier = threading.Barrier(WRITERS)

    def race(store: StateStore) -> list[int]:
        won = []
        for _ in range(ROUNDS):
            document = store.read()
            barrier.wait()
            with contextlib.suppress(StateConflict):
                won.append(store.write(committed(document, "orders", 1)).serial)
            barrier.wait()
        return won

    with ThreadPoolExecutor(WRITERS) as threads:
        won = sorted(serial for serials in threads.map(race, stores) for serial in serials)
    assert won == list(range(1, ROUNDS + 1))
    assert stores[0].read().table("orders").seq == ROUNDS


@pytest.mark.parametrize("hint", [b'{"serial": 1}', b'{"serial": 99}', b"nonsense", b"[]", None])
def test_the_hint_may_be_stale_wrong_or_missing(blobs: BlobStore, hint: bytes | None) -> None:
    document = written(StateStore(blobs), 3)
    blobs.delete(HINT)
    if hint is not None:
        blobs.create(HINT, hint)
    assert StateStore(blobs).read() == document


def test_missing_numbers_below_the_newest_change_nothing(blobs: BlobStore) -> None:
    store = StateStore(blobs)
    document = written(store, 4)
    blobs.delete("state/1.json")
    blobs.delete("state/3.json")
    assert store.read() == document
    assert [version.serial for version in store.history()] == [4, 2]
    with pytest.raises(UsageError, match="no state number 3"):
        store.read_serial(3)


def test_a_damaged_newest_document_stops_and_its_removal_goes_on_from_the_one_before(blobs: BlobStore) -> None:
    store = StateStore(blobs)
    document = written(store, 2)
    blobs.create("state/3.json", b'{"format": 1, "lin')
    with pytest.raises(AbortRun, match=r"state/3\.json is damaged"):
        store.read()
    blobs.delete("state/3.json")
    assert store.read() == document


def test_a_document_put_back_by_hand_under_the_next_number_is_the_state(blobs: BlobStore) -> None:
    store = StateStore(blobs)
    written(store, 3)
    backup = blobs.get("state/1.json")
    assert backup is not None
    blobs.create("state/4.json", backup)
    assert store.read().serial == 4
    assert store.read().tables == store.read_serial(1).tables


def test_kept_are_the_last_hundred_and_thirty_days(tmp_path: Path) -> None:
    address = StoreAddress(str(tmp_path))
    store = StateStore(address.client())
    written(store, KEEP_NUMBERS + 20)
    now = dt.datetime.now().timestamp()
    for serial in range(1, KEEP_NUMBERS + 11):
        age = dt.timedelta(days=31 if serial <= 10 else 29)
        os.utime(tmp_path / "state" / f"{serial}.json", (now, now - age.total_seconds()))
    store.prune()
    assert [version.serial for version in store.history()] == list(range(KEEP_NUMBERS + 20, 10, -1))


def test_state_is_small_pretty_json_that_people_can_read(blobs: BlobStore) -> None:
    document = StateStore(blobs).write(committed(new_document(), "orders", 5))
    data = blobs.get("state/1.json")
    assert data is not None
    assert data.startswith(b'{\n  "format": 1,\n  "lineage": "')
    assert json.loads(data)["tables"]["orders"]["seq"] == document.table("orders").seq
