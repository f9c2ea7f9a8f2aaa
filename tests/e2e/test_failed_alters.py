"""A commit that fails in MySQL after its ALTER, which stays: the next plan knows the column as flowctl's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.flows import Flow, mysql_rows
from tests.services.mariadb import PASSWORD

FAILED = 4
REFUSING = "CREATE TRIGGER refusing BEFORE INSERT ON dst FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'"


@pytest.mark.full
def test_a_column_that_a_failed_commit_has_left_is_flowctls_own(tmp_path: Path, mysql_database: str) -> None:
    mysql_rows(mysql_database, "CREATE TABLE src (id INT PRIMARY KEY); INSERT INTO src VALUES (1)")
    flow = Flow(tmp_path, {"PASSWORD": PASSWORD})
    url = mysql_database.replace(f":{PASSWORD}@", ":${secret:env:PASSWORD}@")
    spec = {"version": 1, "flow": "altering", "state": "state", "spark": {"url": "sail"}}
    spec["connections"] = {"my": {"type": "mysql", "url": url}}
    spec["tables"] = {"dst": {"from": "my:src", "to": "my:dst", "mode": "merge", "key": ["id"]}}
    flow.write(json.dumps(spec))
    flow.apply()
    mysql_rows(mysql_database, "ALTER TABLE src ADD COLUMN note VARCHAR(9); INSERT INTO src VALUES (2, 'x')")
    mysql_rows(mysql_database, REFUSING)
    flow.apply(expect=FAILED)
    flow.apply(expect=FAILED)
    mysql_rows(mysql_database, "DROP TRIGGER refusing")
    (step,) = flow.plan()["steps"]
    assert (step["action"], step["schema"]) == ("recover", [])
    flow.apply()
    assert list(mysql_rows(mysql_database, "SELECT id, note FROM dst ORDER BY id")) == [(1, None), (2, "x")]
    mysql_rows(mysql_database, "ALTER TABLE dst ADD COLUMN more INT")
    (step,) = flow.plan()["steps"]
    assert [change["note"] for change in step["schema"]] == ["added in the target by someone else; left alone"]
