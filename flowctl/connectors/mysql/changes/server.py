"""What a server says of its binary log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowctl.connectors.mysql.client import MARKER, MysqlConnection
from flowctl.connectors.mysql.errors import RIGHTS, code_of
from flowctl.model import binlog

#: The file begins with its header behind this offset.
FIRST_OFFSET = 4
#: MySQL has other words for the same since then, and has dropped the older ones in 8.4.
_NEW_STATUS, _NEW_REPLICAS = (8, 2, 0), (8, 0, 22)


@dataclass(frozen=True)
class LogFile:
    name: str
    size: int


def variables(connection: MysqlConnection, names: Sequence[str]) -> dict[str, str]:
    """Those that the server has."""
    listed = ", ".join([MARKER] * len(names))
    rows = connection.fetch(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed})", list(names))
    return {name.lower(): str(value) for name, value in rows}


def files(connection: MysqlConnection) -> list[LogFile]:
    """Oldest first."""
    return [LogFile(row[0], int(row[1])) for row in connection.fetch("SHOW BINARY LOGS")]


def status(connection: MysqlConnection) -> Mapping[str, Any]:
    """The newest file, the place in it, and the databases to which the log is limited."""
    rows = connection.fetch("SHOW BINARY LOG STATUS" if _is_mysql(connection, _NEW_STATUS) else "SHOW MASTER STATUS")
    names = ("file", "offset", "do", "ignore")
    return dict(zip(names, rows[0], strict=False)) if rows else {}


def replicas_query(connection: MysqlConnection) -> str:
    return "SHOW REPLICAS" if _is_mysql(connection, _NEW_REPLICAS) else "SHOW SLAVE HOSTS"


def is_replica(connection: MysqlConnection) -> bool | None:
    """Whether it replicates another server, running or stopped. None if it has, on MariaDB, and the user may not see
    more; a right that MySQL needs for this is one that every stream needs there."""
    if connection.facts.is_mariadb:
        query = "SHOW ALL SLAVES STATUS"
    else:
        query = "SHOW REPLICA STATUS" if _is_mysql(connection, _NEW_REPLICAS) else "SHOW SLAVE STATUS"
    try:
        return bool(connection.fetch(query))
    except Exception as error:
        if code_of(error) not in RIGHTS:
            raise
    if not connection.facts.is_mariadb:
        return False
    ((_, running),) = connection.fetch("SHOW GLOBAL STATUS LIKE 'Slaves_running'")
    ((gtids,),) = connection.fetch("SELECT @@global.gtid_slave_pos")
    return True if int(running) else None if gtids else False


def _is_mysql(connection: MysqlConnection, since: tuple[int, int, int]) -> bool:
    version = tuple(int(part) for part in re.findall(r"\d+", connection.facts.version)[:3])
    return not connection.facts.is_mariadb and version >= since


def has_gtids(connection: MysqlConnection) -> bool:
    """MariaDB always has."""
    if connection.facts.is_mariadb:
        return True
    return variables(connection, ["gtid_mode"]).get("gtid_mode") == "ON"


def head(connection: MysqlConnection, *, wants_files: bool) -> str:
    if wants_files or not has_gtids(connection):
        found = status(connection)
        return f"{found['file']}:{found['offset']}"
    query = "SELECT @@global.gtid_binlog_pos" if connection.facts.is_mariadb else "SELECT @@global.gtid_executed"
    ((gtids,),) = connection.fetch(query)
    return _plain(connection, gtids)


def oldest(connection: MysqlConnection, first: LogFile, *, wants_files: bool) -> str:
    """What is before is not there any more."""
    if wants_files or not has_gtids(connection):
        return f"{first.name}:{FIRST_OFFSET}"
    if connection.facts.is_mariadb:
        return place_at(connection, first.name, FIRST_OFFSET, wants_files=False)
    ((gtids,),) = connection.fetch("SELECT @@global.gtid_purged")
    return _plain(connection, gtids)


def place_at(connection: MysqlConnection, file: str, offset: int, *, wants_files: bool) -> str:
    """Of MariaDB."""
    if wants_files:
        return f"{file}:{offset}"
    ((gtids,),) = connection.fetch(f"SELECT BINLOG_GTID_POS({MARKER}, {MARKER})", [file, offset])
    return _plain(connection, gtids or "")


def _plain(connection: MysqlConnection, gtids: str) -> str:
    if connection.facts.is_mariadb:
        return binlog.state_text(binlog.state_from_text(gtids))
    return binlog.set_text(binlog.set_from_text(gtids.replace("\n", "")))
