"""Files that were read are in a log beside the state: documents stay small, and every way back leads to the files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowctl.crashpoints import POINTS
from tests.e2e.flows import Flow, sqlite_rows

pytestmark = pytest.mark.server

FLOW = """\
version: 1
flow: invoices
state: ./state
spark: {url: sail}
connections:
  inbox: {type: files, path: ./inbox}
  out: {type: sqlite, path: ./out.db}
tables:
  invoices: {from: "inbox:*.csv", to: out, mode: append}
"""


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    flow = Flow(tmp_path)
    flow.write(FLOW)
    (tmp_path / "inbox").mkdir()
    return flow


def add(flow: Flow, *numbers: int) -> None:
    for number in numbers:
        (flow.folder / "inbox" / f"{number:04}.csv").write_text(f"id\n{number}\n")


def ids(flow: Flow) -> list[int]:
    return sorted(int(row[0]) for row in sqlite_rows(flow.folder / "out.db", "SELECT id FROM invoices"))


def documents(flow: Flow, folder: str) -> Iterator[Any]:
    for path in sorted((flow.folder / "state" / "invoices" / folder).glob("*.json")):
        yield json.loads(path.read_text())


@pytest.mark.full
def test_nothing_that_is_kept_lists_the_files(flow: Flow) -> None:
    add(flow, *range(300))
    flow.apply()
    add(flow, 300, 301)
    flow.apply()
    assert ids(flow) == list(range(302))
    kept = [*documents(flow, "state"), *documents(flow, "runs")]
    (recorded,) = sqlite_rows(flow.folder / "out.db", "SELECT group_concat(position) FROM _flowctl_commits")
    assert all("0001.csv" not in json.dumps(document) for document in (*kept, recorded))
    assert all(len(json.dumps(document)) < 8_000 for document in kept)
    (step,) = flow.plan()["steps"]
    assert (step["action"], step["state_before"]["position"]["count"]) == ("none", 302)

    (flow.folder / "inbox" / "0007.csv").write_text("id\n8\n")
    (step,) = flow.plan(expect=6)["steps"]
    assert step["reason"].startswith("0007.csv changed after being read")
    (flow.folder / "inbox" / "0007.csv").unlink()
    (step,) = flow.plan()["steps"]
    assert step["notes"] == ["0007.csv no longer exists; the rows read earlier stay"]


@pytest.mark.full
@pytest.mark.parametrize("point", [point for point in POINTS if point != "after_stage"])
def test_a_run_killed_anywhere_reads_each_file_once(flow: Flow, point: str) -> None:
    add(flow, 1, 2)
    flow.apply()
    add(flow, 3)
    assert flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=None).code == -9
    add(flow, 4)  # no part of the begun interval
    flow.apply()
    flow.apply()
    assert ids(flow) == [1, 2, 3, 4]


def test_a_saved_plan_reads_exactly_its_files(flow: Flow) -> None:
    add(flow, 1)
    flow.apply()
    add(flow, 2)
    flow.run("plan", "flow.yaml", "--out", "plan.json", expect=0)
    add(flow, 3)
    flow.apply("--plan", "plan.json")
    assert ids(flow) == [1, 2]
    flow.apply()
    assert ids(flow) == [1, 2, 3]


@pytest.mark.full
def test_rolled_back_reset_and_adopted_positions_lead_to_their_files(flow: Flow) -> None:
    add(flow, 1)
    flow.apply()
    serial = flow.run("state", "list", "flow.yaml", "--format", "json", expect=0).json()["serial"]
    add(flow, 2)
    flow.apply()
    flow.run("state", "rollback", "flow.yaml", "--to", str(serial), "--yes", expect=0)
    assert flow.actions() == {"invoices": "stop"}  # the target has the second file
    flow.run("state", "adopt", "flow.yaml", "invoices", "--yes", expect=0)
    assert flow.actions() == {"invoices": "none"}
    flow.run("state", "reset", "flow.yaml", "invoices", "--yes", expect=0)
    assert flow.actions() == {"invoices": "stop"}
    flow.run("state", "adopt", "flow.yaml", "invoices", "--yes", expect=0)
    add(flow, 3)
    flow.apply()
    assert ids(flow) == [1, 2, 3]


@pytest.mark.full
def test_what_an_older_flowctl_recorded_is_carried_over(flow: Flow) -> None:
    """Its state lists the files; so does the target's own record."""
    add(flow, 1, 2)
    flow.apply()
    listed = [[path.name, path.stat().st_size, str(path.stat().st_mtime_ns)]
              for path in sorted((flow.folder / "inbox").iterdir())]  # fmt: skip
    old = json.dumps({"kind": "files", "files": listed})
    flow.run("state", "set", "flow.yaml", "invoices", "--position", old, "--yes", expect=0)
    assert flow.actions() == {"invoices": "none"}
    add(flow, 3)
    for point in ("after_intent", "before_record"):
        flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=None)
    flow.apply()
    flow.apply()
    assert ids(flow) == [1, 2, 3]
    *_, newest = sorted(documents(flow, "state"), key=lambda document: int(document["serial"]))
    assert newest["tables"]["invoices"]["position"]["count"] == 3


@pytest.mark.full
def test_a_lost_log_stops_the_table_and_a_full_refresh_begins_a_new_one(flow: Flow) -> None:
    add(flow, 1)
    flow.apply()
    for path in (flow.folder / "state" / "invoices" / "files").glob("*.gz"):
        path.unlink()
    (step,) = flow.plan(expect=6)["steps"]
    assert "the log of the files that were read is incomplete" in step["reason"]
    flow.apply("--full-refresh", "invoices")
    add(flow, 2)
    flow.apply()
    assert ids(flow) == [1, 2]


@pytest.mark.full
def test_a_killed_run_is_in_the_history_and_every_line_of_its_log_names_it(flow: Flow) -> None:
    add(flow, 1)
    killed = flow.apply("--log-format", "json", env={"FLOWCTL_CRASH_AT": "before_commit"}, expect=None)
    lines = [json.loads(line) for line in killed.err.splitlines() if line.startswith("{")]
    (run_id,) = {line["run"] for line in lines}
    assert lines[0]["event"] == "run_started"
    (unfinished,) = flow.run("runs", "flow.yaml", "--format", "json", expect=0).json()["unfinished"]
    assert (unfinished["id"], unfinished["state"], unfinished["tables"]) == (run_id, "interrupted", ["invoices"])
    done = flow.apply()
    assert done.err.startswith("run ") or "\nrun " in done.err
    listed = flow.run("runs", "flow.yaml", expect=0).out
    assert f"{run_id}  " in listed and "interrupted" in listed and listed.count("\n") == 3
