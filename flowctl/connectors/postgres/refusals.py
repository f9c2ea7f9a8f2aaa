"""What PostgreSQL would refuse to write: tables that cannot be written exactly, and columns that cannot be dropped or
change their type because other objects use them. The plan reports this, as the error would come at the end of a run.
Only the commit shows which unique constraint refuses a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flowctl.connectors.postgres.client import Client
from flowctl.connectors.postgres.publications import identify_by_all_columns, without_identity
from flowctl.connectors.postgres.session import POSTGRES
from flowctl.connectors.sql import hindrances
from flowctl.connectors.sql.hindrances import Constraint
from flowctl.connectors.target import WriteJob
from flowctl.errors import FlowctlError, StoppedByPolicy
from flowctl.model.mode import Mode
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import ObjectName, TableInfo
from flowctl.text import some

if TYPE_CHECKING:
    import psycopg

_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}
_EXTRA = "dependants"
#: The columns that take different texts for equal, each with its type and, if that is why, its collation.
_COARSE = "coarse"
#: Rules that execute something else for every row, each with the statement that they replace.
_RULES = "rules"
#: The tables with rows that a crash of the server removes: the table itself, its partitions and children.
_UNLOGGED = "unlogged"
#: The tables by inheritance, not its partitions, whose rows an update or a deletion of the table also reaches.
_CHILDREN = "children"
#: The tables that are published without a replica identity, each with a statement that the server refuses.
_PUBLISHED = "published_without_identity"
#: How a column is used: by an object that must be dropped before its type changes; as a partition key, which cannot be
#: dropped; by a foreign key of another table, which allows a wider type but no other.
_USED, _PARTITION_KEY, _REFERRED_TO = "used", "partition key", "referred to"


def refuse_write(info: TableInfo, mode: Mode, *, replaces: bool) -> StoppedByPolicy | None:
    """See :meth:`flowctl.connectors.target.TargetRules.refuse_write`."""
    if kind := _KINDS.get(info.extra.get("kind", "")):
        return StoppedByPolicy(
            f"{info.object} is {kind}: rows written to it may not be found in it, nor be committed with their sequence "
            "number",
            hint="Name a table of this database in `to`, an existing one or a new one",
        )
    if foreign := info.extra.get("foreign"):
        return StoppedByPolicy(
            f"{info.object} has rows on another server ({some(foreign)}), which does not commit them together with "
            "their sequence number",
            hint="Name a table in `to` whose partitions are all of this database",
        )
    if unlogged := [name for (name,) in info.extra.get(_UNLOGGED, ())]:
        return StoppedByPolicy(
            f"{info.object} has unlogged rows ({some(unlogged)}): a crash of the server would empty it, but keep the "
            "sequence number",
            hint=f"ALTER TABLE {unlogged[0]} SET LOGGED",
        )
    is_changed = {"UPDATE", "DELETE"}.intersection(_statements(mode, replaces))
    if is_changed and (children := [name for (name,) in info.extra.get(_CHILDREN, ())]):
        return StoppedByPolicy(
            f"{info.object} has children by inheritance ({some(children)}), and what it updates and deletes includes "
            "their rows",
            hint=f"Run `ALTER TABLE {children[0]} NO INHERIT {POSTGRES.table(info.object.parts)}`, or name another "
            "table in `to`",
        )
    if info.extra.get("row_security") and (mode != "append" or replaces):
        return StoppedByPolicy(
            f"row-level security of {info.object} may hide rows from this user, and what it hides is written twice",
            hint="Let the table's owner or a user with BYPASSRLS write it",
        )
    if rules := [name for name, statement in info.extra.get(_RULES, ()) if statement in _statements(mode, replaces)]:
        return StoppedByPolicy(
            f"{info.object} has the rule {some(rules)}, which executes something else instead: rows would count as "
            "written and not be in the table",
            hint=f"Run `DROP RULE {rules[0]} ON {POSTGRES.table(info.object.parts)}`, or name another table in `to`",
        )
    unnamed = (name for name, one in info.extra.get(_PUBLISHED, ()) if one in _statements(mode, replaces))
    if published := [*dict.fromkeys(unnamed)]:
        return StoppedByPolicy(
            f"{info.object} is published without a replica identity ({some(published)}): the server "
            "refuses its updates and deletions",
            hint=f"{identify_by_all_columns(published[0])}, or add a primary key",
        )
    if (following := info.extra.get("following")) and (replaces or mode == "scd2"):
        return StoppedByPolicy(
            f"rows of {info.object} would be deleted and rewritten, which through a foreign key deletes or changes "
            f"rows of {some(following)}",
            hint="Make that foreign key ON DELETE NO ACTION DEFERRABLE INITIALLY DEFERRED, or drop it",
        )
    return None


def _statements(mode: Mode, replaces: bool) -> tuple[str, ...]:
    """What is executed on an existing table."""
    if mode in ("merge", "scd2"):
        return ("INSERT", "UPDATE", "DELETE")
    return ("INSERT", "DELETE") if replaces else ("INSERT",)


def with_dependants(
    connection: psycopg.Connection[Any], found: Mapping[ObjectName, TableInfo | None]
) -> dict[ObjectName, TableInfo | None]:
    """The same tables, each with what the functions of this module need. One query for all; not needed for sources."""
    oids = {object: int(info.identity.rpartition("/")[2]) for object, info in found.items() if info is not None}
    if not oids:
        return dict(found)
    queries = {
        _EXTRA: _DEPENDANTS,
        _COARSE: _COARSE_COLUMNS,
        _RULES: _REPLACING_RULES,
        _UNLOGGED: _UNLOGGED_TABLES,
        _CHILDREN: _CHILDREN_BELOW,
        _PUBLISHED: without_identity(connection.info.server_version),
    }
    # As JSON, a row of each keeps its own columns.
    asked = " UNION ALL ".join(
        f"SELECT '{name}', row_to_json(q) FROM ({query}) AS q" for name, query in queries.items()
    )
    facts: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    for name, row in connection.execute(asked.encode(), [list(oids.values())] * len(queries)).fetchall():
        oid, *values = row.values()
        facts.setdefault((name, oid), []).append(tuple(values))
    return {
        object: info
        and replace(info, extra={**info.extra, **{name: facts.get((name, oids[object]), []) for name in queries}})
        for object, info in found.items()
    }


def refuse_key(info: TableInfo, key: Sequence[str]) -> tuple[str, str] | None:
    """See :meth:`flowctl.connectors.target.TargetRules.refuse_key`. Types that have several texts of one value (``1.0``
    and ``1.00``) are left to the commit, which compares the keys of a batch: such keys rarely meet."""
    coarse = {column: why for column, *why in info.extra.get(_COARSE, ())}
    for name in key:
        column = info.column(name)
        if column is None or name not in coarse:
            continue
        kind, collation = coarse[name]
        why = f"collation is {collation}" if collation else f"type is {kind}"
        type = (
            f'{column.native} COLLATE "default"' if collation else "text[]" if column.native.endswith("[]") else "text"
        )
        alter = f"ALTER TABLE {POSTGRES.table(info.object.parts)} ALTER COLUMN {POSTGRES.quoted(name)} TYPE {type}"
        return hindrances.coarse_key(info, name, why, f"Run `{alter}`")
    return None


def refuse_change(info: TableInfo, change: SchemaChange) -> SchemaChange | None:
    """``change`` as one that stops the table, with what uses its column; None if the server can make it."""
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
    return replace(change, action="fail", note=f"{some(names)} {verb} it", next_step=hindrances.drop_them(names))


def violated_constraint(client: Client, job: WriteJob, error: Exception) -> Constraint | None:
    """A constraint of the job's table, never of another table that a trigger writes. Statements that would fail are
    left out: for a partition alone, for a constraint that a foreign key refers to."""
    import psycopg

    name = error.diag.constraint_name if isinstance(error, psycopg.errors.UniqueViolation) else None
    if not name:
        return None
    table, row = POSTGRES.table(job.object.parts), None
    with suppress(FlowctlError), client.connect() as connection:  # the original error is more informative
        row = connection.execute(_CONSTRAINT, {"table": table, "name": name}).fetchone()
    if row is None:
        return None
    index, definition, is_deferrable, is_fixed, can_be_constraint = row
    own = POSTGRES.quoted(name)
    if is_fixed:
        return Constraint(f"{name} {definition or ''}".rstrip(), is_deferrable=is_deferrable)
    if definition is None:
        using = f"ALTER TABLE {table} ADD CONSTRAINT {own} UNIQUE USING INDEX {POSTGRES.quoted(name)} DEFERRABLE"
        return Constraint(name, f"DROP INDEX {index}", using if can_be_constraint else "")
    removal = f"ALTER TABLE {table} DROP CONSTRAINT {own}"
    deferral = "" if is_deferrable else f"{removal}, ADD CONSTRAINT {own} {definition} DEFERRABLE"
    return Constraint(f"{name} {definition}", removal, deferral, is_deferrable=is_deferrable)


#: Triggers name columns in OF and WHEN. Up to PostgreSQL 14 a generated column itself depends on other columns, later
#: its expression does. A partition key is a dependency of its column on the whole table.
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
#: Columns with a collation that is not deterministic, and those of citext; also in domains and arrays.
_COARSE_COLUMNS = """
    WITH RECURSIVE kinds(relation, name, collated, type) AS (
        SELECT attrelid, attname, attcollation, atttypid FROM pg_attribute
        WHERE attrelid = ANY (%s::oid[]) AND attnum > 0 AND NOT attisdropped
        UNION
        SELECT k.relation, k.name, k.collated, CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.typelem END
        FROM kinds k JOIN pg_type t ON t.oid = k.type
        WHERE t.typtype = 'd' OR t.typcategory = 'A' AND t.typelem <> 0
    )
    SELECT DISTINCT k.relation::bigint, k.name, t.typname::text, coalesce(c.collname, '')::text
    FROM kinds k JOIN pg_type t ON t.oid = k.type
    LEFT JOIN pg_collation c ON c.oid = k.collated AND NOT c.collisdeterministic
    WHERE c.oid IS NOT NULL OR t.typname = 'citext'
"""
#: A rule with a condition leaves rows to the original statement, whose number of rows then shows that some are missing.
_REPLACING_RULES = """
    SELECT ev_class::oid::bigint, quote_ident(rulename),
        CASE ev_type WHEN '2' THEN 'UPDATE' WHEN '3' THEN 'INSERT' ELSE 'DELETE' END
    FROM pg_rewrite
    WHERE ev_class = ANY (%s::oid[]) AND is_instead AND ev_type IN ('2', '3', '4') AND ev_qual::text = '<>'
        AND ev_enabled IN ('O', 'A')
    ORDER BY 1, 2
"""
#: TimescaleDB keeps a table's own rows in children.
_CHILDREN_BELOW = """
    SELECT p.oid::bigint, quote_ident(n.nspname) || '.' || quote_ident(c.relname)
    FROM pg_class p JOIN pg_inherits i ON i.inhparent = p.oid
    JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE p.oid = ANY (%s::oid[]) AND p.relkind = 'r' AND n.nspname <> '_timescaledb_internal' ORDER BY 1, 2
"""
#: A partitioned table has no rows of its own.
_UNLOGGED_TABLES = """
    WITH RECURSIVE below(root, oid) AS (
        SELECT o, o FROM unnest(%s::oid[]) AS o
        UNION
        SELECT b.root, i.inhrelid FROM below b JOIN pg_inherits i ON i.inhparent = b.oid
    )
    SELECT b.root::bigint, quote_ident(n.nspname) || '.' || quote_ident(c.relname)
    FROM below b JOIN pg_class c ON c.oid = b.oid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND c.relpersistence = 'u'
    ORDER BY 1, 2
"""
#: Only an index without a condition or expressions, in the usual order, can become a constraint.
_CONSTRAINT = """
SELECT format('%%I.%%I', s.nspname, x.relname), pg_get_constraintdef(c.oid), coalesce(c.condeferrable, false),
       i.indrelid <> t.oid OR EXISTS (SELECT FROM pg_constraint f WHERE f.contype = 'f' AND f.conindid = x.oid),
       t.relkind = 'r' AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indoption::text !~ '[1-9]'
         AND NOT EXISTS (SELECT FROM pg_opclass o WHERE o.oid = ANY (i.indclass) AND NOT o.opcdefault)
FROM pg_class t
JOIN pg_index i ON i.indrelid = t.oid OR i.indrelid IN (SELECT relid FROM pg_partition_tree(t.oid))
JOIN pg_class x ON x.oid = i.indexrelid
JOIN pg_namespace s ON s.oid = x.relnamespace
LEFT JOIN pg_constraint c ON c.conindid = x.oid AND c.contype IN ('p', 'u')
WHERE t.oid = to_regclass(%(table)s) AND x.relname = %(name)s
"""
