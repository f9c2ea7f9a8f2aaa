"""The tables below a table of a stream: partitions, or children by inheritance.

A publication of a partitioned table sends the changes of its rows, but nothing when a partition is attached, detached,
dropped or truncated: rows come and go without a change. The catalog tells that it has happened since the last look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowctl.connectors.postgres.publications import REPLICA_IDENTITY

if TYPE_CHECKING:
    import psycopg


@dataclass(frozen=True)
class Below:
    """A table that holds rows of another one. ``id`` is new when it, or a partition that it is part of, is attached
    again; ``file`` is new when its rows are written to another file: by TRUNCATE, and by whatever rewrites a table.
    ``is_new_born``: it was a partition from the beginning, so all of its rows came as changes. ``identity`` are the
    columns of its replica identity, ``identifies_by_all`` whether that is FULL."""

    name: str
    id: str
    file: int
    is_empty: bool
    is_new_born: bool
    is_foreign: bool
    is_logged: bool
    identifies_by_all: bool
    identity: Sequence[str]

    def described(self) -> dict[str, str | bool]:
        """As in :attr:`TableInfo.extra`: whether it may have had rows before it became a partition."""
        brings_rows = not (self.is_new_born or self.is_empty)
        return {"id": self.id, "file": str(self.file), "is_empty": self.is_empty, "brings_rows": brings_rows}


def below(connection: psycopg.Connection[Any], oids: Sequence[int]) -> dict[int, list[Below]]:
    """The tables below each of these, without those that are partitioned themselves. Relations that have none are left
    out."""
    found: dict[int, list[Below]] = {}
    for oid, *facts in connection.execute(_BELOW, [list(oids)]).fetchall():
        found.setdefault(oid, []).append(Below(*facts))
    return found


#: CREATE TABLE … PARTITION OF writes a column's row in the catalog once, or twice if it has a default, by consecutive
#: commands. ATTACH and DETACH write all of them again; if the table got rows before, there was a command in between.
#: `inhdetachpending` exists since PostgreSQL 14.
_BELOW = f"""
    WITH RECURSIVE below(root, oid, id, is_new_born) AS (
        SELECT o, o, '', true FROM unnest(%s::oid[]) AS o
        UNION ALL
        SELECT b.root, i.inhrelid, b.id || i.xmin::text || '/', b.is_new_born AND EXISTS (
            SELECT FROM pg_attribute s JOIN pg_attribute a ON a.attrelid = s.attrelid AND a.xmin = s.xmin
            WHERE s.attrelid = i.inhrelid AND s.attname = 'ctid' AND s.attnum < 0
                AND a.attnum > 0 AND NOT a.attisdropped AND a.cmin::text::bigint <= s.cmin::text::bigint + 1
        )
        FROM below b JOIN pg_inherits i ON i.inhparent = b.oid
            AND (to_jsonb(i) ->> 'inhdetachpending') IS DISTINCT FROM 'true'
    )
    SELECT b.root::bigint, quote_ident(n.nspname) || '.' || quote_ident(c.relname), b.id || c.oid,
        coalesce(pg_relation_filenode(c.oid), 0)::bigint, coalesce(pg_relation_size(c.oid), 0) = 0, b.is_new_born,
        c.relkind = 'f', c.relpersistence = 'p', c.relreplident = 'f', coalesce({REPLICA_IDENTITY}, '{{}}')
    FROM below b JOIN pg_class c ON c.oid = b.oid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE b.oid <> b.root AND c.relkind <> 'p'
    ORDER BY 1, 2
"""
