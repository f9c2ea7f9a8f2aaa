"""A full refresh that is stopped or killed is finished by the next run: what was asked for is not forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowctl.crashpoints import POINTS
from tests.e2e.flows import Flow, sqlite_script
from tests.e2e.orders import MODES, must_be_right, write_flow
from tests.e2e.targets import Kind, TargetPlace, place

pytestmark = pytest.mark.server

#: Exit codes of a run that was killed, or asked to stop.
KILLED, FAILED = -9, 4
#: Nothing is remembered before, and nothing is left to do after.
BEGUN = [point for point in POINTS if point not in ("before_intent", "after_record")]
LANDED = ("after_commit", "before_record")


def interrupt(flow: Flow, mode: str, target: TargetPlace, points: list[tuple[str, str]]) -> None:
    source = write_flow(flow, mode, target, "sail")
    flow.apply(expect=0)
    for round, (point, signal) in enumerate(points):
        rename = f"renamed in round {round}"  # which no cursor tells
        sqlite_script(source.path, f"UPDATE orders SET note = '{rename}' WHERE id = 1")
        if mode == "scd2":
            source.versions = [(id, rename if id == 1 else note, clock) for id, note, clock in source.versions]
        crash = {"FLOWCTL_CRASH_AT": point, "FLOWCTL_CRASH_WITH": signal}
        stopped = flow.apply("--full-refresh", "orders", env=crash, expect=None)
        assert stopped.code == (KILLED if signal == "SIGKILL" else FAILED), f"{point}: {stopped.out}{stopped.err}"
        assert signal == "SIGKILL" or "Run again to finish it" in stopped.err, stopped.err
        step, *since = flow.plan()["steps"]
        assert (step["action"], step["refresh"]) == ("recover", True), (point, step)
        # What has landed is only recorded, and what is read in full each time is read.
        assert bool(since) == (mode in ("truncate", "merge") and point in LANDED), (point, since)
        flow.apply(expect=0)
        must_be_right(mode, target, source)
    assert flow.actions()["orders"] in ("none", "change")


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("sqlite", "append"),
        pytest.param("delta", "append", marks=pytest.mark.full),
        pytest.param("delta", "merge", marks=pytest.mark.full),
    ],
)
def test_a_full_refresh_that_is_asked_to_stop_is_finished_by_the_next_run(
    kind: Kind, mode: str, tmp_path: Path
) -> None:
    flow = Flow(tmp_path)
    interrupt(flow, mode, place(kind, tmp_path), [("during_stage", "SIGINT")])


@pytest.mark.full
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["delta", "sqlite"])
def test_a_full_refresh_that_is_killed_is_finished_by_the_next_run(kind: Kind, mode: str, tmp_path: Path) -> None:
    flow = Flow(tmp_path)
    points = [(point, "SIGKILL") for point in BEGUN if mode in ("merge", "scd2") or point != "after_stage"]
    interrupt(flow, mode, place(kind, tmp_path), points)
