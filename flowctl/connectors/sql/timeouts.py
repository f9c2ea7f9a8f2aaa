"""How long anything may wait for a database, in seconds.

A lock and a statement are bounded by the server; a statement loosely, as how long a merge of a billion rows takes is
the user's business. A server that has stopped answering keeps no promise about either, and its kernel continues to
acknowledge packets, so neither keepalives nor TCP's own time-outs see it: there this process (:mod:`.watch`) and the
executors themselves give up. :class:`flowctl.run.retry.RetryPolicy` bounds how often something is tried."""

from __future__ import annotations

import os

#: To connect, TLS and login included.
CONNECT = 10.0
#: The same once the run was interrupted: what is asked then is a courtesy (has it landed? is there something to drop?).
CONNECT_INTERRUPTED = 2.0

#: For any lock that no other line of these is about: of the plan's queries, of executors that write.
LOCK = 60.0
#: For DDL in progress on what is about to be read; nothing is held while we wait.
SNAPSHOT_LOCK = 300.0
#: Of an executor behind somebody who waits for the snapshot's own lock. More would be in vain: it waits for us.
READER_LOCK = 10.0
#: Of a commit, for somebody else's lock on the target or for another writer of its number; then it is tried again.
COMMIT_LOCK = 60.0
#: For a staging table whose other writers were ended a moment ago.
STAGE_LOCK = 10.0
#: To drop what an older try has left; who does not get it leaves it to the next.
LEFTOVER_LOCK = 2.0
#: Of SQLite, for another process that writes to the file, or reads it outside of WAL mode.
SQLITE_LOCK = 30.0

#: Any single statement.
STATEMENT = 24 * 3600.0
#: No row arrives or is taken, in an executor: a view may sort for a long time before its first row.
EXECUTOR_SILENCE = 1800.0
#: A call has not returned for so long: the server is asked, over another connection, whether it is still there.
SILENCE = 60.0
#: So many times in a row without an answer, and the call is given up.
UNANSWERED = 2
#: What was sent and is not acknowledged, and dead peers: for the network between us.
TCP_UNACKNOWLEDGED = 60.0
KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_COUNT = 30.0, 10.0, 3
#: The connection that holds a snapshot says something at least so often.
PING = 30.0

#: For the request that ends a statement of ours; then its socket is closed.
CANCEL = 2.0


def idle_in_commit() -> float:
    """Between two statements of a commit, before the server ends its transaction. What stops there for longer than a
    lease's TTL was suspended, and has lost the lease; until its transaction ends, whoever recovers waits for it."""
    return float(os.environ.get("FLOWCTL_LEASE_SECONDS") or 60.0)


def milliseconds(seconds: float) -> str:
    """As PostgreSQL's settings take it."""
    return f"{round(seconds * 1000)}ms"
