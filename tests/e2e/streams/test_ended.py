"""A stream that no table reads any more: told by every plan, ended by a command, begun again."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.e2e.flows import Flow
from tests.e2e.streams.flow import write_flow
from tests.e2e.streams.targets import slots
from tests.e2e.streams.test_tables import ONE, TWO, begun, execute, insert, must_have_all

pytestmark = pytest.mark.server


def without_stream(flow: Flow) -> None:
    lines = flow.spec.read_text().splitlines(keepends=True)
    left_out = ("streams:", "  cdc:", "  one:", "  two:")
    left = "".join(line for line in lines if not line.startswith(left_out))
    flow.write(f'{left}  x: {{from: "lite:x", to: "lake:x", mode: truncate}}\n')
    with sqlite3.connect(flow.folder / "lite.db") as connection:
        connection.execute("CREATE TABLE x (a INTEGER)")


@pytest.mark.full
def test_a_stream_that_left_the_spec_is_told_and_ended(tmp_path: Path, postgres_database: str) -> None:
    flow = begun(tmp_path, postgres_database, ONE + TWO)
    insert(postgres_database, 2, ["one", "two"])
    flow.apply()
    before = flow.spec.read_text()
    assert slots(postgres_database) == ["flowctl_shop_cdc"]
    flow.run("state", "end-stream", "flow.yaml", "cdc", "--yes", expect=64)  # its tables are in the spec
    without_stream(flow)
    told = flow.run("plan", "flow.yaml", expect=0).words
    assert "its slot flowctl_shop_cdc goes on keeping the log of source" in told
    assert "flowctl state end-stream flow.yaml cdc" in told
    flow.apply()
    assert slots(postgres_database) == ["flowctl_shop_cdc"]
    flow.run("state", "end-stream", "flow.yaml", "cdx", "--yes", expect=64)
    flow.run("state", "end-stream", "flow.yaml", "cdc", "--yes", expect=0)
    assert slots(postgres_database) == []
    assert not list((tmp_path / "state" / "shop" / "streams" / "cdc" / "segments").iterdir())
    assert not list((tmp_path / "state" / "shop" / "streams" / "cdc" / "landed").iterdir())
    assert "cdc" not in flow.run("plan", "flow.yaml", expect=0).words
    flow.run("state", "end-stream", "flow.yaml", "cdc", "--yes", expect=64)
    flow.write(before)
    insert(postgres_database, 3, ["one", "two"])
    flow.apply()
    insert(postgres_database, 4, ["one", "two"])
    flow.apply()
    must_have_all(postgres_database, tmp_path, ["one", "two"])


@pytest.mark.full
def test_a_reader_that_is_gone(tmp_path: Path, postgres_database: str) -> None:
    flow = begun(tmp_path, postgres_database, ONE + TWO)
    without_stream(flow)
    execute(postgres_database, "SELECT pg_drop_replication_slot('flowctl_shop_cdc')")
    assert "its reader in the source is gone" in flow.run("plan", "flow.yaml", expect=0).words
    text = flow.spec.read_text()
    flow.write(text.replace("  source: {", "  other: {"))
    assert "the spec has no connection source" in flow.run("plan", "flow.yaml", expect=0).words
    assert "--reader-is-gone" in flow.run("state", "end-stream", "flow.yaml", "cdc", "--yes", expect=64).words
    flow.run("state", "end-stream", "flow.yaml", "cdc", "--reader-is-gone", "--yes", expect=0)
    assert "cdc" not in flow.run("plan", "flow.yaml", expect=0).words
    write_flow(tmp_path, postgres_database, [], ONE + TWO)
    flow.apply()
    must_have_all(postgres_database, tmp_path, ["one", "two"])
