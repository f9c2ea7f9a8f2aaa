"""The moment at which tables are read: what it cannot show is worth another one."""

from __future__ import annotations

import pytest

from flowctl.connectors.mysql import CAPABILITIES
from flowctl.connectors.mysql.changes import moment
from flowctl.connectors.mysql.client import client
from flowctl.connectors.mysql.source import MysqlSource
from flowctl.connectors.source import ReadRequest
from flowctl.errors import TransientError
from tests.connectors.mysql.conftest import Script
from tests.connectors.reading import Collected, describe, table

pytestmark = pytest.mark.server


def test_a_table_that_was_altered_before_its_lock(script: Script, mysql_database: str) -> None:
    script("CREATE TABLE one (i INT PRIMARY KEY); INSERT INTO one VALUES (1)")
    script("CREATE TABLE two (i INT PRIMARY KEY); INSERT INTO two VALUES (2)")
    opened = client({"url": mysql_database})
    source = MysqlSource(opened, CAPABILITIES)
    infos = {name: describe(source, table(name)) for name in ("one", "two")}
    with moment.take(opened, [infos["two"].object], wants_files=False) as taken:
        script("ALTER TABLE one ADD COLUMN k INT NOT NULL DEFAULT 7, FORCE")
        found = Collected()
        with taken.capture(table("two"), infos["two"], lambda name: True) as capture:
            capture.read(ReadRequest(infos["two"].columns), found)
        assert found.rows == [{"i": 2}]
        altered = pytest.raises(TransientError, match="definition has changed")
        with altered as refused, taken.capture(table("one"), infos["one"], lambda name: name != "k") as capture:
            capture.read(ReadRequest(infos["one"].columns), Collected())
        assert "another moment" in refused.value.hint
