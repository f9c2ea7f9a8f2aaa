"""The lease: who may change a flow's state, or write to a table that allows only one writer.

It is a log, ``<prefix><n>.json``: whoever creates the next number holds the lease. The holder renews by creating the
next number after a third of the TTL, from a thread that does nothing else. Its ``fence`` is the number it was acquired
with; it increases from holder to holder. Clocks of two hosts are never compared. A lease is taken over

* immediately, if it was released, or if the holder ran on this host (same boot, same process namespace) and has ended,
  or was this process and has given it up: a release that the store refused must not lock out the same process;
* if the *store's* clock shows that nothing was created for two TTLs: a cron container on a new host must not wait for
  a dead one;
* if nothing was created during one TTL of watching, by a clock that includes system sleep.

The holder counts the TTL from before the renewal was sent, a taker from after it was seen, so the holder always stops
first. Old numbers are removed, so a number may be free again when a suspended creator wakes up. Its create therefore
counts only if, afterwards, its TTL has not expired (renewal) or its number is the newest (acquisition).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import math
import os
import re
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from flowctl.errors import AbortRun, LeaseLost, LockedError
from flowctl.model import codec
from flowctl.model.codec import in_json
from flowctl.state.process import Process
from flowctl.storage.blobs import BlobStore

FORMAT = 1
DEFAULT_TTL_SECONDS = 60.0
#: How many superseded numbers are kept for inspection.
KEEP = 8
#: Renewals during one TTL.
RENEWALS = 3
#: How long a release waits for a renewal in progress.
RELEASE_SECONDS = 5.0
#: Tokens of the leases that this process holds, or is about to.
_HELD: set[str] = set()


@dataclass(frozen=True)
class LeaseRecord:
    """One number of the log. ``since`` (RFC 3339, the holder's clock) is for display. ``token`` identifies one
    holder."""

    fence: int
    token: str
    holder: Process
    run_id: str
    since: str
    ttl_seconds: float = field(metadata=in_json(name="life_seconds"))
    released: bool = False
    format: int = FORMAT

    def describe(self) -> str:
        who = f"run {self.run_id} " if self.run_id else ""
        return f"{who}(process {self.holder.pid} on {self.holder.host}, since {self.since})"


def ttl_from_environment() -> float:
    """``FLOWCTL_LEASE_SECONDS``, or 60 s."""
    return float(os.environ.get("FLOWCTL_LEASE_SECONDS") or DEFAULT_TTL_SECONDS)


def current(blobs: BlobStore, prefix: str = "lease/") -> LeaseRecord | None:
    """The newest record, or None if the lease was never acquired. It may be released or dead."""
    newest = _newest(blobs, prefix)
    return newest.record if newest else None


def break_lease(blobs: BlobStore, prefix: str = "lease/") -> None:
    """``state unlock``: releases the lease on behalf of its holder, whoever that is. A running holder notices at its
    next renewal; until then, only the conditional state write prevents two writers."""
    newest = _newest(blobs, prefix)
    if newest and not newest.record.released:
        released = replace(newest.record, released=True, token=uuid.uuid4().hex)
        if not blobs.create(_name(prefix, newest.number + 1), _encode(released)):
            raise LockedError("the lease changed hands meanwhile", hint="Look again")


class Lease:
    """A held lease. Use as a context manager: it is released on exit, also after errors."""

    def __init__(self, blobs: BlobStore, prefix: str, record: LeaseRecord, number: int, valid_until: float) -> None:
        self._blobs = blobs
        self._prefix = prefix
        self._record = record
        self._number = number
        self._valid_until = valid_until
        self._first_try: float | None = None
        self._lost = ""
        self._ended = threading.Event()
        self._remove_old()
        self._renewer = threading.Thread(target=self._keep_renewing, name=f"lease {prefix}", daemon=True)
        self._renewer.start()

    @classmethod
    def acquire(
        cls,
        blobs: BlobStore,
        *,
        prefix: str = "lease/",
        run_id: str = "",
        ttl_seconds: float | None = None,
        lock_timeout: float = 0.0,
    ) -> Lease:
        """Acquires the lease, waiting up to ``lock_timeout`` seconds; :class:`LockedError` names the holder. ``prefix``
        ends in a slash, or is empty if the store contains only this lease (a table's own)."""
        wanted = LeaseRecord(
            fence=0,
            token=uuid.uuid4().hex,
            holder=Process.current(),
            run_id=run_id,
            since=dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            ttl_seconds=ttl_seconds or ttl_from_environment(),
        )
        _HELD.add(wanted.token)  # before the first create: another thread may see the record at once
        try:
            for number in _chances(blobs, prefix, lock_timeout):
                started = _clock()
                record = replace(wanted, fence=number)
                if _create(blobs, prefix, number, record) and _is_newest(blobs, prefix, number):
                    return cls(blobs, prefix, record, number, started + record.ttl_seconds)
        except BaseException:
            _HELD.discard(wanted.token)
            raise
        raise AssertionError("unreachable: _chances ends with LockedError")

    @property
    def fence(self) -> int:
        """Higher than that of every previous holder."""
        return self._record.fence

    @property
    def run_id(self) -> str:
        return self._record.run_id

    def remaining(self) -> float:
        """Remaining seconds of the TTL by this machine's clock, including system sleep; 0 if the lease is lost."""
        return 0.0 if self._lost else max(0.0, self._valid_until - _clock())

    def check(self, margin: float = 0.0) -> None:
        """Raises :class:`LeaseLost` unless more than ``margin`` seconds are left. Call before each step and commit."""
        left = self.remaining()
        if left <= margin:
            reason = (
                self._lost or f"it could not be renewed in time ({left:.1f} s left of {self._record.ttl_seconds:g})"
            )
            raise LeaseLost(
                f"the lease was lost: {reason}", hint="Run again: what is committed already is found in the targets"
            )

    def release(self) -> None:
        """Ends the lease so that it can be taken immediately. Call only when nothing of this run can still write."""
        self._ended.set()
        # Do not wait for a renewal that hangs: either it or the release gets the next number.
        self._renewer.join(timeout=RELEASE_SECONDS)
        try:
            if self.remaining() > 0:
                # If refused, another holder has just acquired it, and there is nothing left to release.
                _create(self._blobs, self._prefix, self._number + 1, replace(self._record, released=True))
        finally:
            self._valid_until = -math.inf
            _HELD.discard(self._record.token)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        # If the store cannot be reached, the lease expires by itself; the block's own error must not be hidden.
        with contextlib.suppress(AbortRun):
            self.release()

    def _keep_renewing(self) -> None:
        wait = self._record.ttl_seconds / RENEWALS
        while not self._ended.wait(wait):
            try:
                self._renew()
                wait = self._record.ttl_seconds / RENEWALS
            except AbortRun:  # the store cannot be reached: keep trying until the TTL expires
                wait = min(1.0, self._record.ttl_seconds / 20)
            if self.remaining() <= 0:
                return

    def _renew(self) -> None:
        if _clock() >= self._valid_until:
            return
        # A taker may have seen an attempt whose response was lost, so the TTL counts from the first attempt.
        self._first_try = self._first_try or _clock()
        if not _create(self._blobs, self._prefix, self._number + 1, self._record):
            self._lost = self._reason()
            return
        if _clock() < self._valid_until:
            self._number += 1
            self._valid_until = self._first_try + self._record.ttl_seconds
            self._first_try = None
            self._remove_old()

    def _reason(self) -> str:
        taker = current(self._blobs, self._prefix)
        if taker is None or taker.fence == self.fence:
            return "it was released by `flowctl state unlock`"
        return f"it was taken by {taker.describe()}"

    def _remove_old(self) -> None:
        for info in self._blobs.list(self._prefix):
            number = _number(self._prefix, info.name)
            # Leftover probes of takers that died; an active taker whose probe disappears keeps watching.
            if (number is None and info.name.startswith(f"{self._prefix}probe-")) or (
                number is not None and number <= self._number - KEEP
            ):
                self._blobs.delete(info.name)


@dataclass(frozen=True)
class _Newest:
    number: int
    record: LeaseRecord


def _chances(blobs: BlobStore, prefix: str, lock_timeout: float) -> Iterator[int]:
    """Yields numbers that may be created now because nobody holds the lease; waits in between. Raises
    :class:`LockedError` at the timeout."""
    deadline = _clock() + lock_timeout
    watched_number, watched_since = 0, _clock()
    while True:
        newest = _newest(blobs, prefix)
        if newest is None:
            yield 1
            continue
        first_seen = newest.number != watched_number
        if first_seen:
            watched_number, watched_since = newest.number, _clock()
        unchanged_for = _clock() - watched_since
        if (
            _is_free(newest.record)
            or unchanged_for > newest.record.ttl_seconds
            or (first_seen and _is_stale(blobs, prefix, newest))
        ):
            yield newest.number + 1
            continue
        if _clock() >= deadline:
            raise LockedError(
                f"locked by {newest.record.describe()}",
                hint="Wait for it (`--lock-timeout 10m`); if it is surely dead, `flowctl state unlock`",
            )
        time.sleep(min(1.0, newest.record.ttl_seconds / 20, max(0.0, deadline - _clock()) + 0.01))


def _is_free(record: LeaseRecord) -> bool:
    given_up = record.holder.is_this() and record.token not in _HELD
    return record.released or given_up or record.holder.is_gone()


def _is_stale(blobs: BlobStore, prefix: str, newest: _Newest) -> bool:
    """Whether nothing was created for two TTLs by the store's own clock."""
    probe = f"{prefix}probe-{uuid.uuid4().hex}"
    blobs.create(probe, b"")
    try:
        modified = {info.name: info.modified for info in blobs.list(prefix)}
    finally:
        blobs.delete(probe)
    created = modified.get(_name(prefix, newest.number))
    if created is None or probe not in modified:
        return False
    # At least two seconds: object stores round times to one second.
    margin = max(newest.record.ttl_seconds, 2.0)
    return (modified[probe] - created).total_seconds() > newest.record.ttl_seconds + margin


def _create(blobs: BlobStore, prefix: str, number: int, record: LeaseRecord) -> bool:
    """Whether this number now belongs to this holder. A refused create may have succeeded if its response was
    lost."""
    if blobs.create(_name(prefix, number), _encode(record)):
        return True
    found = _read(blobs, prefix, number)
    return found is not None and (found.token, found.released) == (record.token, record.released)


def _is_newest(blobs: BlobStore, prefix: str, number: int) -> bool:
    return max(_numbers(blobs, prefix), default=0) == number


def _newest(blobs: BlobStore, prefix: str) -> _Newest | None:
    while (number := max(_numbers(blobs, prefix), default=0)) > 0:
        record = _read(blobs, prefix, number)
        if record is not None:
            return _Newest(number, record)
    return None


def _numbers(blobs: BlobStore, prefix: str) -> list[int]:
    return [number for info in blobs.list(prefix) if (number := _number(prefix, info.name)) is not None]


def _number(prefix: str, name: str) -> int | None:
    match = re.fullmatch(r"(\d+)\.json", name.removeprefix(prefix))
    return int(match[1]) if match else None


def _read(blobs: BlobStore, prefix: str, number: int) -> LeaseRecord | None:
    data = blobs.get(_name(prefix, number))
    if data is None:
        return None
    try:
        record = codec.from_json(LeaseRecord, json.loads(data))
        if record.format != FORMAT:
            raise ValueError(f"format {record.format}")
        return record
    except (ValueError, KeyError, TypeError) as cause:
        raise AbortRun(
            f"lease {blobs.url}/{_name(prefix, number)} cannot be read ({cause})",
            hint="Delete it when nothing is running: a newer flowctl wrote it, or it is damaged",
        ) from cause


def _name(prefix: str, number: int) -> str:
    return f"{prefix}{number}.json"


def _encode(record: LeaseRecord) -> bytes:
    return (json.dumps(codec.to_json(record), indent=2) + "\n").encode()


def _clock() -> float:
    """Monotonic seconds, including system sleep where the platform supports it."""
    boot_time = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot_time is None else time.clock_gettime(boot_time)
