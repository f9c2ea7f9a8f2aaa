"""Row-level security of sources: which rows this user sees is as much a part of them as a view's query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flowctl.model.table_info import POLICIES, view_digest

if TYPE_CHECKING:
    import psycopg


def policy_digests(connection: psycopg.Connection[Any], oids: Sequence[int]) -> dict[int, str]:
    """Of the policies that choose the rows which this user sees in tables whose row-level security applies. Their text
    names what is not on the search path with its schema, so it must be empty."""
    if not oids:
        return {}
    with connection.transaction(force_rollback=True):
        connection.execute("SET LOCAL search_path = ''")
        rows = connection.execute(_POLICIES, [list(oids)]).fetchall()
    version = f"{POLICIES}{connection.info.server_version}"
    return {oid: view_digest(policies or "every row is hidden", version) for oid, policies in rows}


#: For SELECT and ALL. Names do not count, nor what their functions and subqueries return.
_POLICIES = """
    SELECT o.oid::bigint, string_agg(p.text, E'\\n' ORDER BY p.text COLLATE "C")
    FROM unnest(%s::oid[]) AS o(oid)
    LEFT JOIN LATERAL (
        SELECT CASE WHEN polpermissive THEN 'OR ' ELSE 'AND ' END || coalesce(pg_get_expr(polqual, polrelid), 'true')
        FROM pg_policy
        WHERE polrelid = o.oid AND polcmd IN ('r', '*') AND EXISTS (
            SELECT FROM unnest(polroles) AS r(oid)
            WHERE CASE r.oid WHEN 0 THEN true ELSE pg_has_role(r.oid, 'USAGE') END)
    ) AS p(text) ON true
    GROUP BY o.oid
"""
