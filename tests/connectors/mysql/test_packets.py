"""A server that takes small packets only."""

from __future__ import annotations

import pytest

from tests.connectors.writing import Writer, row, upserts
from tests.e2e.flows import mysql_rows
from tests.services import mariadb

pytestmark = [pytest.mark.long_on_spark]


def test_a_server_that_takes_small_packets(writer: Writer, mariadb_server: mariadb.Server) -> None:
    """Smaller than the parts in which rows are sent to others."""
    ((before,),) = mysql_rows(mariadb_server.url, "SELECT @@global.max_allowed_packet")
    mariadb_server.administer("SET GLOBAL max_allowed_packet = 16384")
    try:
        rows = [row(id, "ä" * 1_000) for id in range(300)]
        writer.write(upserts(*rows), 1, "merge")
    finally:
        mariadb_server.administer(f"SET GLOBAL max_allowed_packet = {before}")
    assert sorted(writer.place.read(["id", "name"])) == [(id, "ä" * 1_000) for id in range(300)]
