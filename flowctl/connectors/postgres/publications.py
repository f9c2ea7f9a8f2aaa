"""Publications that have a target's tables. Of a published table without a replica identity, PostgreSQL refuses every
update and deletion, also of no row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flowctl.connectors.postgres import catalog

if TYPE_CHECKING:
    import psycopg

_SCHEMAS_SINCE = 150000
#: How many statements a message has at most.
_STATEMENTS = 3
#: The columns of ``pg_class c`` that the log has of a row before its change; null if the table has no replica identity.
#: A deferrable key is none.
REPLICA_IDENTITY = f"""
    CASE c.relreplident
        WHEN 'f' THEN (SELECT array_agg(a.attname ORDER BY a.attnum) FROM pg_attribute a
                       WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
        WHEN 'n' THEN NULL
        ELSE (SELECT {catalog.INDEX_KEY} FROM pg_index i
              WHERE i.indrelid = c.oid AND i.indimmediate
                AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END)
    END
"""


def identify_by_all_columns(table: str) -> str:
    return f"ALTER TABLE {table} REPLICA IDENTITY FULL"


def identify_all_by_all_columns(root: str, tables: Sequence[str]) -> str:
    """The statements for ``tables``, which are ``root`` and its partitions; for many, the query that makes them."""
    if len(tables) <= _STATEMENTS:
        return "; ".join(identify_by_all_columns(table) for table in tables)
    statement, tree = identify_by_all_columns("%s"), root.replace("'", "''")
    return f"`SELECT format('{statement}', relid::regclass) FROM pg_partition_tree('{tree}') \\gexec` in psql"


def publishing_schemas(connection: psycopg.Connection[Any], schemas: Sequence[str]) -> set[str]:
    """Those of ``schemas``, which may not exist, whose new tables are published with updates or deletions."""
    query = _PUBLISHING_SCHEMAS.format(listed=_listed(connection.info.server_version))
    return {name for (name,) in connection.execute(query.encode(), [list(schemas)]).fetchall()}


def without_identity(version: int) -> str:
    """The query for what of tables, given by their OIDs, cannot be written: their OID, the table itself or one of its
    partitions and children, and the statement that is refused (``UPDATE``, ``DELETE``)."""
    return _WITHOUT_IDENTITY.format(listed=_listed(version))


def _listed(version: int) -> str:
    """The schemas that publications list, if this version has such."""
    if version >= _SCHEMAS_SINCE:
        return "pg_publication_namespace AS l"
    return "(SELECT 0::oid, 0::oid WHERE false) AS l(pnpubid, pnnspid)"


_PUBLISHING_SCHEMAS = """
    SELECT w.name FROM unnest(%s::text[]) AS w(name) WHERE EXISTS (
        SELECT FROM pg_publication p WHERE (p.pubupdate OR p.pubdelete) AND (p.puballtables OR EXISTS (
            SELECT FROM {listed} JOIN pg_namespace n ON n.oid = l.pnnspid
            WHERE l.pnpubid = p.oid AND n.nspname = w.name)))
"""
#: A partition is published with what it is part of, but has its own replica identity.
_WITHOUT_IDENTITY = f"""
    WITH RECURSIVE below(root, oid) AS (
        SELECT o, o FROM unnest(%s::oid[]) AS o
        UNION
        SELECT b.root, i.inhrelid FROM below b JOIN pg_inherits i ON i.inhparent = b.oid
    ),
    unnamed(root, oid, name) AS (
        SELECT b.root, c.oid, quote_ident(n.nspname) || '.' || quote_ident(c.relname)
        FROM below b JOIN pg_class c ON c.oid = b.oid JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE EXISTS (SELECT FROM pg_publication) AND c.relkind = 'r' AND c.relpersistence = 'p'
            AND {REPLICA_IDENTITY} IS NULL
    ),
    whole(leaf, oid) AS (
        SELECT oid, oid FROM unnamed
        UNION
        SELECT w.leaf, i.inhparent FROM whole w
        JOIN pg_class c ON c.oid = w.oid AND c.relispartition JOIN pg_inherits i ON i.inhrelid = w.oid
    )
    SELECT DISTINCT u.root::bigint, u.name, s.statement
    FROM unnamed u JOIN whole w ON w.leaf = u.oid JOIN pg_class c ON c.oid = w.oid
    JOIN pg_publication p ON p.puballtables
        OR EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid)
        OR EXISTS (SELECT FROM {{listed}} WHERE l.pnpubid = p.oid AND l.pnnspid = c.relnamespace)
    CROSS JOIN LATERAL (VALUES ('UPDATE', p.pubupdate), ('DELETE', p.pubdelete)) AS s(statement, is_published)
    WHERE s.is_published
    ORDER BY 1, 2, 3
"""
