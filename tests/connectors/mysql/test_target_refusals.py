"""What a server refuses of a write: rows that others refer to, and packets larger than it takes."""

from __future__ import annotations

import pytest

from flowctl.errors import TableError
from tests.connectors.mysql.conftest import Script
from tests.connectors.writing import Writer, gone, row, upserts
from tests.e2e.flows import mysql_rows
from tests.services import mariadb

pytestmark = [pytest.mark.long_on_spark]


def test_rows_that_others_refer_to(writer: Writer, script: Script) -> None:
    writer.write(upserts(row(1), row(2)), 1, "merge")
    writer.place.execute("ALTER TABLE {table} ADD PRIMARY KEY (id)")
    writer.place.execute("CREATE TABLE child (id BIGINT, FOREIGN KEY (id) REFERENCES {table} (id))")
    script("INSERT INTO child VALUES (2)")
    with pytest.raises(TableError, match="a foreign key constraint fails") as refused:
        writer.write([gone(2)], 2, "merge")
    assert "Delete the rows that refer to them" in refused.value.hint
    script("DELETE FROM child")
    writer.write([gone(2)], 2, "merge")
    assert writer.place.read(["id"]) == [(1,)]


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
