"""Rows that get values which no change sends: their tables are read again, whatever came before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.streams.targets import DeltaPlace, must_be_history, must_equal
from tests.e2e.streams.test_tables import TWO, begun, execute, insert

pytestmark = pytest.mark.server
AGAIN = "on_schema_change: {unsent: resnapshot}"
ONE = f'  one: {{from: "cdc:public.one", to: "lake:one", mode: merge, {AGAIN}}}\n'
HISTORY = f'  history: {{from: "cdc:public.one", to: "lake:history", mode: scd2, {AGAIN}}}\n'
ALTER = "ALTER TABLE one ADD COLUMN extra int NOT NULL DEFAULT 7"


def test_a_change_before_the_column_came(tmp_path: Path, source_url: str) -> None:
    """It has the columns of before, and is in the snapshot."""
    flow = begun(tmp_path, source_url, ONE + HISTORY)
    execute(source_url, "UPDATE one SET value = 'changed'", ALTER)
    flow.apply()
    insert_wide(source_url, 2)
    flow.apply()
    lake = DeltaPlace(tmp_path / "lake")
    must_equal(source_url, lake, ["one"])
    must_be_history(source_url, lake, "one", "history", ["id"])


@pytest.mark.full
@pytest.mark.parametrize("point", ["landed", "after_commit", "after_record", "before_intent"])
def test_killed_once_the_table_was_read_again(point: str, tmp_path: Path, source_url: str) -> None:
    """The next plan sees a batch with changes of before the snapshot."""
    flow = begun(tmp_path, source_url, ONE + HISTORY)
    execute(source_url, "UPDATE one SET value = 'changed'", ALTER)
    flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=-9)
    insert_wide(source_url, 2)
    flow.apply()
    flow.apply()
    lake = DeltaPlace(tmp_path / "lake")
    must_equal(source_url, lake, ["one"])
    must_be_history(source_url, lake, "one", "history", ["id"])


@pytest.mark.full
@pytest.mark.parametrize("point", ["after_intent", "before_commit", "after_commit"])
def test_a_pass_that_was_killed_before_the_column_came(point: str, tmp_path: Path, source_url: str) -> None:
    """The table is read again by the run that finishes the pass: it lags behind no other."""
    flow = begun(tmp_path, source_url, ONE + TWO)
    execute(source_url, "UPDATE one SET value = 'changed'")
    flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=-9)
    execute(source_url, ALTER)
    insert_wide(source_url, 2)
    insert(source_url, 2, ["two"])
    flow.apply()
    must_equal(source_url, DeltaPlace(tmp_path / "lake"), ["one", "two"])


def insert_wide(url: str, number: int) -> None:
    execute(url, f"INSERT INTO one VALUES ({number}, 'row {number}', 8)")
