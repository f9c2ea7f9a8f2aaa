"""The state log over every store: the newest number is the state, writing is creating the next."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from flowctl.errors import AbortRun, StateConflict, UsageError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.state.document import StateDocument, new_document
from flowctl.state.store import Retention, StateStore
from flowctl.storage.blobs import BlobStore
from tests.state.examples import committed
from tests.storage.stores import StoreAddress

WRITERS = 16
ROUNDS = 3
MANY, CHANGES = 64, 2


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


@pytest.mark.full
def test_of_sixty_four_racing_writers_no_update_is_lost(address: StoreAddress) -> None:
    """Each has a client of its own and, whenever another was faster, reads again and writes its change anew."""
    names = [f"t{number}" for number in range(MANY)]
    barrier = threading.Barrier(MANY)

    def write(name: str) -> list[int]:
        store, serials = StateStore(address.client()), []
        barrier.wait()
        while len(serials) < CHANGES:
            with contextlib.suppress(StateConflict):
                serials.append(store.write(committed(store.read(), name, day=1)).serial)
        return serials

    with ThreadPoolExecutor(MANY) as threads:
        serials = sorted(serial for written in threads.map(write, names) for serial in written)
    assert serials == list(range(1, MANY * CHANGES + 1))
    document = StateStore(address.client()).read()
    assert {name: document.table(name).seq for name in names} == dict.fromkeys(names, CHANGES)


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
    written(store, Retention().numbers + 20)
    now = dt.datetime.now().timestamp()
    for serial in range(1, Retention().numbers + 11):
        age = dt.timedelta(days=31 if serial <= 10 else 29, minutes=-serial)
        os.utime(tmp_path / "state" / f"{serial}.json", (now, now - age.total_seconds()))
    store.prune()
    assert [version.serial for version in store.history()] == list(range(Retention().numbers + 20, 10, -1))


def test_of_a_log_that_grows_fast_one_number_in_each_step_is_kept(tmp_path: Path) -> None:
    retention = Retention(numbers=5, step=dt.timedelta(hours=1), recent=dt.timedelta(hours=2))
    store = StateStore(StoreAddress(str(tmp_path)).client(), retention=retention)
    written(store, 20)
    now = dt.datetime.now(dt.UTC).replace(minute=30, second=0, microsecond=0)
    for serial in range(1, 21):
        age = dt.timedelta(minutes=20 * (20 - serial))
        os.utime(tmp_path / "state" / f"{serial}.json", (0, (now - age).timestamp()))
    store.prune()
    assert [version.serial for version in store.history()] == [20, 19, 18, 17, 16, 15, 14, 12, 9, 6, 3]


def test_two_logs_in_one_place_do_not_see_each_other(blobs: BlobStore) -> None:
    flow, stream = StateStore(blobs), StateStore(blobs, prefix="streams/cdc/")
    of_flow, of_stream = written(flow, 2), written(stream, 30)
    assert (StateStore(blobs).read(), StateStore(blobs, prefix="streams/cdc/").read()) == (of_flow, of_stream)
    assert [version.serial for version in flow.history()] == [2, 1]


def _with_columns(document: StateDocument, *names: str) -> StateDocument:
    columns = tuple(Column(name, types.INT64) for name in names)
    table = replace(document.table("orders"), schema=columns)
    return replace(document, tables={**document.tables, "orders": table})


def test_columns_are_written_once_until_they_change(address: StoreAddress) -> None:
    blobs = address.client()
    store = StateStore(blobs)
    document = written(store, 3)
    for _ in range(2):
        document = StateStore(blobs).write(_with_columns(document, "id", "name"))
    assert [int(info.name.split("/")[1].split("-")[0]) for info in blobs.list("shapes/")] == [1, 4]
    assert StateStore(blobs).read().table("orders").schema == document.table("orders").schema
    assert store.read_serial(3).table("orders").schema != document.table("orders").schema


def test_columns_go_with_the_last_number_that_had_them(tmp_path: Path) -> None:
    blobs = StoreAddress(str(tmp_path)).client()  # S3 tells times in seconds
    store = StateStore(blobs, retention=Retention(2, dt.timedelta(0)))
    document = written(store, 1)
    for names in (["a"], ["b"], ["a"], ["b"], ["c"]):
        document = store.write(_with_columns(document, *names))
        store.prune()
        for version in store.history():
            store.read_serial(version.serial)
    assert len(blobs.list("shapes/")) == 2
    blobs.create("state/7.json", blobs.get("state/5.json") or b"")
    document = store.read()
    blobs.delete("state/5.json")
    blobs.delete("state/6.json")
    store.prune()
    assert StateStore(blobs).read() == document


def test_state_is_small_pretty_json_that_people_can_read(blobs: BlobStore) -> None:
    document = StateStore(blobs).write(committed(new_document(), "orders", 5))
    data = blobs.get("state/1.json")
    assert data is not None
    assert data.startswith(b'{\n  "format": 2,\n  "lineage": "')
    assert json.loads(data)["tables"]["orders"]["seq"] == document.table("orders").seq
