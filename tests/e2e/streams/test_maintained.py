"""`flowctl maintain` of tables that follow a stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowctl.state.lease import current
from flowctl.state.streams import lease_prefix
from flowctl.storage.options import open_store
from tests.e2e.flows import Flow
from tests.e2e.streams.flow import write_flow
from tests.e2e.streams.test_follow import followed, wait_for
from tests.e2e.streams.test_tables import ONE, SCHEMA, execute, insert, must_have_all

pytestmark = [pytest.mark.server, pytest.mark.full]


def is_leased(flow: Flow) -> bool:
    """Whether a process holds the stream's lease."""
    blobs = open_store(str(flow.folder / "state" / "shop"), {})
    held = current(blobs, lease_prefix("cdc"))
    return held is not None and not held.released


def test_tables_of_a_stream_are_maintained_between_its_runs(tmp_path: Path, postgres_database: str) -> None:
    execute(postgres_database, SCHEMA, "INSERT INTO one SELECT n, 'row' FROM generate_series(1, 600000) n")
    flow = write_flow(tmp_path, postgres_database, [], ONE, "batch: {rows: 500000}")
    flow.apply()
    execute(postgres_database, "DELETE FROM one WHERE id % 4 = 0")
    flow.apply()
    with followed(flow):
        wait_for(lambda: is_leased(flow))
        busy = flow.run("maintain", "flow.yaml", "--yes", expect=5).words
        assert "locked by run" in busy
    insert(postgres_database, 700000, ["one"])
    flow.apply(env={"FLOWCTL_CRASH_AT": "before_commit"}, expect=-9)
    assert "is not finished" in flow.run("maintain", "flow.yaml", "--yes", expect=6).words
    flow.apply()
    assert "1 table maintained" in flow.run("maintain", "flow.yaml", "--yes", expect=0).words
    insert(postgres_database, 700001, ["one"])
    flow.apply()
    must_have_all(postgres_database, tmp_path, ["one"])
