"""How long anything may wait for a database, in seconds.

The server bounds locks and statements; statements loosely, as the user decides how long a merge of a billion rows may
take. A server that has stopped responding enforces neither, and its kernel continues to acknowledge packets, so neither
keepalives nor TCP's own time-outs detect it: this process (:mod:`.watch`) and the executors themselves then give up.
:class:`flowctl.run.retry.RetryPolicy` bounds the number of attempts."""

from __future__ import annotations

import os

#: To connect, TLS and login included.
CONNECT = 10.0
#: The same after an interruption: queries are then optional (was it committed? is there something to drop?).
CONNECT_INTERRUPTED = 2.0

#: For any lock without a line of its own here: those of the plan's queries, of executors that write.
LOCK = 60.0
#: For DDL in progress on what is about to be read; flowctl holds nothing while it waits.
SNAPSHOT_LOCK = 300.0
#: For an executor queued behind a session that waits for the snapshot's own lock, and so for flowctl: a longer wait is
#: useless.
READER_LOCK = 10.0
#: For a commit that waits for a foreign lock on the target or another writer of its sequence number; then it retries.
COMMIT_LOCK = 60.0
#: For a staging table whose other writers were terminated a moment ago.
STAGE_LOCK = 10.0
#: To drop leftovers of an older attempt; without the lock they are left to the next attempt.
LEFTOVER_LOCK = 2.0
#: For the file of an embedded database, while another process writes it, or reads it and so keeps writers away.
FILE_LOCK = 30.0
#: For other tables of this run that read the file of an embedded database, which only one connection may write then.
OWN_READERS = 300.0

#: Any single statement.
STATEMENT = 24 * 3600.0
#: Without a row sent or accepted, in an executor: a view may sort for a long time before its first row.
EXECUTOR_SILENCE = 1800.0
#: After a call has lasted this long, the server is probed over another connection.
SILENCE = 60.0
#: After this many consecutive probes without an answer, the call is abandoned.
UNANSWERED = 2
#: For data sent but not acknowledged, and for dead peers: failures of the network.
TCP_UNACKNOWLEDGED = 60.0
KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_COUNT = 30.0, 10.0, 3
#: Interval at which the connection that holds a snapshot sends a statement.
PING = 30.0

#: For the request that cancels one of flowctl's statements; then its socket is closed.
CANCEL = 2.0


def idle_in_commit() -> float:
    """Between two statements of a commit, before the server ends its transaction. A process that pauses there for
    longer than a lease's TTL was suspended and has lost the lease; recovery waits until its transaction ends."""
    return float(os.environ.get("FLOWCTL_LEASE_SECONDS") or 60.0)


def milliseconds(seconds: float) -> str:
    """In the format of PostgreSQL's settings."""
    return f"{round(seconds * 1000)}ms"
