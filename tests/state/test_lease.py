"""The lease over every store: one holder, taken over only when the holder has certainly stopped."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from flowctl.errors import AbortRun, ExitCode, LeaseLost, LockedError
from flowctl.model import codec
from flowctl.state import lease as leases
from flowctl.state.lease import Lease, LeaseRecord
from flowctl.state.process import Process
from flowctl.storage.blobs import BlobStore
from tests.storage.stores import StoreAddress

TAKERS = 16
LONG = 600.0

_HOLD = """
import sys, time
from flowctl.storage.options import open_store
from flowctl.state.lease import Lease
lease = Lease.acquire(open_store(sys.argv[1], {}), run_id="killed", ttl_seconds=600)
print(lease.fence, flush=True)
time.sleep(600)
"""


@contextmanager
def holding_process(url: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lease."""
    process = subprocess.Popen([sys.executable, "-c", _HOLD, url], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process:
        assert process.stdout.readline().strip() == "1"
        yield process
        process.kill()


def held_elsewhere(blobs: BlobStore, *, ttl: float, number: int = 1) -> LeaseRecord:
    """The lease of a process on another host, which nobody here can look at."""
    holder = Process("elsewhere", boot_id="another", namespace="pid:[1]", pid=4711, started="1")
    record = LeaseRecord(number, uuid.uuid4().hex, holder, "run-1", "2026-11-20T06:15:33Z", ttl)
    assert blobs.create(f"lease/{number}.json", json.dumps(codec.to_json(record)).encode())
    return record


def test_a_held_lease_is_refused_naming_its_holder(address: StoreAddress) -> None:
    with (
        Lease.acquire(address.client(), run_id="run-1", ttl_seconds=LONG),
        pytest.raises(LockedError, match=rf"locked by run run-1 \(process {os.getpid()} on .*, since 20") as refusal,
    ):
        Lease.acquire(address.client(), ttl_seconds=LONG)
    assert refusal.value.exit_code == ExitCode.LOCKED
    assert "--lock-timeout" in refusal.value.hint


def test_a_released_lease_is_free_at_once_and_the_fence_rises(address: StoreAddress) -> None:
    fences = []
    for _ in range(3):
        with Lease.acquire(address.client(), ttl_seconds=LONG) as lease:
            fences.append(lease.fence)
    assert fences == sorted(set(fences))


def test_of_sixteen_racing_takers_one_holds_it(address: StoreAddress) -> None:
    clients = [address.client() for _ in range(TAKERS)]
    barrier = threading.Barrier(TAKERS)

    def take(blobs: BlobStore) -> Lease | None:
        barrier.wait()
        try:
            return Lease.acquire(blobs, ttl_seconds=LONG)
        except LockedError:
            return None

    with ThreadPoolExecutor(TAKERS) as threads:
        held = [lease for lease in threads.map(take, clients) if lease]
    assert len(held) == 1
    held[0].release()


def test_racing_takers_of_a_dead_lease_one_holds_it(tmp_path: Path) -> None:
    address = StoreAddress(str(tmp_path))
    with holding_process(address.url) as process:
        process.kill()
        process.wait()
        test_of_sixteen_racing_takers_one_holds_it(address)


def test_a_killed_holder_on_this_host_is_followed_at_once(tmp_path: Path) -> None:
    address = StoreAddress(str(tmp_path))
    with holding_process(address.url) as process:
        with pytest.raises(LockedError, match="run killed"):
            Lease.acquire(address.client(), ttl_seconds=LONG)
        process.send_signal(signal.SIGKILL)
        process.wait()
        with Lease.acquire(address.client(), ttl_seconds=LONG) as lease:
            assert lease.fence == 2


def test_another_process_with_the_pid_of_a_dead_holder_is_not_the_holder(blobs: BlobStore) -> None:
    holder = replace(Process.current(), started="1")
    record = LeaseRecord(1, "x", holder, "run-1", "2026-11-20T06:15:33Z", LONG)
    blobs.create("lease/1.json", json.dumps(codec.to_json(record)).encode())
    with Lease.acquire(blobs, ttl_seconds=LONG) as lease:
        assert lease.fence == 2


def test_a_release_that_the_store_refused_does_not_lock_out_the_same_process(
    address: StoreAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = address.client()
    with monkeypatch.context() as refusing, Lease.acquire(blobs, run_id="run-1", ttl_seconds=LONG):
        refusing.setattr(leases, "_create", Mock(side_effect=AbortRun("the store refuses")))
    with Lease.acquire(blobs, ttl_seconds=LONG) as again:
        assert again.fence == 2
        with pytest.raises(LockedError):
            Lease.acquire(blobs, ttl_seconds=LONG)


def test_an_acquisition_whose_answer_was_lost_does_not_lock_out_the_same_process(
    blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as lost:
        lost.setattr(leases, "_is_newest", Mock(side_effect=AbortRun("the store does not answer")))
        with pytest.raises(AbortRun):
            Lease.acquire(blobs, ttl_seconds=LONG)
    with Lease.acquire(blobs, ttl_seconds=LONG) as lease:
        assert lease.fence == 2


@pytest.mark.parametrize("differs", ["boot_id", "namespace"])
def test_a_holder_in_another_container_or_boot_is_not_taken_for_dead(blobs: BlobStore, differs: str) -> None:
    holder = replace(Process.current(), pid=2**22 + 1, **{differs: "another"})
    record = LeaseRecord(1, "x", holder, "run-1", "2026-11-20T06:15:33Z", LONG)
    blobs.create("lease/1.json", json.dumps(codec.to_json(record)).encode())
    with pytest.raises(LockedError):
        Lease.acquire(blobs, ttl_seconds=LONG)


def test_a_lease_of_a_newer_flowctl_is_not_taken(blobs: BlobStore) -> None:
    record = LeaseRecord(1, "x", Process.current(), "run-1", "2026-11-20T06:15:33Z", LONG, released=True, format=2)
    blobs.create("lease/1.json", json.dumps(codec.to_json(record)).encode())
    with pytest.raises(AbortRun, match="format 2") as caught:
        Lease.acquire(blobs, ttl_seconds=LONG)
    assert "newer flowctl" in caught.value.hint


def test_a_silent_holder_elsewhere_is_followed_at_once_by_the_stores_clock(tmp_path: Path) -> None:
    blobs = StoreAddress(str(tmp_path)).client()
    held_elsewhere(blobs, ttl=60)
    written = (tmp_path / "lease" / "1.json").stat().st_mtime
    os.utime(tmp_path / "lease" / "1.json", (written, written - 110))
    with pytest.raises(LockedError, match="elsewhere"):
        Lease.acquire(blobs, ttl_seconds=60)
    os.utime(tmp_path / "lease" / "1.json", (written, written - 130))
    with Lease.acquire(blobs, ttl_seconds=60) as lease:
        assert lease.fence == 2


def test_a_silent_holder_elsewhere_is_followed_after_a_ttl_of_watching(address: StoreAddress) -> None:
    held_elsewhere(address.client(), ttl=2)
    with pytest.raises(LockedError, match=r"run-1 .process 4711 on elsewhere, since 2026-11-20T06:15:33Z"):
        Lease.acquire(address.client(), ttl_seconds=2)
    with Lease.acquire(address.client(), ttl_seconds=2, lock_timeout=60) as lease:
        assert lease.fence == 2


def test_a_holder_that_renews_is_not_taken_over_while_it_is_watched(tmp_path: Path) -> None:
    blobs, ttl = StoreAddress(str(tmp_path)).client(), 2.0
    with Lease.acquire(blobs, ttl_seconds=ttl) as lease:
        with pytest.raises(LockedError):
            Lease.acquire(blobs, ttl_seconds=ttl, lock_timeout=1.5 * ttl)
        lease.check()


def test_waiting_ends_when_the_holder_releases(address: StoreAddress) -> None:
    first = Lease.acquire(address.client(), ttl_seconds=LONG)
    threading.Timer(0.5, first.release).start()
    with Lease.acquire(address.client(), ttl_seconds=2, lock_timeout=60) as lease:
        assert lease.fence > first.fence


def test_renewals_keep_the_fence_and_remove_old_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "KEEP", 2)
    monkeypatch.setattr(leases, "RENEWALS", 30)
    blobs = StoreAddress(str(tmp_path)).client()
    with Lease.acquire(blobs, ttl_seconds=3) as lease:
        deadline = time.monotonic() + 60
        while blobs.get("lease/2.json") is not None or blobs.get("lease/5.json") is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        record = leases.current(blobs)
        assert record is not None
        assert (record.fence, lease.fence) == (1, 1)


def test_a_holder_whose_lease_was_taken_finds_out_at_its_next_renewal(
    blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "RENEWALS", 30)
    with Lease.acquire(blobs, run_id="run-1", ttl_seconds=3) as lease:
        held_elsewhere(blobs, ttl=LONG, number=2)
        deadline = time.monotonic() + 60
        while lease.remaining() > 0:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with pytest.raises(LeaseLost, match=r"taken by run run-1 .process 4711 on elsewhere"):
            lease.check()


def test_a_holder_that_was_unlocked_finds_out_at_its_next_renewal(
    blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "RENEWALS", 30)
    with Lease.acquire(blobs, ttl_seconds=3) as lease:
        deadline, is_broken = time.monotonic() + 60, False
        while lease.remaining() > 0:
            assert time.monotonic() < deadline
            if not is_broken:
                with contextlib.suppress(LockedError):  # a renewal was faster
                    leases.break_lease(blobs)
                    is_broken = True
            time.sleep(0.05)
        with pytest.raises(LeaseLost, match="released by `flowctl state unlock`"):
            lease.check()


def test_check_wants_a_margin(blobs: BlobStore) -> None:
    with Lease.acquire(blobs, ttl_seconds=30) as lease:
        lease.check(margin=10)
        with pytest.raises(LeaseLost, match="could not be renewed in time"):
            lease.check(margin=31)
    with pytest.raises(LeaseLost):
        lease.check()


def test_unlock_releases_in_the_holders_place(address: StoreAddress) -> None:
    blobs = address.client()
    held_elsewhere(blobs, ttl=LONG)
    leases.break_lease(blobs)
    with Lease.acquire(blobs, ttl_seconds=LONG) as lease:
        assert lease.fence == 3


@pytest.mark.parametrize("prefix", ["", "_flowctl/lease/"])
def test_a_second_lease_lies_in_a_place_of_its_own(blobs: BlobStore, prefix: str) -> None:
    with Lease.acquire(blobs, prefix="lease/"), Lease.acquire(blobs, prefix=prefix) as second:
        assert second.fence == 1
        with pytest.raises(LockedError):
            Lease.acquire(blobs, prefix=prefix)
    with Lease.acquire(blobs, prefix=prefix) as third:
        assert third.fence > second.fence


def test_the_ttl_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert leases.ttl_from_environment() == 60
    monkeypatch.setenv("FLOWCTL_LEASE_SECONDS", "2.5")
    assert leases.ttl_from_environment() == 2.5
