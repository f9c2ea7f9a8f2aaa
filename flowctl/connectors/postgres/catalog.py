"""Describes tables from `pg_catalog`, with one query for all tables of a connection.

Joining the catalogs needs no privilege on the tables themselves, unlike `to_regclass` or `information_schema`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flowctl.connectors.postgres.planner import foreign_scans
from flowctl.connectors.postgres.policies import policy_digests
from flowctl.connectors.postgres.types import NativeType, data_type, is_plain_text, portable
from flowctl.model import types
from flowctl.model.table_info import UNKNOWN, Column, ObjectName, RowEstimate, TableInfo, view_digest

if TYPE_CHECKING:
    import psycopg

#: Plain, partitioned, materialized view, foreign; views ("v") match a glob only with `include_views`.
_TABLE_KINDS = ("r", "p", "m", "f")


def discover(
    connection: psycopg.Connection[Any], pattern: tuple[str, ...], kinds: Sequence[str] = _TABLE_KINDS
) -> list[ObjectName]:
    """Tables whose ``schema.name`` (or name on the search path) matches; partitions are read through their parent."""
    schema, name = pattern if len(pattern) == 2 else (None, pattern[-1])
    rows = connection.execute(
        """
        SELECT s.nspname, c.relname
        FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
        WHERE c.relkind = ANY(%(kinds)s) AND NOT c.relispartition AND c.relname LIKE %(name)s
          AND CASE WHEN %(schema)s::text IS NULL THEN pg_table_is_visible(c.oid) ELSE s.nspname LIKE %(schema)s END
          AND s.nspname !~ '^pg_' AND s.nspname <> 'information_schema' AND c.relname !~ '^_flowctl_'
        """,
        {"kinds": list(kinds), "name": _like(name), "schema": None if schema is None else _like(schema)},
    ).fetchall()
    return sorted(ObjectName((found,) if schema is None else (space, found)) for space, found in rows)


def describe(connection: psycopg.Connection[Any], objects: Sequence[ObjectName]) -> dict[ObjectName, TableInfo | None]:
    """Columns, key, identity and statistics of all ``objects``; None for those that do not exist."""
    system = system_identity(connection)
    rows = connection.execute(
        _DESCRIBE,
        {
            "schemas": [object.parts[0] if len(object.parts) == 2 else None for object in objects],
            "names": [object.parts[-1] for object in objects],
        },
    ).fetchall()
    found = {at: list(group) for at, group in itertools.groupby(rows, key=lambda row: row[0])}
    has_foreign = any(row[9] for row in rows)
    foreign = foreign_below(connection, [int(group[0][1]) for group in found.values()]) if has_foreign else {}
    views = _view_digests(connection, [int(group[0][1]) for group in found.values() if group[0][2] in ("v", "m")])
    views |= policy_digests(connection, [int(group[0][1]) for group in found.values() if group[0][11]])
    return {
        object: _table_info(object, system, found[at], foreign, views) if at in found else None
        for at, object in enumerate(objects, 1)
    }


def _view_digests(connection: psycopg.Connection[Any], oids: Sequence[int]) -> dict[int, str]:
    """Of the queries of views. Their text names what is not on the search path with its schema, so it must be empty."""
    if not oids:
        return {}
    with connection.transaction(force_rollback=True):
        connection.execute("SET LOCAL search_path = ''")
        rows = connection.execute("SELECT oid::bigint, pg_get_viewdef(oid) FROM unnest(%s::oid[]) v(oid)", [list(oids)])
        return {oid: view_digest(query, str(connection.info.server_version)) for oid, query in rows.fetchall()}


def foreign_below(connection: psycopg.Connection[Any], oids: Sequence[int]) -> dict[int, tuple[list[str], bool]]:
    """The foreign tables that hold rows of each relation: of the relation itself, its partitions and children, and what
    its views read. Also whether a second query in one transaction sees the same rows, which postgres_fdw guarantees.
    Relations without foreign tables are left out."""
    rows = connection.execute(_FOREIGN_BELOW, [list(oids)]).fetchall()
    return {oid: (names, repeatable) for oid, names, repeatable in rows}


def describe_query(connection: psycopg.Connection[Any], query: str) -> TableInfo:
    """The columns of a query; it is planned but not run."""
    columns = columns_of_query(connection, query)
    clock, has_foreign = _one(connection.execute("SELECT now(), EXISTS (SELECT FROM pg_foreign_table)"))
    names, repeatable = _foreign_in_query(connection, query) if has_foreign else ([], True)
    extra = {"foreign": names, "repeatable": repeatable} if names else {}
    return TableInfo(
        ObjectName(("(query)",)),
        columns,
        system_identity(connection),
        clock=clock,
        extra=extra,
        decoded_because=_decoded_because(extra),
    )


def columns_of_query(connection: psycopg.Connection[Any], query: str) -> tuple[Column, ...]:
    described = connection.execute(f"SELECT * FROM ({query}\n) AS query LIMIT 0".encode())
    result, names = described.pgresult, described.description
    assert result is not None and names is not None
    rows = connection.execute(
        _TYPES_OF_QUERY,
        {
            "oids": [result.ftype(at) for at in range(result.nfields)],
            "typmods": [result.fmod(at) for at in range(result.nfields)],
        },
    ).fetchall()
    return tuple(_column(name.name, False, facts) for name, (_, *facts) in zip(names, rows, strict=True))


def columns_of_types(
    connection: psycopg.Connection[Any],
    names: Sequence[str],
    kinds: Sequence[tuple[int, int]],
    dimensions: Sequence[int],
) -> list[tuple[Column, str]]:
    """Nullable columns of these types, each given by OID and modifier, with the name of the type without domains (for
    an array, that of its elements and ``[]``). A type that does not exist any more is read as text."""
    rows = connection.execute(
        _TYPES_OF_COLUMNS,
        {
            "oids": [oid for oid, _ in kinds],
            "typmods": [modifier for _, modifier in kinds],
            "dimensions": list(dimensions),
        },
    ).fetchall()
    found = []
    for name, (_, written, base, modifier, depth, _) in zip(names, rows, strict=True):
        facts = (written or "", base or "", -1 if modifier is None else modifier, depth or 0, None)
        found.append((_column(name, False, facts), f"{base or ''}{'[]' if depth else ''}"))
    return found


def _foreign_in_query(connection: psycopg.Connection[Any], query: str) -> tuple[list[str], bool]:
    """As :func:`foreign_below`, for a query: the foreign tables that it reads, and whether they may be read again. Uses
    its plan, as the catalog has no dependencies for a query's text."""
    asked = connection.execute(f"EXPLAIN (VERBOSE, FORMAT JSON) SELECT * FROM ({query}\n) AS query".encode())
    scans = foreign_scans(asked)
    if not scans:
        return [], True
    named = [(node["Schema"], node["Relation Name"]) for node in scans if "Relation Name" in node]
    joined = [str(node.get("Relations", "a join on another server")) for node in scans if "Relation Name" not in node]
    schemas, names = [schema for schema, _ in named], [name for _, name in named]
    row = connection.execute(_REPEATABLE, [bool(joined), schemas, names]).fetchone()
    return [*(f"{schema}.{name}" for schema, name in named), *joined], bool(row and row[0])


def system_identity(connection: psycopg.Connection[Any]) -> str:
    """System identifier and database; without the privilege for the first, host and port instead."""
    import psycopg

    try:
        (system,) = _one(connection.execute("SELECT system_identifier::text FROM pg_control_system()"))
    except psycopg.errors.InsufficientPrivilege:
        system = f"{UNKNOWN}@{connection.info.host}:{connection.info.port}"
    (oid,) = _one(connection.execute("SELECT oid::text FROM pg_database WHERE datname = current_database()"))
    return f"pg:{system}/{oid}"


def _one(cursor: psycopg.Cursor[Any]) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = cursor.fetchone()
    assert row is not None
    return row


def _like(glob: str) -> str:
    escaped = glob.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return escaped.replace("*", "%").replace("?", "_")


def _table_info(
    object: ObjectName,
    system: str,
    rows: list[tuple[Any, ...]],
    foreign: Mapping[int, tuple[list[str], bool]],
    views: Mapping[int, str],
) -> TableInfo:
    """``rows`` has one row per column, each with the table's own facts; a table may have no columns. ``heap`` is the
    size in bytes without data outside the rows' pages, such as long texts; ``changes`` counts the rows changed since
    the statistics were collected; ``whole``: whether all columns may be read, which system columns require;
    ``row_security``: whether policies may hide rows from this user; ``following`` are the tables whose rows are deleted
    or changed when rows of this one are deleted. The primary key of a table with children is none of their rows.
    ``numbers`` stay when columns are renamed, and are never given again; ``prefilled`` columns came with a value for
    the rows that were there, if nothing has rewritten the table since."""
    _, oid, kind, key, estimate, size, heap, changes, clock, _, whole, row_security, following, populated, *_ = rows[0]
    of_columns = [row[14:] for row in rows if row[14] is not None]
    filled = {name: fill for name, _, fill, *_ in of_columns if fill}
    numbers = {name: number for name, _, _, number, *_ in of_columns}
    prefilled = [name for name, _, _, _, is_prefilled, *_ in of_columns if is_prefilled]
    extra = {"kind": kind, "heap": heap, "changes": changes, "whole": whole, "row_security": row_security}
    extra |= {"following": following or [], "filled": filled, "numbers": numbers, "prefilled": prefilled}
    extra |= {} if populated else {"populated": False}
    if int(oid) in foreign:
        extra["foreign"], extra["repeatable"] = foreign[int(oid)]
    return TableInfo(
        object=object,
        columns=tuple(_column(name, not_null, facts) for name, not_null, _, _, _, *facts in of_columns),
        identity=f"{system}/{oid}",
        system=system,
        primary_key=tuple(key or ()),
        rows=RowEstimate(estimate, "stats" if estimate is not None else "unknown", size),
        clock=clock,
        extra=extra,
        view=views.get(int(oid), ""),
        decoded_because=_decoded_because(extra),
    )


def _decoded_because(extra: Mapping[str, Any]) -> str:
    foreign = extra.get("foreign")
    return f"{foreign[0]} lies on another server" if foreign else ""


def _column(name: str, not_null: bool, facts: Sequence[Any]) -> Column:
    written, base, typmod, dimensions, formatted = facts
    native = NativeType(base, typmod, dimensions)
    kind = data_type(native)
    as_text = kind == types.STRING and not is_plain_text(native)
    note = _NOTES.get(base, "") if as_text and dimensions == 0 else ""
    return Column(name, kind, not not_null, written, as_text, note, portable(native, formatted))


_NOTES: Mapping[str, str] = {
    "numeric": "no precision that a decimal can hold: read as text; `columns.types` gives one",
    "time": "no time type in the target: read as text",
    "timetz": "no time type in the target: read as text",
}

#: The names of the columns of ``pg_index i``, in its order. The last ones of ``indkey`` may be merely included
#: (``INCLUDE``): they are no part of that order, nor of what is unique.
INDEX_KEY = """(
    SELECT array_agg(k.attname ORDER BY n.at) FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS n(number, at)
    JOIN pg_attribute k ON k.attrelid = i.indrelid AND k.attnum = n.number
    WHERE n.at <= i.indnkeyatts
)"""
#: Whether ``pg_class c`` is a table whose children by inheritance have rows of their own.
HAS_CHILDREN = "(c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits h WHERE h.inhparent = c.oid))"
#: Every domain with its ultimate base type; a domain's own modifier (``numeric(10,2)``) is the innermost one.
_DOMAINS = """
    domains(domain, base, typmod, dimensions, is_last) AS (
        SELECT d.oid, d.typbasetype, d.typtypmod, d.typndims, b.typtype <> 'd'
        FROM pg_type d JOIN pg_type b ON b.oid = d.typbasetype WHERE d.typtype = 'd'
        UNION ALL
        SELECT o.domain, d.typbasetype, d.typtypmod, d.typndims, b.typtype <> 'd'
        FROM domains o JOIN pg_type d ON d.oid = o.base JOIN pg_type b ON b.oid = d.typbasetype WHERE NOT o.is_last
    )
"""
#: From a type's OID and modifier (``t.type``, ``t.typmod``, ``t.dimensions``) to the facts of :class:`NativeType`, and
#: the type without domains (of an array, that of its elements) as PostgreSQL writes it, if it is PostgreSQL's own.
#: Arrays of domains count as arrays of text: only the domain defines the checks and modifiers of their elements.
_FACTS = """
    format_type(t.type, t.typmod),
    CASE WHEN is_array THEN element.typname ELSE base.typname END,
    coalesce(d.typmod, t.typmod),
    CASE WHEN is_array THEN greatest(coalesce(d.dimensions, t.dimensions), 1) ELSE 0 END,
    CASE WHEN is_array AND element.typnamespace = 'pg_catalog'::regnamespace AND base.typname NOT LIKE '%%vector'
         THEN format_type(element.oid, coalesce(d.typmod, t.typmod))
         WHEN NOT is_array AND base.typnamespace = 'pg_catalog'::regnamespace
         THEN format_type(base.oid, coalesce(d.typmod, t.typmod)) END
"""
_FACTS_FROM = """
    LEFT JOIN domains d ON d.domain = t.type AND d.is_last
    LEFT JOIN pg_type base ON base.oid = coalesce(d.base, t.type)
    LEFT JOIN pg_type element ON element.oid = base.typelem
    LEFT JOIN LATERAL (SELECT base.typelem <> 0 AND base.typlen = -1 AND base.typcategory = 'A') a(is_array) ON true
"""
#: Whether statistics have counted the rows of ``l``: before version 14, 0 may mean that they never have.
_IS_COUNTED = """l.reltuples > 0 OR l.reltuples = 0 AND (l.relpages > 0 OR pg_relation_size(l.oid) = 0
                OR current_setting('server_version_num')::int >= 140000)"""
_DESCRIBE = f"""
    WITH RECURSIVE {_DOMAINS},
    wanted(schema, name, at) AS (
        SELECT * FROM unnest(%(schemas)s::text[], %(names)s::text[]) WITH ORDINALITY
    ),
    tables AS (
        SELECT w.at, c.oid, c.relkind, c.relrowsecurity, c.relispopulated,
            (SELECT {INDEX_KEY} FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary
                AND NOT {HAS_CHILDREN}) AS key,
            stored.tuples, stored.size, stored.heap, stored.changes, referring.following
        FROM wanted w
        JOIN pg_class c ON c.relname = w.name AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
        JOIN pg_namespace s ON s.oid = c.relnamespace
        LEFT JOIN LATERAL (
            SELECT CASE WHEN bool_and({_IS_COUNTED}) THEN sum(l.reltuples)::bigint END,
                sum(pg_table_size(l.oid))::bigint, sum(pg_relation_size(l.oid))::bigint,
                sum(pg_stat_get_mod_since_analyze(l.oid))::bigint
            FROM pg_class l
            WHERE l.relkind IN ('r', 'm') AND (l.oid = c.oid OR c.relkind = 'p' AND l.oid IN (
                SELECT p.relid FROM pg_partition_tree(c.oid) p WHERE p.isleaf))
        ) stored(tuples, size, heap, changes) ON true
        LEFT JOIN LATERAL (
            WITH RECURSIVE below(oid) AS (
                SELECT c.oid UNION SELECT i.inhrelid FROM below b JOIN pg_inherits i ON i.inhparent = b.oid
            )
            SELECT array_agg(DISTINCT q.nspname || '.' || r.relname)
            FROM below b JOIN pg_trigger g ON g.tgrelid = b.oid
            JOIN pg_constraint k ON k.oid = g.tgconstraint AND k.confrelid = b.oid AND k.confdeltype IN ('c', 'n', 'd')
            JOIN pg_class r ON r.oid = k.conrelid JOIN pg_namespace q ON q.oid = r.relnamespace
            WHERE (c.relhastriggers OR c.relhassubclass) AND NOT EXISTS (SELECT FROM below s WHERE s.oid = k.conrelid)
        ) referring(following) ON true
        WHERE CASE WHEN w.schema IS NULL THEN pg_table_is_visible(c.oid) ELSE s.nspname = w.schema END
    )
    SELECT o.at, o.oid::text, o.relkind::text, o.key, o.tuples, o.size, o.heap, o.changes, now(),
        EXISTS (SELECT FROM pg_foreign_table), has_table_privilege(o.oid, 'SELECT'),
        o.relrowsecurity AND row_security_active(o.oid), o.following, o.relispopulated,
        t.name, t.not_null, t.fill,
        t.number, t.is_prefilled, {_FACTS}
    FROM tables o
    LEFT JOIN LATERAL (
        SELECT attname, attnotnull, atttypid, atttypmod, attndims, attnum,
            CASE WHEN attgenerated <> '' THEN 'computed' WHEN attidentity = 'a' THEN 'numbered'
                WHEN attidentity <> '' OR atthasdef OR EXISTS (
                    SELECT FROM pg_type d WHERE d.oid = atttypid AND d.typtype = 'd' AND d.typdefault IS NOT NULL
                ) THEN 'default' END, atthasmissing
        FROM pg_attribute WHERE attrelid = o.oid AND attnum > 0 AND NOT attisdropped
    ) t(name, not_null, type, typmod, dimensions, number, fill, is_prefilled) ON true
    {_FACTS_FROM}
    ORDER BY o.at, t.number
"""
_FOREIGN_BELOW = """
    WITH RECURSIVE below(root, oid) AS (
        SELECT o, o FROM unnest(%s::oid[]) AS o
        UNION
        SELECT b.root, next.oid FROM below b CROSS JOIN LATERAL (
            SELECT inhrelid FROM pg_inherits WHERE inhparent = b.oid
            UNION ALL
            SELECT d.refobjid
            FROM pg_class c JOIN pg_rewrite r ON r.ev_class = c.oid
            JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
                AND d.refclassid = 'pg_class'::regclass
            WHERE c.oid = b.oid AND c.relkind = 'v'
        ) AS next(oid)
    )
    SELECT b.root::bigint, array_agg(n.nspname || '.' || c.relname ORDER BY n.nspname, c.relname),
        coalesce(bool_and(p.probin LIKE '%%postgres_fdw'), false)
    FROM below b
    JOIN pg_foreign_table f ON f.ftrelid = b.oid
    JOIN pg_class c ON c.oid = f.ftrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_foreign_server s ON s.oid = f.ftserver JOIN pg_foreign_data_wrapper w ON w.oid = s.srvfdw
    LEFT JOIN pg_proc p ON p.oid = w.fdwhandler
    GROUP BY b.root
"""
_REPEATABLE = """
    SELECT bool_and(p.probin LIKE '%%postgres_fdw')
    FROM pg_foreign_table f
    JOIN pg_class c ON c.oid = f.ftrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_foreign_server s ON s.oid = f.ftserver JOIN pg_foreign_data_wrapper w ON w.oid = s.srvfdw
    LEFT JOIN pg_proc p ON p.oid = w.fdwhandler
    WHERE %s OR (n.nspname, c.relname) IN (SELECT * FROM unnest(%s::text[], %s::text[]))
"""
_TYPES_OF_COLUMNS = f"""
    WITH RECURSIVE {_DOMAINS}
    SELECT t.at, {_FACTS}
    FROM unnest(%(oids)s::oid[], %(typmods)s::int[], %(dimensions)s::int[])
        WITH ORDINALITY AS t(type, typmod, dimensions, at)
    {_FACTS_FROM}
    ORDER BY t.at
"""
_TYPES_OF_QUERY = f"""
    WITH RECURSIVE {_DOMAINS}
    SELECT t.at, {_FACTS}
    FROM unnest(%(oids)s::oid[], %(typmods)s::int[]) WITH ORDINALITY AS u(type, typmod, at)
    CROSS JOIN LATERAL (SELECT u.type, u.typmod, 0, u.at) t(type, typmod, dimensions, at)
    {_FACTS_FROM}
    ORDER BY t.at
"""
