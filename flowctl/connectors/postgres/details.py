"""What `flowctl init` asks PostgreSQL's catalog about many tables at once: indexes, numbered columns and privileges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flowctl.connectors.postgres.catalog import HAS_CHILDREN, INDEX_KEY
from flowctl.connectors.survey import Details, Index
from flowctl.model.table_info import ObjectName

if TYPE_CHECKING:
    import psycopg


def details(connection: psycopg.Connection[Any], objects: Sequence[ObjectName]) -> dict[ObjectName, Details]:
    """One query for all ``objects``, each with its schema. Tables that do not exist are left out."""
    rows = connection.execute(
        _DETAILS, {"schemas": [one.parts[0] for one in objects], "names": [one.parts[-1] for one in objects]}
    ).fetchall()
    return {objects[at - 1]: _details(objects[at - 1], *facts) for at, *facts in rows}


def _details(
    object: ObjectName,
    may_use_schema: bool,
    may_read: bool,
    may_read_some: bool,
    indexes: list[dict[str, Any]] | None,
    numbered: list[str] | None,
    unreadable: list[str] | None,
) -> Details:
    if not may_use_schema:
        refused = f"this user may not use the schema {object.parts[0]}"
    else:
        refused = "" if may_read_some else "this user may not read it"
    return Details(
        indexes=tuple(Index(tuple(one["columns"]), one["unique"]) for one in indexes or ()),
        numbered=tuple(numbered or ()),
        unreadable=() if may_read else tuple(unreadable or ()),
        refused=refused,
    )


#: Only indexes that are valid, over all rows and over columns alone. ``indnullsnotdistinct`` does not matter: columns
#: that may be null make no key. Nothing is unique in a table with children by inheritance: a read of it has their rows,
#: which its indexes do not have. Those of a partitioned table hold for its partitions.
_DETAILS = f"""
    SELECT w.at, has_schema_privilege(s.oid, 'USAGE'), has_table_privilege(c.oid, 'SELECT'),
        has_any_column_privilege(c.oid, 'SELECT'), i.indexes, a.numbered, a.unreadable
    FROM unnest(%(schemas)s::text[], %(names)s::text[]) WITH ORDINALITY AS w(schema, name, at)
    JOIN pg_namespace s ON s.nspname = w.schema
    JOIN pg_class c ON c.relnamespace = s.oid AND c.relname = w.name AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
    LEFT JOIN LATERAL (
        SELECT jsonb_agg(jsonb_build_object(
            'unique', i.indisunique AND NOT {HAS_CHILDREN}, 'columns', {INDEX_KEY}) ORDER BY i.indexrelid) AS indexes
        FROM pg_index i
        WHERE i.indrelid = c.oid AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
    ) i ON true
    LEFT JOIN LATERAL (
        SELECT
            array_agg(t.attname::text ORDER BY t.attnum) FILTER (
                WHERE t.attidentity <> '' OR pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%%'
            ) AS numbered,
            array_agg(t.attname::text ORDER BY t.attnum) FILTER (
                WHERE NOT has_column_privilege(c.oid, t.attnum, 'SELECT')
            ) AS unreadable
        FROM pg_attribute t LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = t.attnum
        WHERE t.attrelid = c.oid AND t.attnum > 0 AND NOT t.attisdropped
    ) a ON true
"""
