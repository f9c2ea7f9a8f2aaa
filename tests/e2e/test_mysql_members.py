"""ENUM and SET of MySQL: their members are texts of any kind, and a value arrives as it was written or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.flows import Flow, mysql_rows
from tests.services.mariadb import PASSWORD

FAILED = 4
STATES, OWN_STATES = "ENUM('no comment yet', 'seen')", "ENUM('seen', 'no comment yet')"
TAGS, OWN_TAGS = "SET('a', 'no comment', 'b')", "SET('b', 'no comment', 'a')"


@pytest.mark.full
def test_members_that_look_like_a_comment(tmp_path: Path, mysql_database: str) -> None:
    mysql_rows(
        mysql_database,
        f"CREATE TABLE src (id INT PRIMARY KEY, state {STATES}, tags {TAGS}, more TEXT COMMENT 'JSON settings');"
        "INSERT INTO src VALUES (1, 'no comment yet', 'no comment', '{}')",
    )
    flow = Flow(tmp_path, {"PASSWORD": PASSWORD})
    url = mysql_database.replace(f":{PASSWORD}@", ":${secret:env:PASSWORD}@")
    spec = {"version": 1, "flow": "members", "state": "state", "spark": {"url": "sail"}}
    spec["connections"] = {"my": {"type": "mysql", "url": url}}
    spec["tables"] = {"dst": {"from": "my:src", "to": "my:dst", "mode": "merge", "key": ["id"]}}
    flow.write(json.dumps(spec))
    flow.apply()
    mysql_rows(mysql_database, f"ALTER TABLE dst MODIFY state {OWN_STATES}, MODIFY tags {OWN_TAGS}")
    mysql_rows(mysql_database, "INSERT INTO src VALUES (2, 'seen', 'a', NULL)")
    planned = flow.run("plan", "flow.yaml", "--verbose").words
    assert "values must fit state enum('seen','no comment yet'), tags set('b','no comment','a')" in planned
    flow.apply()
    rows = [(1, "no comment yet", "no comment", "{}"), (2, "seen", "a", None)]
    assert list(mysql_rows(mysql_database, "SELECT id, state, tags, more FROM dst ORDER BY id")) == rows

    mysql_rows(mysql_database, "UPDATE src SET tags = 'a,b' WHERE id = 2")
    assert "column tags (set('b','no comment','a')) would change a value" in flow.apply(expect=FAILED).words
    assert list(mysql_rows(mysql_database, "SELECT id, state, tags, more FROM dst ORDER BY id")) == rows
