"""`flowctl restore` as a user runs it: a table and its state go back together, and the next run continues there."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from deltalake import write_deltalake
from pyarrow import table as arrow_table

from tests.connectors.iceberg.iceberg_tables import catalog_of, change
from tests.e2e.flows import sqlite_rows, sqlite_script, wait_until_stopped
from tests.e2e.restoring import LAST, add_rows, restore, with_three_commits
from tests.e2e.target_place import TargetPlace
from tests.e2e.targets import DeltaPlace, IcebergPlace, place

pytestmark = pytest.mark.server


@pytest.fixture(params=["delta", pytest.param("iceberg", marks=pytest.mark.full)])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> TargetPlace:
    return place(request.param, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("table", ["orders", "events", "versions"])
def test_the_table_and_its_state_go_back_together(lake: TargetPlace, table: str) -> None:
    made = with_three_commits(lake, table)
    flow, contents = made.flow, made.contents
    shown = flow.run("restore", "flow.yaml", table, "--to", "2", expect=1)  # there is nobody to ask
    assert "undoes sequence number 3" in shown.words and "position 2026-01-03 00:00 → 2026-01-02" in shown.words
    assert made.rows == contents[2]
    said = made.restore("#1")
    assert f"{table} has the content of sequence number 1 again, as number 4." in said
    assert "undoes 2 sequence numbers, 2 to 3" in said
    assert made.rows == contents[0]
    (step,) = flow.plan("--select", table)["steps"]
    assert step["action"] == "change" and step["seq"] == 5
    assert "already" in made.restore("1")
    made.apply()
    if table != "orders":  # it reads what the source has now: an order has lost the state in between
        contents[2] = [row for row in contents[2] if row[1] != "changed"] if table == "events" else made.rows
    assert made.rows == contents[2]
    if table == "versions":
        assert made.current() == LAST
        assert (1, "a") in {row[:2] for row in made.rows if not row[-1]}
    assert made.is_up_to_date()


@pytest.mark.parametrize(
    ("table", "point"),
    [
        pytest.param("orders", "before_record:orders", marks=pytest.mark.full),
        *(
            pytest.param(table, f"{point}:{place}", marks=pytest.mark.full)
            for table, place in (("orders", "orders"), ("versions", "versions"), ("versions", "versions__observed"))
            for point in ("in_commit", "after_commit")
        ),
    ],
)
def test_killed_it_is_completed_by_the_same_command(lake: TargetPlace, table: str, point: str) -> None:
    made = with_three_commits(lake, table)
    made.restore("1", expect=-9, FLOWCTL_CRASH_AT=point)
    is_begun = point != f"in_commit:{table}"
    assert made.rows == made.contents[0 if is_begun else 2]
    (step,) = made.flow.plan("--select", table, expect=None)["steps"]
    assert step["action"] == ("stop" if is_begun else "none")
    if is_begun:
        assert f"Finish it with `flowctl restore flow.yaml {table} --to 1`" in step["hint"]
        refused = made.flow.run("state", "adopt", "flow.yaml", table, "--yes", expect=6)
        assert "restoration was interrupted" in refused.words
    made.restore("1")
    assert made.rows == made.contents[0]
    if table == "versions":  # each attempt at a number adds its observations
        assert len(lake.named("versions__observed").fetch("SELECT DISTINCT _seq FROM {table}")) == 1
    made.apply()
    assert made.current() == LAST
    assert made.is_up_to_date()


@pytest.mark.full
@pytest.mark.parametrize("table", ["orders", "versions"])
def test_it_undoes_a_full_refresh(lake: TargetPlace, table: str) -> None:
    made = with_three_commits(lake, table, "--full-refresh", table)
    made.restore("2")
    assert made.rows == made.contents[1]
    made.apply()
    assert made.current() == LAST


@pytest.mark.full
def test_a_restoration_can_be_undone(lake: TargetPlace) -> None:
    made = with_three_commits(lake, "orders")
    made.restore("1")
    made.restore("3")
    assert made.rows == made.contents[2]
    assert made.is_up_to_date()
    made.restore("2")
    assert made.rows == made.contents[1]


@pytest.mark.full
def test_columns_go_back_too(lake: TargetPlace) -> None:
    made = with_three_commits(lake, "orders")
    source = lake.folder / "source.db"
    sqlite_script(source, "ALTER TABLE orders ADD size INTEGER; UPDATE orders SET size = id, at = '2026-01-04'")
    made.apply()
    said = made.restore("3")
    assert "columns without size" in said and made.rows == made.contents[2]
    assert "size" not in made.place.columns()
    made.apply()
    assert made.place.rows(["id", "size"]) == sqlite_rows(source, "SELECT id, size FROM orders")


@pytest.mark.full
def test_the_definition_goes_back_too(lake: TargetPlace) -> None:
    """A position means nothing under another cursor: rows below it would be lost."""
    made = with_three_commits(lake, "orders")
    old, new = made.flow.spec.read_text(), made.flow.spec.read_text().replace("{column: at}", "{column: id}")
    made.flow.write(new)
    made.flow.apply("--select", "orders", "--full-refresh", "orders")
    said = made.restore("2")
    assert "definition was another one, cursor: at → id: the next plan stops" in said
    assert "definition recorded → another one (cursor)" in said
    (step,) = made.flow.plan("--select", "orders", expect=None)["steps"]
    assert step["action"] == "stop" and step["reason"] == "the definition changed: cursor: at → id"
    assert "--full-refresh orders" in step["hint"] and "--accept-definition" in step["hint"]
    made.flow.write(old)
    made.apply()
    assert made.current() == LAST


@pytest.mark.full
def test_a_definition_that_is_no_longer_recorded_is_that_of_later_numbers(lake: TargetPlace) -> None:
    made = with_three_commits(lake, "orders")
    log = made.flow.folder / "state/shop/state"
    for path in log.glob("*.json"):
        if json.loads(path.read_text())["tables"]["orders"]["seq"] < 3:
            path.unlink()
    of_now = "definition of sequence number 1 is no longer recorded, that of now is assumed"
    assert of_now in made.restore("1")
    assert made.flow.actions("--select", "orders") == {"orders": "change"}
    made.flow.write(made.flow.spec.read_text().replace("{column: at}", "{column: id}"))
    said = made.restore("2")
    assert "of sequence number 2 is no longer recorded, cursor: at → id: the next plan stops" in said
    assert made.flow.actions("--select", "orders") == {"orders": "stop"}


@pytest.mark.full
def test_what_cannot_be_restored_says_why(lake: TargetPlace) -> None:
    made, folder = with_three_commits(lake, "orders"), lake.folder
    flow = made.flow
    assert "no sequence number 7" in (said := made.restore("7", expect=6)) and "from 1 to 3" in said
    assert "keeps no earlier versions" in restore(flow, "copy", "1", expect=6)
    assert "'none' is not a sequence number" in made.restore("none", expect=64)
    assert "there is no table 'oders'. Did you mean `orders`?" in restore(flow, "oders", "1", expect=64)
    add_rows(folder, [(5, "e", 5)])
    flow.apply("--select", "orders", env={"FLOWCTL_CRASH_AT": "in_commit:orders"}, expect=-9)
    assert "is not finished" in made.restore("1", expect=6)
    made.apply()
    for path in (folder / lake.options.get("path", "warehouse")).rglob("*.parquet"):
        if "_delta_log" not in path.parts and path.stat().st_mtime < (folder / "source.db").stat().st_mtime:
            path.unlink()
    assert "deleted" in (said := made.restore("1", expect=6)) and "cannot be read any more" in said


@pytest.mark.full
def test_commits_of_others_are_counted_and_one_at_the_same_moment_stops_it(lake: TargetPlace) -> None:
    made = with_three_commits(lake, "events")
    append_of_others(made.place)
    stopped_at = {"FLOWCTL_CRASH_AT": "in_commit:events", "FLOWCTL_CRASH_WITH": "SIGSTOP"}
    waiting = made.flow.start("restore", "flow.yaml", "events", "--to", "2", "--yes", env=stopped_at)
    try:
        wait_until_stopped(waiting)
        append_of_others(made.place)
        os.kill(waiting.pid, signal.SIGCONT)
        out, err = waiting.communicate(timeout=120)
    finally:
        waiting.kill()
    assert waiting.returncode not in (0, None) and "another writer committed" in err
    assert "undoes sequence number 3; 1 commit of others" in " ".join(out.split())
    assert len(made.rows) == len(made.contents[2]) + 2
    assert "sequence number 3; 2 commits of others" in made.restore("2")
    assert made.rows == made.contents[1]


def append_of_others(place: TargetPlace) -> None:
    foreign = arrow_table({"id": [99], "note": ["theirs"]})
    if isinstance(place, DeltaPlace):
        write_deltalake(str(place.path), foreign, mode="append", schema_mode="merge")
        return
    assert isinstance(place, IcebergPlace)
    with catalog_of(place.folder / place.warehouse) as catalog:
        change(catalog, ("default", place.name), lambda transaction: transaction.append(foreign))
