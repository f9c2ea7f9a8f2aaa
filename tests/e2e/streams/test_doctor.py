"""`flowctl doctor`: what it reports is repaired by what it says, as a superuser would execute it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.flows import Flow
from tests.e2e.streams.flow import write_flow
from tests.e2e.streams.test_tables import begun, execute

pytestmark = pytest.mark.server

BROKEN = """
    CREATE TABLE plain (id int PRIMARY KEY);
    CREATE TABLE keyless (id int);
    CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY);
    CREATE TABLE outside (id int PRIMARY KEY);
    CREATE PUBLICATION mine FOR TABLE plain, keyless WITH (publish = 'insert');
"""
PATTERN = '  "${table}": {from: "cdc:public.*", to: "lake:${table}", mode: merge}\n'


def report(flow: Flow, expect: int | None = None) -> dict[str, Any]:
    found: dict[str, Any] = flow.run("doctor", "flow.yaml", "--format", "json", expect=expect).json()
    return found


def statement_in(repair: str) -> str:
    if repair.startswith("Add a primary key"):
        return "ALTER TABLE keyless ADD PRIMARY KEY (id)"
    assert re.match("ALTER (TABLE|PUBLICATION)", repair)
    return repair


@pytest.mark.full
def test_its_statements_repair_what_it_reports(tmp_path: Path, postgres_database: str) -> None:
    execute(postgres_database, BROKEN)
    flow = write_flow(tmp_path, postgres_database, [], PATTERN, "publication: mine")
    done: list[str] = []
    while errors := report(flow)["errors"]:
        report(flow, 6)
        done.append(statement_in(errors[0]["hint"]))
        assert len(done) == len(set(done)), done
        execute(postgres_database, done[-1])
    assert len(done) == 5, done  # its operations, two tables that it lacks, a key, a log
    report(flow, 0)
    flow.apply()
    words = flow.run("doctor", "flow.yaml", expect=0).words
    assert "No error" in words and "slot flowctl_shop_cdc of source" in words


def test_connections_that_do_not_answer_and_advice(tmp_path: Path, postgres_database: str) -> None:
    flow = begun(tmp_path, postgres_database)
    unused = '  dead: {type: postgres, url: "postgresql://a:${secret:env:PG_PASSWORD}@127.0.0.1:9/x"}\n'
    flow.write(flow.spec.read_text().replace("  dw:", f"{unused}  dw:"))
    found = report(flow, 4)
    answers = {one["name"]: one["answers"] for one in found["subjects"]}
    assert answers == {"source": True, "dw": True, "lake": True, "lite": True, "dead": False, "cdc": True}
    (error,) = found["errors"]
    assert error["code"] == "unreachable" and error["line"] == 7 and "etl-secret" not in str(found)
    advice = [one["message"] for subject in found["subjects"] for one in subject["advice"]]
    assert any("keeps its log for a slot without limit" in one for one in advice)
