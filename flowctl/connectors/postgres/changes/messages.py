"""pgoutput's messages (protocol version 1) that this process reads one by one: those of transactions and tables.

Messages about rows are kept as they arrive, and decoded by column (:mod:`.tuples`). Source: PostgreSQL's manual,
"Logical Replication Message Formats".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

#: Microseconds from 1970 to 2000, where PostgreSQL's clock begins.
EPOCH_MICROSECONDS = 946_684_800 * 1_000_000

_BEGIN = struct.Struct(">QqI")
_COMMIT = struct.Struct(">BQQq")


@dataclass(frozen=True)
class Begin:
    """``lsn`` is where the commit's record begins: it orders transactions. ``at`` is the time of the commit, in
    microseconds since 1970."""

    lsn: int
    at: int
    xid: int


@dataclass(frozen=True)
class RelationColumn:
    """``is_identity``: the column is part of the replica identity."""

    name: str
    type_oid: int
    modifier: int
    is_identity: bool


@dataclass(frozen=True)
class Relation:
    """``identity`` is `pg_class.relreplident`: ``d``, ``n``, ``f`` or ``i``."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


def begin(body: bytes) -> Begin:
    """``body`` is the message after its kind, here and below."""
    lsn, at, xid = _BEGIN.unpack_from(body)
    return Begin(lsn, at + EPOCH_MICROSECONDS, xid)


def commit_end(body: bytes) -> int:
    """The LSN right after the transaction: where reading continues."""
    _, _, end, _ = _COMMIT.unpack_from(body)
    return int(end)


def relation(body: bytes) -> Relation:
    (oid,) = struct.unpack_from(">I", body)
    schema, at = _text(body, 4)
    name, at = _text(body, at)
    identity, count = struct.unpack_from(">cH", body, at)
    at += 3
    columns = []
    for _ in range(count):
        flags = body[at]
        column, at = _text(body, at + 1)
        type_oid, modifier = struct.unpack_from(">Ii", body, at)
        at += 8
        columns.append(RelationColumn(column, type_oid, modifier, bool(flags & 1)))
    return Relation(oid, schema or "pg_catalog", name, identity.decode(), tuple(columns))


def truncated(body: bytes) -> tuple[int, ...]:
    """The OIDs of the tables that one TRUNCATE empties."""
    (count,) = struct.unpack_from(">I", body)
    return struct.unpack_from(f">{count}I", body, 5)


def _text(body: bytes, at: int) -> tuple[str, int]:
    end = body.index(0, at)
    return body[at:end].decode(), end + 1
