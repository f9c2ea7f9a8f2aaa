"""MySQL's stream in :mod:`tests.connectors.captured`."""

from __future__ import annotations

from flowctl.connectors.mysql import CAPABILITIES
from flowctl.connectors.mysql.changes import server
from flowctl.connectors.mysql.changes.names import wants_files
from flowctl.connectors.mysql.changes.stream import MysqlStreams
from flowctl.connectors.mysql.client import client
from flowctl.connectors.mysql.source import MysqlSource
from flowctl.model.position import BinlogPosition
from tests.connectors import captured


class Captured(captured.Captured):
    def opened(self) -> MysqlStreams:
        self.client = client({"url": self.url})
        return MysqlStreams(self.client, MysqlSource(self.client, CAPABILITIES))

    def head(self) -> BinlogPosition:
        with self.client.connect() as connection:
            return BinlogPosition(server.head(connection, wants_files=wants_files(self.stream)))
