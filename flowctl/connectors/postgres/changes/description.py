"""One look at a server for a stream: its settings, the slot, the publication, and the tables as the stream has them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from flowctl.connectors.postgres import catalog
from flowctl.connectors.postgres.changes.advice import advice, exhausted, limits
from flowctl.connectors.postgres.changes.facts import Facts, facts_of, identity_problem, problems_below
from flowctl.connectors.postgres.changes.names import Publication, publication_of, slot_of
from flowctl.connectors.postgres.columns import quoted
from flowctl.connectors.postgres.policies import hidden_from_stream
from flowctl.connectors.postgres.publications import identify_all_by_all_columns
from flowctl.connectors.stream import StreamInfo, StreamProblem
from flowctl.model.position import lsn_from_text
from flowctl.model.table_info import ObjectName, TableInfo, same_identity
from flowctl.spec.spec import StreamSpec

if TYPE_CHECKING:
    import psycopg

_ROW_FILTERS_SINCE = _SCHEMAS_SINCE = 150000
_STANDBYS_DECODE_SINCE = 160000


@dataclass(frozen=True)
class _Server:
    version: int
    wal_level: str
    is_standby: bool
    user: str
    may_replicate: bool
    may_create: bool
    head: str
    clock: dt.datetime


@dataclass(frozen=True)
class _Slot:
    plugin: str
    kind: str
    database: str
    pid: int | None
    confirmed: str | None
    wal_status: str | None
    retained: int | None
    lag: int | None


@dataclass(frozen=True)
class _Published:
    """What a publication contains: for each table its columns (None: all) and its row filter. ``id`` changes with its
    options, ``members`` and ``schemas`` when a table or a schema that is listed is added again: what happens in between
    is not published."""

    id: str
    operations: Mapping[str, bool]
    via_root: bool
    tables: Mapping[tuple[str, str], tuple[tuple[str, ...] | None, str | None]] = field(default_factory=dict)
    members: Mapping[tuple[str, str], int] = field(default_factory=dict)
    schemas: Mapping[str, int] = field(default_factory=dict)

    def membership(self, table: tuple[str, str]) -> str:
        """As :func:`flowctl.plan.definition.misses_changes` compares it."""
        listed = (self.members.get(table), self.schemas.get(table[0]))
        return ",".join(str(one) for one in listed if one) or "0" if table in self.tables else ""


def describe(connection: psycopg.Connection[Any], stream: StreamSpec, objects: Sequence[ObjectName]) -> StreamInfo:
    wanted, name = publication_of(stream), slot_of(stream)
    server, slot, found = _server(connection), _slot(connection, name), limits(connection)
    published = _published(connection, wanted.name, server.version)
    infos = catalog.describe(connection, objects)
    facts = facts_of(connection, {object: info for object, info in infos.items() if info is not None})
    streamed = {
        object: _as_streamed(info, facts[object], published) if info is not None else None
        for object, info in infos.items()
    }
    of_tables = [
        found
        for object, one in facts.items()
        for found in (
            *_table_problems(object, one, published, server.user),
            *_problem_above(object, one, facts, published),
            *problems_below(object, one, stream),
        )
    ]
    unusable = {found.object for found in of_tables}
    usable = {object: one for object, one in facts.items() if object not in unusable}
    changes, missing = _publication_changes(wanted, published, usable, server)
    return StreamInfo(
        system=catalog.system_identity(connection),
        label=f"slot {name}",
        removal=f"SELECT pg_drop_replication_slot('{name}')",
        head=lsn_from_text(server.head),
        oldest=lsn_from_text(slot.confirmed) if slot and slot.confirmed else None,
        clock=server.clock,
        lost="the server has removed its log (wal_status = lost)" if slot and slot.wal_status == "lost" else "",
        active=f"process {slot.pid} of the server" if slot and slot.pid else "",
        lag=slot.lag if slot else None,
        retained=slot.retained if slot else None,
        published=published.id if published else "",
        problems=(
            *_server_problems(server),
            *_heartbeat_problems(server, stream),
            *_slot_problems(slot, name, stream),
            *exhausted(found, has_slot=slot is not None),
            *missing,
            *of_tables,
        ),
        advice=(
            *advice(found, (slot.wal_status if slot else None) or "", name),
            *(
                problem
                for object, one in facts.items()
                if _only_partitions_lack(one, published)
                for problem in identity_problem(object, one)
            ),
        ),
        source_changes=tuple(changes),
        tables=streamed,
        health={"wal_status": slot.wal_status or ""} if slot else {},
    )


def why_no_snapshots(connection: psycopg.Connection[Any], system: str) -> StreamProblem | None:
    """As :meth:`flowctl.connectors.stream.StreamSource.why_no_snapshots`."""
    server, found = _server(connection), catalog.system_identity(connection)
    if not server.is_standby:
        return StreamProblem("the server for snapshots is no standby", "Name a standby, or remove `snapshot.from`")
    if not same_identity(found, system):
        what = f"the standby belongs to another system ({found}, not {system})"
        return StreamProblem(what, "Name a standby of the stream's own server, or remove `snapshot.from`")
    if server.version < _STANDBYS_DECODE_SINCE:
        what = "a standby decodes its log from PostgreSQL 16 on"
        return StreamProblem(what, "Remove `snapshot.from`: tables are read from the primary then")
    return next(_server_problems(server), None)


def _server(connection: psycopg.Connection[Any]) -> _Server:
    row = connection.execute(_SERVER).fetchone()
    assert row is not None
    return _Server(connection.info.server_version, *row)


_SERVER = """
    SELECT current_setting('wal_level'), pg_is_in_recovery(), current_user,
        (SELECT r.rolreplication OR r.rolsuper FROM pg_roles r WHERE r.rolname = current_user)
            OR EXISTS (SELECT FROM pg_roles r WHERE r.rolname IN ('rds_replication', 'azure_pg_admin',
                'cloudsqlsuperuser') AND pg_has_role(r.oid, 'MEMBER')),
        has_database_privilege(current_database(), 'CREATE'),
        CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END::text,
        clock_timestamp()
"""


def _slot(connection: psycopg.Connection[Any], name: str) -> _Slot | None:
    row = connection.execute(_SLOT, [name]).fetchone()
    return _Slot(*row) if row else None


_SLOT = """
    WITH head(lsn) AS (
        SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END
    )
    SELECT coalesce(plugin, ''), slot_type, coalesce(database, ''), active_pid, confirmed_flush_lsn::text, wal_status,
        pg_wal_lsn_diff(head.lsn, restart_lsn)::bigint,
        greatest(pg_wal_lsn_diff(head.lsn, confirmed_flush_lsn), 0)::bigint
    FROM pg_replication_slots, head WHERE slot_name = %s
"""


def _published(connection: psycopg.Connection[Any], name: str, version: int) -> _Published | None:
    row = connection.execute(
        "SELECT oid::text || '/' || xmin::text, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot"
        " FROM pg_publication WHERE pubname = %s",
        [name],
    ).fetchone()
    if row is None:
        return None
    id, *operations, via_root = row
    more = "attnames, rowfilter" if version >= _ROW_FILTERS_SINCE else "NULL::name[], NULL::text"
    listed = connection.execute(
        f"SELECT schemaname, tablename, {more} FROM pg_publication_tables WHERE pubname = %s".encode(), [name]
    ).fetchall()
    members = connection.execute(
        "SELECT s.nspname, c.relname, m.oid::bigint FROM pg_publication p"
        " JOIN pg_publication_rel m ON m.prpubid = p.oid"
        " JOIN pg_class c ON c.oid = m.prrelid JOIN pg_namespace s ON s.oid = c.relnamespace WHERE p.pubname = %s",
        [name],
    ).fetchall()
    of_schemas = (
        "SELECT s.nspname, m.oid::bigint FROM pg_publication p JOIN pg_publication_namespace m ON m.pnpubid = p.oid"
        " JOIN pg_namespace s ON s.oid = m.pnnspid WHERE p.pubname = %s"
    )
    schemas = connection.execute(of_schemas, [name]).fetchall() if version >= _SCHEMAS_SINCE else []
    return _Published(
        id,
        dict(zip(("insert", "update", "delete", "truncate"), operations, strict=True)),
        via_root,
        {(schema, table): (tuple(names) if names else None, where) for schema, table, names, where in listed},
        {(schema, table): oid for schema, table, oid in members},
        dict(schemas),
    )


def _as_streamed(info: TableInfo, facts: Facts, published: _Published | None) -> TableInfo:
    """Without the columns that the stream does not deliver: those left out of the publication, and generated ones."""
    listed, where = (published.tables if published else {}).get((facts.schema, facts.name), (None, None))
    generated = {name for name, fill in info.extra.get("filled", {}).items() if fill == "computed"}
    columns = tuple(
        replace(column, identity=str(info.extra["numbers"][column.name]))
        for column in info.columns
        if column.name not in generated and (not listed or column.name in listed)
    )
    partly = [one.name for one in facts.identified if not one.is_whole]
    prefilled = dict.fromkeys(info.extra["prefilled"], "default")  # also if the default was dropped since
    extra = {
        **info.extra,
        "filled": {**prefilled, **info.extra["filled"]},
        "replica_identity": facts.letter,
        "identity_columns": list(facts.known),
        "identify_fully": identify_all_by_all_columns(facts.table, partly) if partly else "",
        "immediate_keys": [list(key) for key in facts.immediate_keys],
        "deferrable_keys": [list(key) for key in facts.deferrable_keys],
        "row_filter": where,
        "undelivered": [column.name for column in info.columns if column.name in generated],
        "published": published.membership((facts.schema, facts.name)) if published else "",
    }
    if facts.kind == "p":
        extra["partitions"] = {one.name: one.described() for one in facts.below}
    return replace(info, columns=columns, extra=extra)


def _publication_changes(
    wanted: Publication, published: _Published | None, facts: Mapping[ObjectName, Facts], server: _Server
) -> tuple[list[str], list[StreamProblem]]:
    """The statements that a run would execute, or, if it must not, the problems that they would repair."""
    name = quoted(wanted.name)
    absent = {
        object: one
        for object, one in facts.items()
        if published is None or (one.schema, one.name) not in published.tables
    }
    listed = ", ".join(f"{quoted(one.schema)}.{quoted(one.name)}" for one in absent.values())
    if published is None:
        create = f"CREATE PUBLICATION {name} FOR TABLE {listed} WITH (publish_via_partition_root = true)"
        if not wanted.is_managed:
            return [], [StreamProblem(f"there is no publication {wanted.name}", create)]
        if not server.may_create:
            grant = f"GRANT CREATE ON DATABASE … TO {quoted(server.user)}, or as its owner: {create}"
            return [], [StreamProblem(f"{server.user} may not create publications in this database", grant)]
        return [create] if listed else [], _owned_by_others(absent, server, create)
    problems = [
        StreamProblem(
            f"the publication {wanted.name} leaves out every {operation}",
            f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')",
        )
        for operation, has in published.operations.items()
        if not has
    ]
    if not absent:
        return [], problems
    add = f"ALTER PUBLICATION {name} ADD TABLE {listed}"
    if not wanted.is_managed:
        return [], [*problems, *(_unpublished(object, one, wanted) for object, one in absent.items())]
    return [add], [*problems, *_owned_by_others(absent, server, add)]


def _unpublished(object: ObjectName, facts: Facts, wanted: Publication) -> StreamProblem:
    add = f"ALTER PUBLICATION {quoted(wanted.name)} ADD TABLE {quoted(facts.schema)}.{quoted(facts.name)}"
    return StreamProblem(f"{object} is not in the publication {wanted.name}", add, object)


def _owned_by_others(absent: Mapping[ObjectName, Facts], server: _Server, statement: str) -> list[StreamProblem]:
    """Only its owner may add a table to a publication."""
    return [
        StreamProblem(
            f"{server.user} does not own {object}, and may not publish it", f"As its owner: {statement}", object
        )
        for object, one in absent.items()
        if not one.is_owned
    ]


def _server_problems(server: _Server) -> Iterator[StreamProblem]:
    if server.wal_level != "logical":
        repair = "ALTER SYSTEM SET wal_level = logical, then restart the server"
        yield StreamProblem(f"the server's wal_level is {server.wal_level}", repair)
    if server.is_standby and server.version < _STANDBYS_DECODE_SINCE:
        yield StreamProblem("the server is a standby, which decodes its log from PostgreSQL 16 on", "Name the primary")
    if not server.may_replicate:
        yield StreamProblem(f"{server.user} may not replicate", f"ALTER ROLE {quoted(server.user)} REPLICATION")


def _heartbeat_problems(server: _Server, stream: StreamSpec) -> Iterator[StreamProblem]:
    if server.is_standby and stream.heartbeat is not None:
        what = "the server is a standby, into whose log no heartbeat can be written"
        yield StreamProblem(what, "Remove `heartbeat`, or name the primary")


def _slot_problems(slot: _Slot | None, name: str, stream: StreamSpec) -> Iterator[StreamProblem]:
    if slot is not None and (slot.kind, slot.plugin) != ("logical", "pgoutput"):
        what = f"the slot {name} is another one ({slot.kind}, {slot.plugin or 'no plugin'})"
        yield StreamProblem(what, f"Give the stream {stream.name} another `slot`")


def _table_problems(
    object: ObjectName, facts: Facts, published: _Published | None, user: str
) -> Iterator[StreamProblem]:
    table = f"{quoted(facts.schema)}.{quoted(facts.name)}"
    if facts.kind not in ("r", "p"):
        yield StreamProblem(f"{object} is no table: only tables have changes", "Exclude it, or read the tables", object)
    elif not facts.is_logged:
        repair = f"ALTER TABLE {table} SET LOGGED"
        yield StreamProblem(f"{object} is unlogged: its changes are not in the log", repair, object)
    elif not _only_partitions_lack(facts, published):
        yield from identity_problem(object, facts)
    if facts.hides_rows:
        yield StreamProblem(*hidden_from_stream(object, user), object)
    if facts.kind == "p" and published is not None and not published.via_root:
        what = f"the publication sends the partitions of {object} instead of the table"
        yield StreamProblem(what, "ALTER PUBLICATION … SET (publish_via_partition_root = true)", object)


def _only_partitions_lack(facts: Facts, published: _Published | None) -> bool:
    """Whether the table is published, and has a replica identity that some of its partitions lack. Then nothing is
    gained by a stop: it is their updates and deletions that the server refuses, and inserts are in the log."""
    is_published = published is not None and (facts.schema, facts.name) in published.tables
    return is_published and bool(facts.identity) and any(not one.columns for one in facts.identified)


def _problem_above(
    object: ObjectName, facts: Facts, others: Mapping[ObjectName, Facts], published: _Published | None
) -> Iterator[StreamProblem]:
    """The changes of a partition are sent as those of the table that it is part of, if that is published, too."""
    if published is not None and not published.via_root:
        return
    sent = {(one.schema, one.name) for one in others.values()} | {*(published.tables if published else ())}
    if root := next((one for one in facts.above if one in sent), None):
        name = ".".join(root)
        what = f"{object} is a partition of {name}, under whose name the publication sends its changes"
        how = f"Exclude {object}: {name} has its rows; or read it from another stream, with a publication of its own"
        yield StreamProblem(what, how, object)
