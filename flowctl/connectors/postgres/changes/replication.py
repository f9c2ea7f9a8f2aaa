"""A replication connection: libpq's copy protocol, and the messages of streaming replication inside it.

psycopg executes replication commands by the simple protocol; the stream itself is read from libpq, without an object
per message. The server ends a connection that sends no feedback for ``wal_sender_timeout``, so feedback is sent while
reading, and while nothing is read.
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flowctl.connectors.postgres.changes.messages import EPOCH_MICROSECONDS
from flowctl.connectors.postgres.client import SESSION_SETTINGS, Client, translated
from flowctl.connectors.postgres.columns import quoted, text_literal
from flowctl.errors import TransientError
from flowctl.model.position import LsnPosition

if TYPE_CHECKING:
    import psycopg

#: Seconds between two feedback messages while reading; `wal_sender_timeout` is 60 s by default.
FEEDBACK_SECONDS = 5.0
#: XLogData: kind, start, end, clock; then the message of the output plugin.
HEADER = 25
#: Older servers send the begin and end of every transaction, whatever is in it.
_MESSAGES_SINCE = 140000
_FEEDBACK = struct.Struct(">cQQQqB")
_KEEPALIVE = struct.Struct(">xQqB")
#: Walsenders have no statements to bound, and run as long as the stream is read.
_SETTINGS = {**SESSION_SETTINGS, "statement_timeout": "0", "client_encoding": "UTF8"}


@contextmanager
def replication_connection(client: Client) -> Iterator[psycopg.Connection[Any]]:
    """A walsender of the database; errors of the driver inside the block are raised as flowctl's."""
    import psycopg

    settings = {name: value for name, value in _SETTINGS.items() if name != "lock_timeout"}
    conninfo = psycopg.conninfo.make_conninfo(client.conninfo(settings), replication="database")
    with translated(client), closing(psycopg.connect(conninfo, autocommit=True)) as connection:
        yield connection


def result_rows(result: Any) -> list[dict[str, str | None]]:
    """The rows of a replication command, by column."""
    from psycopg.errors import error_from_result
    from psycopg.pq import ExecStatus

    if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        raise error_from_result(result, "utf-8")
    names = [(result.fname(at) or b"").decode() for at in range(result.nfields)]
    return [
        {name: _decoded(result.get_value(row, at)) for at, name in enumerate(names)} for row in range(result.ntuples)
    ]


def _decoded(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).decode()


@dataclass
class ReplicationStream:
    """The running stream of one slot. ``seen``: everything that committed before it has been delivered."""

    connection: psycopg.Connection[Any]
    seen: int
    _fed_at: float = field(default_factory=time.monotonic)

    def arrived(self, most: int) -> Iterator[memoryview]:
        """Up to ``most`` messages of the output plugin, each with its header, without waiting. Keepalives move
        :attr:`seen`."""
        pgconn: Any = self.connection.pgconn
        get = pgconn.get_copy_data
        for _ in range(most):
            size, data = get(1)
            if size == 0:
                pgconn.consume_input()
                size, data = get(1)
                if size == 0:
                    return
            if size < 0:
                self._raise_end()
            if data[0] == 119:  # w
                yield data
            elif data[0] == 107:  # k
                end, _, _ = _KEEPALIVE.unpack_from(data)
                self.seen = max(self.seen, end)

    def wait(self, seconds: float) -> None:
        """Until there is something to read."""
        poll = select.poll()
        poll.register(self.connection.pgconn.socket, select.POLLIN)
        poll.poll(seconds * 1000)

    def feed(self, durable: int, *, ask: bool = False) -> None:
        """Reports what is durable; ``ask`` requests a keepalive, which tells how far the server has read its log."""
        pgconn: Any = self.connection.pgconn
        now = int(time.time() * 1e6) - EPOCH_MICROSECONDS
        pgconn.put_copy_data(_FEEDBACK.pack(b"r", max(self.seen, durable), durable, durable, now, int(ask)))
        self._flush()
        self._fed_at = time.monotonic()

    @property
    def is_feedback_due(self) -> bool:
        return time.monotonic() - self._fed_at >= FEEDBACK_SECONDS

    def end(self, durable: int, seconds: float = 5.0) -> None:
        """Reports what is durable, and returns when the server has taken notice or the time is over."""
        self.feed(durable, ask=True)
        until = time.monotonic() + seconds
        pgconn: Any = self.connection.pgconn
        while time.monotonic() < until:
            size, data = pgconn.get_copy_data(1)
            if size > 0 and data[0] == 107:
                return
            if size < 0:
                return
            if size == 0:
                select.select([pgconn.socket], [], [], 0.2)
                pgconn.consume_input()

    def _flush(self) -> None:
        pgconn: Any = self.connection.pgconn
        while pgconn.flush():
            select.select([], [pgconn.socket], [], 1.0)

    def _raise_end(self) -> None:
        from psycopg.errors import error_from_result
        from psycopg.pq import ExecStatus

        result = self.connection.pgconn.get_result()
        if result is not None and result.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(result, "utf-8")
        raise TransientError("PostgreSQL ended the replication", hint="Check that the server is up: it starts again")


def start(
    connection: psycopg.Connection[Any], slot: str, publication: str, after: int, *, messages: bool = False
) -> ReplicationStream:
    """Streams what committed at or after ``after``; with ``messages``, transactions that have nothing else too. A
    server whose slot is already further sends from there without an error: check `confirmed_flush_lsn` first."""
    from psycopg.errors import error_from_result
    from psycopg.pq import ExecStatus

    options = f"proto_version '1', publication_names {text_literal(quoted(publication))}"
    if messages and connection.info.server_version >= _MESSAGES_SINCE:
        options += ", messages 'true'"
    result = connection.pgconn.exec_(
        f"START_REPLICATION SLOT {quoted(slot)} LOGICAL {LsnPosition(after)} ({options})".encode()
    )
    if result.status != ExecStatus.COPY_BOTH:
        raise error_from_result(result, "utf-8")
    connection.pgconn.nonblocking = 1
    return ReplicationStream(connection, after)
