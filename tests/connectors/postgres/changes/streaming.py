"""PostgreSQL's stream in :mod:`tests.connectors.captured`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from flowctl.connectors.postgres import copy_reading
from flowctl.connectors.postgres.changes.stream import PostgresStreams
from flowctl.connectors.postgres.client import client
from flowctl.connectors.postgres.columns import transfer
from flowctl.connectors.postgres.conditions import COMPARISONS
from flowctl.connectors.source import Relation
from flowctl.connectors.sql.parts import Cut, Parts
from flowctl.model.position import LsnPosition, lsn_from_text
from flowctl.model.table_info import Column, ObjectName
from tests.connectors import captured


class Captured(captured.Captured):
    def opened(self) -> PostgresStreams:
        return PostgresStreams(client({"url": self.url}))

    def head(self) -> LsnPosition:
        """Behind everything that has committed, also without waiting for the disk."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = on")
            connection.execute("SELECT pg_logical_emit_message(true, 'flowctl', 'flushes the log')")
            row = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
            assert row is not None
            return lsn_from_text(row[0])

    def snapshot_rows(
        self, object: ObjectName, found: Sequence[Column], wanted: Sequence[Column]
    ) -> list[dict[str, Any]]:
        """What a reader of the whole table gets now. ``found`` are its columns, ``wanted`` have the types to read."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("SET TimeZone = 'UTC'; SET IntervalStyle = 'postgres'; SET extra_float_digits = 3")
            transfers = tuple(transfer(*pair) for pair in zip(wanted, found, strict=True))
            parts = Parts(transfers, COMPARISONS.from_clause(Relation(object)), Cut(), "true")
            return [row for batch in copy_reading.read_here(connection, parts) for row in batch.to_pylist()]
