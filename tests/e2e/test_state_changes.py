"""State set back, forgotten, restored from a backup or lost: the plan stops where going on would double or lose rows,
says the way on, and after that way the target is right."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.flows import Flow
from tests.e2e.orders import MODES, Source, must_be_right, write_flow
from tests.e2e.targets import ENV, Databases, Kind, TargetPlace, in_turn, place

STOPPED = 6
Accident = Callable[[Flow], None]


def rolled_back(flow: Flow) -> None:
    flow.run("state", "rollback", "flow.yaml", "--to", "2", "--yes", expect=0)


def reset(flow: Flow) -> None:
    flow.run("state", "reset", "flow.yaml", "orders", "--yes", expect=0)


def restored_from_an_older_backup(flow: Flow) -> None:
    log = flow.folder / "state/shop/state"
    for file in log.glob("*.json"):
        if int(file.stem) > 2:
            file.unlink()


def lost(flow: Flow) -> None:
    shutil.rmtree(flow.folder / "state")


ACCIDENTS: dict[str, Accident] = {
    "rolled back": rolled_back,
    "reset": reset,
    "restored": restored_from_an_older_backup,
    "lost": lost,
}


def recover_as_the_plan_says(flow: Flow, accident: str, mode: str, source: Source) -> None:
    """apply; where it stops, its own advice, then apply again."""
    if flow.apply(expect=None).code != STOPPED:
        return
    plan = flow.plan(expect=STOPPED)
    assert "state adopt" in plan["steps"][0]["hint"], plan["steps"][0]
    # Only somebody who knows the data can say how far a target without a record of ours has come.
    # A table that is always read in full has no position to tell.
    known = ["--position", source.newest_applied] if accident == "lost" and mode != "truncate" else []
    flow.run("state", "adopt", "flow.yaml", "orders", *known, "--yes", expect=0)
    flow.apply(expect=0)


def suffer(flow: Flow, accident: str, mode: str, target: TargetPlace, spark: str) -> None:
    source = write_flow(flow, mode, target, spark)
    flow.apply(expect=0)
    source.change(mode, 0)
    flow.apply(expect=0)
    source.newest_applied = source.newest
    source.change(mode, 1)
    ACCIDENTS[accident](flow)
    recover_as_the_plan_says(flow, accident, mode, source)
    must_be_right(mode, target, source)
    source.change(mode, 2)
    flow.apply(expect=0)
    must_be_right(mode, target, source)


@pytest.mark.full
def test_after_an_accident_the_target_is_right(tmp_path: Path) -> None:
    suffer(Flow(tmp_path), "lost", "scd2", place("sqlite", tmp_path), "sail")


@pytest.mark.full
@pytest.mark.parametrize(
    ("accident", "kind", "mode"),
    [(accident, *pair) for turn, accident in enumerate(ACCIDENTS) for pair in in_turn(MODES, turn=turn)],
)
def test_after_every_accident_every_target_is_right(
    accident: str,
    kind: Kind,
    mode: str,
    tmp_path: Path,
    databases: Databases,
    connect_server: str,
) -> None:
    flow = Flow(tmp_path, ENV)
    suffer(flow, accident, mode, place(kind, tmp_path, databases), connect_server)
