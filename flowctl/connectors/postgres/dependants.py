"""What uses a target's columns, so that PostgreSQL changes no type and drops no column. The plan says so; the error
would come at the end of a run. One query for all targets of a connection; sources need none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flowctl.connectors.postgres.restrictions import listed
from flowctl.connectors.sql import uses
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import ObjectName, TableInfo

if TYPE_CHECKING:
    import psycopg

_EXTRA = "dependants"
#: How a column is used: by an object that has to go before its type changes; as a partition key, which stays; by a
#: foreign key of another table, which takes a wider type but no other one.
_USED, _PARTITION_KEY, _REFERRED_TO = "used", "partition key", "referred to"


def with_dependants(
    connection: psycopg.Connection[Any], found: Mapping[ObjectName, TableInfo | None]
) -> dict[ObjectName, TableInfo | None]:
    """The same tables, each with what :func:`refused` needs to know."""
    oids = {info.identity.rpartition("/")[2]: object for object, info in found.items() if info is not None}
    used: dict[ObjectName, list[tuple[str, str, str]]] = {}
    for oid, column, how, name in connection.execute(_DEPENDANTS, [[*map(int, oids)]]) if oids else ():
        used.setdefault(oids[str(oid)], []).append((column, how, name))
    return {
        object: replace(info, extra={**info.extra, _EXTRA: used[object]}) if info and object in used else info
        for object, info in found.items()
    }


def refused(info: TableInfo, change: SchemaChange) -> SchemaChange | None:
    """``change`` as one that stops the table, with what uses its column; None where the server makes it."""
    if change.action == "relax" and change.column in info.primary_key:
        note = "may be null, and the primary key has it"
        return replace(
            change, action="fail", note=note, next_step="Drop the primary key: a UNIQUE constraint takes nulls"
        )
    if change.action not in ("widen", "retype", "drop"):
        return None
    used: Sequence[tuple[str, str, str]] = info.extra.get(_EXTRA, ())
    keys = [name for column, how, name in used if column == change.column and how == _PARTITION_KEY]
    if keys:
        again = "drop the table and run it with --full-refresh"
        next_step = f"Declare its old type under `columns.types`, or {again}" if change.new else again.capitalize()
        return replace(change, action="fail", note=f"it is in the partition key of {keys[0]}", next_step=next_step)
    hindering = (_USED,) if change.action == "widen" else (_USED, _REFERRED_TO)
    names = [name for column, how, name in used if column == change.column and how in hindering]
    if change.action == "retype" and change.column in info.primary_key:
        names.append("the primary key")
    if not names:
        return None
    verb = "uses" if len(names) == 1 else "use"
    return replace(change, action="fail", note=f"{listed(names)} {verb} it", next_step=uses.drop_them(names))


#: Triggers name columns in OF and WHEN. Up to PostgreSQL 14 a generated column depends on others by itself, later by
#: its expression. A partition key is a dependency of its column on the whole table.
_DEPENDANTS = """
    WITH RECURSIVE below(root, oid) AS (
        SELECT o, o FROM unnest(%s::oid[]) AS o
        UNION
        SELECT b.root, i.inhrelid FROM below b JOIN pg_inherits i ON i.inhparent = b.oid
    ),
    uses(root, column_name, how, name) AS (
        SELECT b.root, a.attname, CASE WHEN k.oid IS NULL THEN 'used' ELSE 'referred to' END,
            CASE WHEN r.rulename = '_RETURN' THEN pg_describe_object('pg_class'::regclass, r.ev_class, 0)
                WHEN f.oid IS NOT NULL THEN pg_describe_object('pg_class'::regclass, f.adrelid, f.adnum)
                ELSE pg_describe_object(d.classid, d.objid, d.objsubid) END
        FROM below b
        JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = b.oid AND d.refobjsubid > 0
        JOIN pg_attribute a ON a.attrelid = b.oid AND a.attnum = d.refobjsubid
        LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
        LEFT JOIN pg_attrdef f ON d.classid = 'pg_attrdef'::regclass AND f.oid = d.objid
        LEFT JOIN pg_constraint k ON d.classid = 'pg_constraint'::regclass AND k.oid = d.objid AND k.confrelid = b.oid
        LEFT JOIN pg_attribute g ON d.classid = 'pg_class'::regclass AND d.objid = b.oid
            AND g.attrelid = d.objid AND g.attnum = d.objsubid AND g.attgenerated <> ''
        WHERE (d.deptype = 'n' AND (k.conrelid <> b.oid OR d.classid IN (
                'pg_rewrite'::regclass, 'pg_attrdef'::regclass, 'pg_policy'::regclass, 'pg_trigger'::regclass,
                'pg_proc'::regclass, 'pg_publication_rel'::regclass)))
            OR g.attnum > 0
        UNION
        SELECT b.root, a.attname, 'partition key', pg_describe_object('pg_class'::regclass, b.oid, 0)
        FROM below b
        JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = b.oid AND d.objsubid > 0
            AND d.refclassid = 'pg_class'::regclass AND d.refobjid = b.oid AND d.refobjsubid = 0 AND d.deptype = 'i'
        JOIN pg_attribute a ON a.attrelid = b.oid AND a.attnum = d.objsubid
    )
    SELECT root::bigint, column_name, how, name FROM uses WHERE name IS NOT NULL ORDER BY root, column_name, how, name
"""
