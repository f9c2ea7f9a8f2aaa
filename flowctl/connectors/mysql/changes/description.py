"""One look at a server for a stream: its settings, its log, and the tables as the log has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flowctl import text
from flowctl.connectors.mysql import catalog
from flowctl.connectors.mysql.changes import server
from flowctl.connectors.mysql.changes.names import server_id_of, wants_files
from flowctl.connectors.mysql.client import MARKER, MysqlConnection
from flowctl.connectors.mysql.columns import quoted
from flowctl.connectors.mysql.errors import RIGHTS, code_of
from flowctl.connectors.stream import StreamInfo, StreamProblem
from flowctl.model.position import BinlogPosition
from flowctl.model.table_info import ObjectName, TableInfo
from flowctl.spec.spec import StreamSpec

#: Variable, the values with which nothing is lost, and the one to set.
_SETTINGS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("binlog_format", ("ROW",), "ROW"),
    ("binlog_row_image", ("FULL",), "FULL"),
    ("binlog_row_metadata", ("FULL",), "FULL"),
    ("binlog_transaction_compression", ("OFF",), "OFF"),
    ("binlog_row_value_options", ("",), "''"),
)
_KEEPS = ("binlog_expire_logs_seconds", "expire_logs_days", "log_bin", "server_id", "wsrep_on")
#: Whether a server logs what it applies of others. It has one of the two names, or both.
_LOGS_REPLICATED = ("log_slave_updates", "log_replica_updates")
_REPLICATES = ("REPLICATION SLAVE", "ALL PRIVILEGES", "SUPER")
#: Seconds of log that a stream should be able to miss.
_SHORT_KEEP = 24 * 3600


def describe(connection: MysqlConnection, stream: StreamSpec, objects: Sequence[ObjectName]) -> StreamInfo:
    found = server.variables(connection, [*(name for name, _, _ in _SETTINGS), *_KEEPS, *_LOGS_REPLICATED])
    tables = catalog.describe(connection, objects)
    problems = list(_server_problems(connection, found, stream))
    info = StreamInfo(
        system=f"mysql:{connection.facts.id}",
        label="binary log",
        removal="",
        head=BinlogPosition(""),
        oldest=None,
        clock=catalog.clock(connection),
        keeps_reader=False,
        problems=tuple(problems),
        tables={object: one and _as_streamed(one) for object, one in tables.items()},
    )
    if problems:
        return info
    files, status, by_files = server.files(connection), server.status(connection), wants_files(stream)
    return replace(
        info,
        head=BinlogPosition(server.head(connection, wants_files=by_files)),
        oldest=BinlogPosition(server.oldest(connection, files[0], wants_files=by_files)),
        problems=tuple(_table_problems(connection, tables, status)),
        advice=tuple(_advice(found)),
        health={"begins with": f"{files[0].name}, {text.size(sum(file.size for file in files))} in all"},
    )


def _server_problems(
    connection: MysqlConnection, found: Mapping[str, str], stream: StreamSpec
) -> Iterator[StreamProblem]:
    user = connection.facts.user
    if found.get("log_bin") != "ON":
        yield StreamProblem("the server writes no binary log", "Set log_bin and server_id in my.cnf, then restart it")
        return
    for name, good, wanted in _SETTINGS:
        if found.get(name, good[0]).upper() not in good:
            what = f"the server's {name} is {found[name] or 'empty'}"
            yield StreamProblem(what, f"SET GLOBAL {name} = {wanted}, set it in my.cnf too, and end older sessions")
    if "binlog_row_metadata" not in found:
        what = f"{connection.facts.name} does not log the names of columns (binlog_row_metadata)"
        yield StreamProblem(what, "Update the server: MariaDB 10.5 or MySQL 8.0.1 does")
    if not any(found.get(name) == "ON" for name in _LOGS_REPLICATED):
        yield from _problems_of_replicas(connection, found)
    if not _may_replicate(connection):
        yield StreamProblem(f"{user} may not replicate", f"GRANT REPLICATION SLAVE ON *.* TO {_account(user)}")
    try:
        server.status(connection)
    except Exception as error:
        if code_of(error) not in RIGHTS:
            raise
        right = "BINLOG MONITOR" if connection.facts.is_mariadb else "REPLICATION CLIENT"
        yield StreamProblem(f"{user} may not look at the binary log", f"GRANT {right} ON *.* TO {_account(user)}")
    own = server_id_of(stream)
    if str(own) == found.get("server_id"):
        yield StreamProblem(f"server_id {own} is the server's own", "Choose another `server_id` for the stream")
    if replica := _replicas(connection).get(own):
        what = f"server_id {own} is that of a replica ({replica}): the server would end one of the two"
        yield StreamProblem(what, "Choose another `server_id` for the stream")


def _problems_of_replicas(connection: MysqlConnection, found: Mapping[str, str]) -> Iterator[StreamProblem]:
    """Of a server that does not log what it applies of others. One that was promoted is no replica any more."""
    repair = "Set log_slave_updates = ON in my.cnf, then restart the server"
    if found.get("wsrep_on") == "ON":
        what = "the server is a node of a Galera cluster and does not log what other nodes write"
        yield StreamProblem(f"{what} (log_slave_updates is OFF)", repair)
        return
    is_replica, user = server.is_replica(connection), connection.facts.user
    if is_replica:
        what = "the server is a replica and does not log what it replicates (log_slave_updates is OFF)"
        yield StreamProblem(what, f"{repair}, or read its primary")
    elif is_replica is None:
        what = f"log_slave_updates is OFF, the server has replicated, and {user} may not see whether it still does"
        yield StreamProblem(what, f"GRANT REPLICA MONITOR ON *.* TO {_account(user)}, or set log_slave_updates = ON")


def _may_replicate(connection: MysqlConnection) -> bool:
    """A role is not looked into: its user is believed until the server refuses."""
    grants = [str(row[0]).upper() for row in connection.fetch("SHOW GRANTS")]
    is_direct = any(right in line.partition(" ON *.*")[0] for line in grants for right in _REPLICATES if "*.*" in line)
    return is_direct or any(" ON " not in line for line in grants)


def _account(user: str) -> str:
    name, _, host = user.rpartition("@")
    return f"'{name}'@'{host}'"


def _replicas(connection: MysqlConnection) -> dict[int, str]:
    """Server ids with their hosts, as far as the user may see them."""
    try:
        rows = connection.fetch(server.replicas_query(connection))
    except Exception as error:
        if code_of(error) not in RIGHTS:
            raise
        return {}
    return {int(row[0]): str(row[1] or "unnamed") for row in rows}


def _advice(found: Mapping[str, str]) -> Iterator[StreamProblem]:
    seconds = float(found.get("binlog_expire_logs_seconds") or 0) or float(found.get("expire_logs_days") or 0) * 86_400
    if 0 < seconds < _SHORT_KEEP:
        yield StreamProblem(
            f"the server purges its log after {text.duration(round(seconds))}: a stream that does not run so long is "
            "lost",
            "SET GLOBAL binlog_expire_logs_seconds = 604800, or what its disk can spare",
        )


def _as_streamed(info: TableInfo) -> TableInfo:
    """The log has all columns of a row before and after a change."""
    names = [column.name for column in info.columns]
    extra = {**info.extra, "replica_identity": "f", "identity_columns": names, "row_filter": None, "published": ""}
    return replace(info, extra=extra)


def _table_problems(
    connection: MysqlConnection, tables: Mapping[ObjectName, TableInfo | None], status: Mapping[str, Any]
) -> Iterator[StreamProblem]:
    there = {object: info for object, info in tables.items() if info is not None}
    found = catalog.find(connection, there)
    cascades = _cascades(connection, found)
    logged = [name for name in str(status.get("do") or "").split(",") if name]
    ignored = [name for name in str(status.get("ignore") or "").split(",") if name]
    for object in there:
        one = found[object]
        table = f"{quoted(one.schema)}.{quoted(one.name)}"
        if not one.is_table:
            yield StreamProblem(
                f"{object} is no table: only tables have changes", "Exclude it, or read its tables", object
            )
        elif one.kind == catalog.VERSIONED:
            what = f"{object} is system-versioned: the log has its history among its rows"
            yield StreamProblem(what, "Exclude it, or read it with a cursor", object)
        elif one.engine != "InnoDB":
            what = f"{object} is a table of the engine {one.engine}, which has no snapshot from which to begin"
            yield StreamProblem(what, f"ALTER TABLE {table} ENGINE = InnoDB", object)
        elif (logged and one.schema not in logged) or one.schema in ignored:
            setting = "binlog_ignore_db" if one.schema in ignored else "binlog_do_db"
            what = f"the server does not log the database {one.schema} ({setting})"
            yield StreamProblem(what, f"Change {setting} in my.cnf, then restart the server", object)
        elif (key := cascades.get((one.schema, one.name))) is not None:
            name, rule = key
            what = f"the foreign key {name} of {object} changes its rows by {rule}, which is not in the binary log"
            repair = f"ALTER TABLE {table} DROP FOREIGN KEY {quoted(name)}, and add it without that, or use a cursor"
            yield StreamProblem(what, repair, object)


def _cascades(
    connection: MysqlConnection, found: Mapping[ObjectName, catalog.Found]
) -> dict[tuple[str, str], tuple[str, str]]:
    """By table the name of a foreign key by which InnoDB changes its rows itself, and the rule."""
    cascades: dict[tuple[str, str], tuple[str, str]] = {}
    for schema in dict.fromkeys(one.schema for one in found.values()):
        rows = connection.fetch(
            "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, DELETE_RULE, UPDATE_RULE"
            f" FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = {MARKER}",
            [schema],
        )
        for its, table, name, on_delete, on_update in rows:
            for event, rule in (("DELETE", on_delete), ("UPDATE", on_update)):
                if rule in ("CASCADE", "SET NULL", "SET DEFAULT"):
                    cascades.setdefault((its, table), (name, f"ON {event} {rule}"))
    return cascades
