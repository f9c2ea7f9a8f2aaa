"""Columns that come after a table was planned, and before it is read in full."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.e2e.flows import Flow, end_of_stopped, wait_until_stopped
from tests.e2e.streams.flow import place, write_flow
from tests.e2e.streams.targets import DeltaPlace, are_equal, must_equal
from tests.e2e.streams.test_follow import followed, wait_for
from tests.e2e.streams.test_tables import ONE, SCHEMA, execute, insert

pytestmark = pytest.mark.server
MIGRATION = ("ALTER TABLE one ADD COLUMN extra text", "UPDATE one SET extra = 'sent before the moment'")
STOPPED = {"FLOWCTL_CRASH_AT": "moment_begun", "FLOWCTL_CRASH_WITH": "SIGSTOP"}


def migrated_before_the_moment(folder: Path, url: str, tables: str, at: str = "moment_begun") -> tuple[Flow, int]:
    """The flow, and how its first run ended."""
    execute(url, SCHEMA)
    insert(url, 1, ["one"])
    flow = write_flow(folder, url, [], tables)
    process = flow.start("apply", "flow.yaml", env={**STOPPED, "FLOWCTL_CRASH_AT": at})
    wait_until_stopped(process)
    execute(url, *MIGRATION)
    end_of_stopped(process)
    return flow, process.returncode


def test_a_column_that_comes_before_the_moment_is_planned_first(tmp_path: Path, source_url: str) -> None:
    flow, code = migrated_before_the_moment(tmp_path, source_url, ONE)
    assert code == 6
    flow.apply()
    must_equal(source_url, DeltaPlace(tmp_path / "lake"), ["one"])


def test_a_column_that_comes_before_the_publication(tmp_path: Path, postgres_database: str) -> None:
    flow, code = migrated_before_the_moment(tmp_path, postgres_database, ONE, at="before_prepare")
    assert code == 6
    flow.apply()
    must_equal(postgres_database, DeltaPlace(tmp_path / "lake"), ["one"])


@pytest.mark.full
def test_a_column_that_the_table_does_not_take(tmp_path: Path, source_url: str) -> None:
    chosen = ONE.replace("mode: merge", "mode: merge, columns: {include: [id, value]}")
    flow, code = migrated_before_the_moment(tmp_path, source_url, chosen)
    assert code == 0
    assert place(flow, source_url, "lake").rows("one", ["id", "value"]) == [("1", "row 1")]


@pytest.mark.full
def test_a_stream_that_is_followed_is_planned_again(tmp_path: Path, source_url: str) -> None:
    """Soon: a follower looks at the source again every five minutes otherwise."""
    execute(source_url, SCHEMA)
    insert(source_url, 1, ["one"])
    flow = write_flow(tmp_path, source_url, [], ONE)
    flow.env |= STOPPED
    with followed(flow) as process:
        wait_until_stopped(process)
        execute(source_url, *MIGRATION)
        process.send_signal(signal.SIGCONT)
        wait_for(lambda: are_equal(source_url, DeltaPlace(tmp_path / "lake"), tables=["one"]))
