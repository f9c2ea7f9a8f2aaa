"""Which unique constraint has refused a row, and whether it can be made to compare rows at the end of a statement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from flowctl.connectors.postgres.client import Client
from flowctl.connectors.postgres.session import POSTGRES
from flowctl.connectors.sql.hindrances import Constraint, refused_row
from flowctl.connectors.target import WriteJob
from flowctl.errors import FlowctlError


@contextmanager
def explain_duplicates(client: Client, job: WriteJob) -> Iterator[None]:
    """A row that a unique constraint refuses, in a statement or at the commit, is an error with next steps."""
    import psycopg

    try:
        yield
    except psycopg.errors.UniqueViolation as error:
        found = None
        with suppress(FlowctlError):  # this one says more
            if name := error.diag.constraint_name:
                found = _constraint(client, POSTGRES.table(job.object.parts), name)
        if found is None:
            raise
        raise refused_row(job, found) from error


def _constraint(client: Client, table: str, name: str) -> Constraint | None:
    """None for one of another table, which a trigger writes. Statements that cannot be made are left out: for a
    partition alone, for what a foreign key refers to."""
    with client.connect() as connection:
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
