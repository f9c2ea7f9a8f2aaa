"""A PostgreSQL target's commits table: ``_flowctl_commits`` in the schema of the tables that it records, so that a
dump, a restore or a drop of the schema includes both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flowctl import delays
from flowctl.connectors.postgres.publications import publishing_schemas
from flowctl.connectors.postgres.session import POSTGRES, PostgresSession
from flowctl.connectors.sql.commits import COMMIT_COLUMNS, COMMITS, commit_of, create_commits
from flowctl.connectors.target import CommitLookup
from flowctl.errors import TableError
from flowctl.model.commit import Commit
from flowctl.model.mode import Mode
from flowctl.model.table_info import ObjectName

if TYPE_CHECKING:
    import psycopg


def why_unwritable(connection: psycopg.Connection[Any], object: ObjectName, mode: Mode) -> TableError | None:
    """Why the table cannot be created, or written in ``mode``. The commits table and staging tables are where tables
    are created: for a bare name, perhaps not where the table is."""
    schema, there = schema_of(connection, object), schemas_of(connection, [object])[object]
    asked = {"schema": schema, "there": there, "table": object.parts[-1], "needed": _needed(mode)}
    row = connection.execute(_RIGHTS, asked).fetchone()
    assert row is not None
    in_schema, in_database, on_table, user, is_read_only, is_standby, source = row
    if is_standby:
        return TableError(f"{object} cannot be written: the server is a standby", hint="Name the primary server")
    if is_read_only:
        reason = f"{object} cannot be written: default_transaction_read_only is on for {user}"
        return TableError(reason, hint=_writable_again(source, user, connection.info.dbname))
    if in_schema is None and not in_database:
        hint = f"Create the schema {schema}, or: GRANT CREATE ON DATABASE … TO {user}"
        return TableError(f"{object} cannot be created: {user} may not create schemas in this database", hint=hint)
    if in_schema is False:
        hint = f"GRANT USAGE, CREATE ON SCHEMA {schema} TO {user}"
        return TableError(f"{object} cannot be written: {user} may not create tables in the schema {schema}", hint=hint)
    if on_table is False:
        hint = f"GRANT SELECT, INSERT, UPDATE, DELETE ON {object} TO {user}"
        return TableError(f"{object} cannot be written by {user}", hint=hint)
    return None


def _writable_again(source: str, user: str, database: str) -> str:
    """What ends default_transaction_read_only; ``source`` says where it is set, as `pg_settings` does."""
    name, role, here = "default_transaction_read_only", POSTGRES.quoted(user), POSTGRES.quoted(database)
    match source:
        case "user":
            return f"ALTER ROLE {role} RESET {name}"
        case "database":
            return f"ALTER DATABASE {here} RESET {name}"
        case "database user":
            return f"ALTER ROLE {role} IN DATABASE {here} RESET {name}"
        case "client":
            return f"Remove {name} from the connection's `options`"
        case _:
            return f"Set {name} = off in the server's configuration, or: ALTER ROLE {role} SET {name} = off"


def _needed(mode: Mode) -> list[str]:
    """The rights on an existing table. A full refresh counts and deletes its rows in every mode; histories update rows
    that have columns of others."""
    return ["SELECT", "INSERT", "DELETE", *(["UPDATE"] if mode in ("merge", "scd2") else [])]


_RIGHTS = """
SELECT (SELECT has_schema_privilege(s.oid, 'USAGE') AND has_schema_privilege(s.oid, 'CREATE')
        FROM pg_namespace s WHERE s.nspname = %(schema)s),
       has_database_privilege(current_database(), 'CREATE'),
       (SELECT bool_and(has_table_privilege(c.oid, needed)) FROM unnest(%(needed)s::text[]) needed,
        pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
        WHERE s.nspname = %(there)s AND c.relname = %(table)s),
       current_user, current_setting('transaction_read_only')::boolean, pg_is_in_recovery(),
       (SELECT source FROM pg_settings WHERE name = 'default_transaction_read_only')
"""


def schema_of(connection: psycopg.Connection[Any], object: ObjectName) -> str:
    """The object's schema; for a bare name the first schema of the search path, in which a table is created."""
    return _schemas_to_make_in(connection, [object])[object]


def _schemas_to_make_in(connection: psycopg.Connection[Any], objects: Sequence[ObjectName]) -> dict[ObjectName, str]:
    """:func:`schema_of` each object, with at most one query. :class:`TableError` if the search path has no schema."""
    schemas = {object: object.parts[-2] for object in objects if len(object.parts) > 1}
    bare = [object for object in objects if object not in schemas]
    if bare:
        (schema,) = connection.execute("SELECT current_schema()").fetchone() or (None,)
        if schema is None:
            reason = f"{bare[0]} has no schema: the search path of {connection.info.user} leads to none"
            raise TableError(reason, hint=f"Name the schema in `to` (such as public.{bare[0]}), or set search_path")
        schemas |= dict.fromkeys(bare, schema)
    return schemas


def schemas_of(connection: psycopg.Connection[Any], objects: Sequence[ObjectName]) -> dict[ObjectName, str]:
    """The schema of each object: for a bare name that of the visible table, or else the one to create it in."""
    bare = [object.parts[-1] for object in objects if len(object.parts) < 2]
    rows = connection.execute(
        "SELECT c.relname, s.nspname FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace"
        " WHERE c.relname = ANY (%s) AND pg_table_is_visible(c.oid)",
        [bare],
    ).fetchall()
    visible = {ObjectName((name,)): schema for name, schema in rows}
    return _schemas_to_make_in(connection, objects) | visible


def newest(connection: psycopg.Connection[Any], lookups: Sequence[CommitLookup]) -> dict[str, Commit | None]:
    """The newest commit of each table, with one query for all, after those that find the commits tables."""
    delays.pause()
    schemas = _schemas_to_make_in(connection, [lookup.object for lookup in lookups])
    by_schema: dict[str, list[CommitLookup]] = {}
    for lookup in lookups:
        by_schema.setdefault(schemas[lookup.object], []).append(lookup)
    there = _schemas_with_commits(connection, list(by_schema))
    found: dict[str, Commit | None] = {lookup.table: None for lookup in lookups}
    if there:
        queries = " UNION ALL ".join(_query(schema) for schema in there)
        asked = [by_schema[schema] for schema in there]
        parameters = [[getattr(one, name) for one in lookups] for lookups in asked for name in ("lineage", "table")]
        for row in connection.execute(queries, parameters).fetchall():
            commit = commit_of(row)
            found[commit.table] = commit
    return found


def missing_schemas(connection: psycopg.Connection[Any], objects: Sequence[ObjectName]) -> set[str]:
    """The schemas in which the objects would be created and that do not exist. :class:`TableError` if a bare name has
    none."""
    schemas = list(_schemas_to_make_in(connection, objects).values())
    rows = connection.execute("SELECT unnest(%s::text[]) EXCEPT SELECT nspname FROM pg_namespace", [schemas]).fetchall()
    return {name for (name,) in rows}


def published_when_created(connection: psycopg.Connection[Any], objects: Sequence[ObjectName]) -> set[ObjectName]:
    """Those whose updates or deletions are published from their creation on."""
    schemas = _schemas_to_make_in(connection, objects)
    publishing = publishing_schemas(connection, sorted(set(schemas.values())))
    return {object for object, schema in schemas.items() if schema in publishing}


def create_schema(name: str) -> str:
    return f"CREATE SCHEMA IF NOT EXISTS {POSTGRES.quoted(name)}"


def ensure_schema(connection: psycopg.Connection[Any], object: ObjectName) -> str:
    """The object's schema, created only if it does not exist: CREATE SCHEMA requires a privilege not needed otherwise,
    even with IF NOT EXISTS."""
    for missing in missing_schemas(connection, [object]):
        with _alone(connection):
            connection.execute(create_schema(missing))
    return schema_of(connection, object)


def ensure_table(connection: psycopg.Connection[Any], object: ObjectName) -> None:
    """Creates ``_flowctl_commits`` in the object's schema if it does not exist."""
    if not _schemas_with_commits(connection, [schema_of(connection, object)]):
        schema = ensure_schema(connection, object)
        with _alone(connection):
            connection.execute(create_commits((schema, COMMITS), POSTGRES))


@contextmanager
def _alone(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Takes a lock: IF NOT EXISTS alone fails if two sessions run it at the same time."""
    with PostgresSession(connection).transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('_flowctl_commits'))")
        yield


def _schemas_with_commits(connection: psycopg.Connection[Any], schemas: Sequence[str]) -> list[str]:
    rows = connection.execute(
        "SELECT s.nspname FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace"
        " WHERE c.relname = %s AND c.relkind = 'r' AND s.nspname = ANY (%s)",
        [COMMITS, list(schemas)],
    ).fetchall()
    return sorted(name for (name,) in rows)


def _query(schema: str) -> str:
    names = ", ".join(f"c.{POSTGRES.quoted(name)}" for name in COMMIT_COLUMNS)
    return (
        f"SELECT {names} FROM unnest(%s::text[], %s::text[]) AS w (lineage, id) CROSS JOIN LATERAL ("
        f'SELECT * FROM {POSTGRES.table((schema, COMMITS))} AS k WHERE k.lineage = w.lineage AND k."table" = w.id'
        " ORDER BY k.seq DESC LIMIT 1) AS c"
    )
