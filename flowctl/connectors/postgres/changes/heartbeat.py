"""Messages in the source's log that move an idle stream on, on request.

While nothing of a stream changes, no batch lands: the slot keeps its log, and nobody can tell a quiet source from a
stuck stream. A heartbeat is a transaction with nothing but a message (`pg_logical_emit_message`). It changes no table,
and has the time of its commit.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flowctl.model.position import lsn_from_text

if TYPE_CHECKING:
    import psycopg


@dataclass
class Heartbeat:
    """``seconds``: a message is written when no batch has landed for so long."""

    connection: psycopg.Connection[Any]
    seconds: float
    name: str
    _durable: int = 0
    _since: float = field(default_factory=time.monotonic)
    _written: int | None = None

    def has_arrived(self, seen: int, durable: int) -> bool:
        """Call between transactions, with what has been delivered and what has landed: writes a message when it is
        time, and returns whether the last one, and with it everything before, has been delivered."""
        if durable != self._durable:
            self._durable, self._since, self._written = durable, time.monotonic(), None
        if self._written is not None:
            return seen > self._written
        if time.monotonic() - self._since >= self.seconds:
            self._written = self._write()
        return False

    def _write(self) -> int:
        query = "SELECT pg_logical_emit_message(true, 'flowctl', %s)::text"
        row = self.connection.execute(query, [self.name]).fetchone()
        assert row is not None
        return lsn_from_text(row[0]).lsn
