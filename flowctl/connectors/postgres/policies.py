"""Row-level security of sources: which rows this user sees is as much a part of them as a view's query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flowctl.connectors.postgres.session import POSTGRES
from flowctl.model.table_info import POLICIES, ObjectName, view_digest

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


def hidden_from_stream(object: ObjectName, user: str) -> tuple[str, str]:
    """Why a table whose policies apply to ``user`` cannot be streamed, and what to do. The log has the changes of all
    rows: those of rows that were not read would update and delete nothing."""
    return (
        f"row-level security of {object} hides rows from {user}, but not their changes",
        f"ALTER ROLE {POSTGRES.quoted(user)} BYPASSRLS, or connect as the owner of the table",
    )


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
