"""A connection that reads the binary log: a replica in the server's eyes, which stores nothing."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from flowctl.connectors.mysql.changes.events import Event, Kind, event_of, rotation, says_checksums
from flowctl.connectors.mysql.changes.identity import OpenedFile
from flowctl.connectors.mysql.client import Client, MysqlConnection
from flowctl.connectors.mysql.errors import code_of
from flowctl.errors import StoppedByPolicy, TransientError
from flowctl.model import binlog

_DUMP, _DUMP_GTID = 0x12, 0x1E
_FIRST_OFFSET = 4
#: The server cannot send what follows: it has purged it, or never had it.
_NO_LOG = 1236
#: MariaDB's for a reader whose `server_id` another one has; MySQL's is the one above.
_TAKEN = 4052
#: Seconds between two events of an idle server, and until a silent one counts as gone.
HEARTBEAT_SECONDS, SILENT_SECONDS = 0.5, 60.0


@dataclass
class LogReader:
    """The running log."""

    driver: Any
    stream: str
    server_id: int
    _checksums: bool = False

    def events(self) -> Iterator[Event]:
        """Without end: an idle server sends heartbeats."""
        import pymysql

        while True:
            try:
                packet = self.driver._read_packet()
            except pymysql.err.Error as error:
                if code_of(error) in (_NO_LOG, _TAKEN):
                    raise self._ended(str(error.args[1])) from error
                raise
            if packet.is_eof_packet():
                raise TransientError("the server has ended the log's connection", hint="Wait: it is opened again")
            event = event_of(packet._data[1:], self._checksums)
            if event.kind == Kind.FORMAT:
                self._checksums = says_checksums(event.body)
            yield event

    def _ended(self, why: str) -> StoppedByPolicy | TransientError:
        if "same server_uuid" in why:
            return TransientError(
                f"something else reads the log as server_id {self.server_id}",
                hint="End it, or choose another `server_id` for the stream: it starts again",
            )
        return self.lost(why)

    def lost(self, why: str) -> StoppedByPolicy:
        return StoppedByPolicy(
            f"the position of stream {self.stream} is lost: {why}",
            hint=f"Run `flowctl state resnapshot SPEC {self.stream}`: it reads the tables again",
        )

    def opened(self) -> OpenedFile:
        """The file with which the server begins. Nothing else is read from here then."""
        name = ""
        for event in self.events():
            if event.kind == Kind.ROTATE:
                name, _ = rotation(event.body)
            elif event.kind == Kind.FORMAT:
                return OpenedFile.of(event, name)
        raise AssertionError("the log has no end")


@contextmanager
def reading(client: Client, stream: str, server_id: int, after: str) -> Iterator[LogReader]:
    """Reads what follows ``after``. A server ends an older reader with the same ``server_id``."""
    with client.connect() as connection:
        ((checksum,),) = connection.fetch("SELECT @@global.binlog_checksum")
        settings = [
            "@master_binlog_checksum = @@global.binlog_checksum",
            f"@master_heartbeat_period = {round(HEARTBEAT_SECONDS * 1e9)}",
            "net_write_timeout = 3600",
        ]
        if connection.facts.is_mariadb:
            settings.append("@mariadb_slave_capability = 4")
        connection.execute("SET " + ", ".join(settings))
        _start(connection, server_id, after)
        has_checksums = checksum != "NONE"  # also of what comes before the format's description
        connection.driver._sock.settimeout(SILENT_SECONDS)
        yield LogReader(connection.driver, stream, server_id, has_checksums)


def _start(connection: MysqlConnection, server_id: int, after: str) -> None:
    driver = connection.driver
    if place := binlog.file_of(after):
        file, offset = place
        driver._execute_command(_DUMP, struct.pack("<IHI", offset, 0, server_id) + file.encode())
    elif connection.facts.is_mariadb:
        connection.execute(f"SET @slave_connect_state = '{after}', @slave_gtid_strict_mode = 1")
        driver._execute_command(_DUMP, struct.pack("<IHI", _FIRST_OFFSET, 0, server_id))
    else:
        gtids = encoded(binlog.set_from_text(after))
        head = struct.pack("<HIIQI", 4, server_id, 0, _FIRST_OFFSET, len(gtids))
        driver._execute_command(_DUMP_GTID, head + gtids)


def encoded(gtids: binlog.GtidSet) -> bytes:
    """As COM_BINLOG_DUMP_GTID takes them: each interval's end is the number behind its last."""
    parts = [struct.pack("<Q", len(gtids))]
    for server, intervals in sorted(gtids.items()):
        parts.append(bytes.fromhex(server.replace("-", "")) + struct.pack("<Q", len(intervals)))
        parts += [struct.pack("<QQ", first, last + 1) for first, last in intervals]
    return b"".join(parts)
