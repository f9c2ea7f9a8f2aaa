"""What works today and may hurt later: limits that are nearly reached, and a log that is kept without one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowctl import text
from flowctl.connectors.stream import StreamProblem

if TYPE_CHECKING:
    import psycopg

#: Seconds that a transaction writes before it is told of: a slot is not created while one does.
_LONG_SECONDS = 600
#: `wal_status` of a slot whose log goes beyond what the server would keep by itself, or is about to be removed.
_BEYOND = {
    "extended": "goes beyond max_wal_size",
    "unreserved": "is removed at the next checkpoint, unless it is read",
}

_MORE_SLOTS = "ALTER SYSTEM SET max_replication_slots = …, then restart the server; or drop one that nobody reads"


@dataclass(frozen=True)
class Limits:
    """``most`` are numbers that the server allows, ``free`` how many are left; -1 in ``keeps`` (megabytes): no
    limit."""

    keeps: int
    most_slots: int
    free_slots: int
    most_senders: int
    free_senders: int
    longest: int | None
    prepared: int


def limits(connection: psycopg.Connection[Any]) -> Limits:
    row = connection.execute(_LIMITS).fetchone()
    assert row is not None
    return Limits(*row)


_LIMITS = """
    WITH settings(name, value) AS (SELECT name, setting::bigint FROM pg_settings WHERE name IN
        ('max_slot_wal_keep_size', 'max_replication_slots', 'max_wal_senders')),
    most(keeps, slots, senders) AS (SELECT
        (SELECT value FROM settings WHERE name = 'max_slot_wal_keep_size'),
        (SELECT value FROM settings WHERE name = 'max_replication_slots'),
        (SELECT value FROM settings WHERE name = 'max_wal_senders'))
    SELECT most.keeps, most.slots, most.slots - (SELECT count(*) FROM pg_replication_slots),
        most.senders, most.senders - (SELECT count(*) FROM pg_stat_replication),
        (SELECT max(extract(epoch FROM clock_timestamp() - xact_start))::bigint FROM pg_stat_activity
         WHERE backend_xid IS NOT NULL AND datname = current_database()),
        (SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()
            AND prepared < clock_timestamp() - interval '10 minutes')
    FROM most
"""


def exhausted(found: Limits, *, has_slot: bool) -> Iterator[StreamProblem]:
    """What keeps a slot from being created."""
    if not has_slot and found.free_slots < 1:
        yield StreamProblem(f"all of the server's {found.most_slots} replication slots are taken", _MORE_SLOTS)


def advice(found: Limits, wal_status: str, slot: str) -> Iterator[StreamProblem]:
    if wal_status in _BEYOND:
        what = f"the log that the slot {slot} needs {_BEYOND[wal_status]} (wal_status = {wal_status})"
        yield StreamProblem(what, "Run `flowctl apply` more often, or raise max_slot_wal_keep_size")
    if found.keeps < 0:
        yield StreamProblem(
            "the server keeps its log for a slot without limit: a stream that does not run fills its disk",
            "ALTER SYSTEM SET max_slot_wal_keep_size = '50GB', or what its disk can spare, then reload",
        )
    if found.free_slots < 1:
        yield StreamProblem(
            f"all of the server's {found.most_slots} replication slots are taken: a new table needs one for its "
            "snapshot",
            _MORE_SLOTS,
        )
    if found.free_senders < 2:
        yield StreamProblem(
            f"{max(found.free_senders, 0)} of the server's {found.most_senders} WAL senders are left: a stream needs "
            "one, and one more for a snapshot",
            "ALTER SYSTEM SET max_wal_senders = …, then restart the server",
        )
    if found.longest is not None and found.longest > _LONG_SECONDS:
        yield StreamProblem(
            f"a transaction has been writing for {text.duration(found.longest)}: no snapshot begins before it ends",
            "Look for it in pg_stat_activity, ordered by xact_start",
        )
    if found.prepared:
        yield StreamProblem(
            f"{text.counted(found.prepared, 'prepared transaction')} older than ten minutes: no snapshot begins before "
            "it ends",
            "Look for it in pg_prepared_xacts: COMMIT PREPARED, or ROLLBACK PREPARED",
        )
