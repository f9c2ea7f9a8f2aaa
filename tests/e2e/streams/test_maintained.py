"""`flowctl maintain` of tables that follow a stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.streams.test_follow import followed
from tests.e2e.streams.test_tables import ONE, begun, insert, must_have_all

pytestmark = [pytest.mark.server, pytest.mark.full]


def test_tables_of_a_stream_are_maintained_between_its_runs(tmp_path: Path, postgres_database: str) -> None:
    flow = begun(tmp_path, postgres_database, ONE)
    for number in range(2, 14):
        insert(postgres_database, number, ["one"])
        flow.apply()
    with followed(flow):
        busy = flow.run("maintain", "flow.yaml", "--yes", expect=5).words
        assert "lake:one" in busy and "1 left out" in busy
    killed = flow.apply(env={"FLOWCTL_CRASH_AT": "before_commit"}, expect=None)
    assert killed.code == 0  # there was nothing to commit
    insert(postgres_database, 20, ["one"])
    flow.apply(env={"FLOWCTL_CRASH_AT": "before_commit"}, expect=-9)
    assert "is not finished" in flow.run("maintain", "flow.yaml", "--yes", expect=6).words
    flow.apply()
    assert "1 table maintained" in flow.run("maintain", "flow.yaml", "--yes", expect=0).words
    insert(postgres_database, 21, ["one"])
    flow.apply()
    must_have_all(postgres_database, tmp_path, ["one"])
