"""`kill -9` at every step of the commit protocol, then apply again: the target equals the source, which has new rows
since, and nothing is there twice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from flowctl.crashpoints import POINTS, Point
from tests.e2e.flows import Flow, sqlite_rows
from tests.e2e.orders import MODES, must_be_right, write_flow
from tests.e2e.targets import ENV, KINDS, Databases, Kind, TargetPlace, in_turn, place
from tests.storage.stores import Bucket

KILLED = -9
#: What there is to do when all is done: without a position everything is read again, and keys are compared each time.
AFTER = {"append": "none", "truncate": "change", "merge": "change", "scd2": "none"}
#: On Sail: what commits in another way than with Spark. Of the steps, those around the commit.
IN_EVERY_RUN = (("delta", "merge"),)
MAIN_POINTS: tuple[Point, ...] = ("after_intent", "in_commit", "after_commit")


def walk_the_protocol(
    flow: Flow,
    mode: str,
    target: TargetPlace,
    spark: str,
    points: Sequence[Point] = POINTS,
    state: str = "state: state",
) -> None:
    source = write_flow(flow, mode, target, spark, state)
    staged = mode in ("merge", "scd2")
    for round, point in enumerate(point for point in points if staged or point != "after_stage"):
        if round:
            source.change(mode, 2 * round)
        killed = flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=None)
        assert killed.code == KILLED, f"{point} was not reached: {killed.code}\n{killed.out}{killed.err}"
        if round:
            source.change(mode, 2 * round + 1)
        recovered = flow.apply(expect=0)
        must_be_right(mode, target, source)
        assert flow.actions()["orders"] == AFTER[mode], f"{point}: {recovered.out}{recovered.err}"


@pytest.mark.full
@pytest.mark.parametrize("mode", ["append", "merge", "scd2"])
@pytest.mark.parametrize("kind", ["delta", "sqlite", "duckdb"])
def test_a_recovery_killed_before_what_has_come_since_loses_and_doubles_nothing(
    kind: Kind, mode: str, tmp_path: Path
) -> None:
    flow, target = Flow(tmp_path), place(kind, tmp_path)
    source = write_flow(flow, mode, target, "sail")
    if mode == "scd2":  # what is changed before it was ever read is no version
        flow.apply(expect=0)
        source.change(mode, 20)
    for round, point in enumerate(("before_intent:orders", "after_intent:orders")):
        assert flow.apply(env={"FLOWCTL_CRASH_AT": "before_commit"}, expect=None).code == KILLED
        source.change(mode, 2 * round)
        assert flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=None).code == KILLED
        source.change(mode, 2 * round + 1)
        flow.apply(expect=0)
        must_be_right(mode, target, source)
        source.change(mode, 10 + round)


@pytest.mark.full
@pytest.mark.parametrize(("kind", "mode"), [("delta", "merge"), ("postgres", "append"), ("sqlite", "scd2")])
def test_a_killed_client_of_a_connect_server_loses_and_doubles_nothing(
    kind: Kind, mode: str, tmp_path: Path, databases: Databases, connect_server: str
) -> None:
    flow = Flow(tmp_path, ENV)
    walk_the_protocol(flow, mode, place(kind, tmp_path, databases), connect_server)


@pytest.mark.full
@pytest.mark.parametrize(("kind", "mode"), in_turn(MODES))
def test_a_killed_apply_loses_and_doubles_nothing(kind: Kind, mode: str, tmp_path: Path, databases: Databases) -> None:
    flow = Flow(tmp_path, ENV)
    walk_the_protocol(flow, mode, place(kind, tmp_path, databases), "local[2]")


@pytest.mark.parametrize(
    ("kind", "mode", "points"),
    [
        *(pytest.param(kind, mode, MAIN_POINTS, id=f"{kind}-{mode}-main") for kind, mode in IN_EVERY_RUN),
        *(
            pytest.param(kind, mode, POINTS, id=f"{kind}-{mode}", marks=pytest.mark.full)
            for kind in KINDS
            for mode in MODES
        ),
    ],
)
def test_an_apply_killed_on_sail_loses_and_doubles_nothing(
    kind: Kind, mode: str, points: Sequence[Point], tmp_path: Path, databases: Databases
) -> None:
    """The engine dies with the process; what it has written is read by Spark."""
    flow = Flow(tmp_path, ENV)
    walk_the_protocol(flow, mode, place(kind, tmp_path, databases), "sail", points)


@pytest.mark.full
def test_an_apply_killed_with_its_state_in_object_storage(bucket: Bucket, tmp_path: Path) -> None:
    flow = Flow(tmp_path, bucket.secrets)
    state = f"state: {bucket.url}/_flowctl\n{bucket.spec}"
    walk_the_protocol(flow, "merge", place("sqlite", tmp_path), "sail", state=state)


@pytest.mark.full
@pytest.mark.parametrize("point", ["before_commit:orders", "before_commit:totals"])
def test_a_saved_plan_finishes_and_continues_tables_and_those_that_read_them(tmp_path: Path, point: str) -> None:
    flow, target = Flow(tmp_path), place("sqlite", tmp_path)
    source = write_flow(flow, "append", target, "local[2]")
    sql = "SELECT count(*) AS n, max(clock) AS newest FROM {{ ref('orders') }}"
    flow.write(flow.spec.read_text() + f'  totals: {{from: {{sql: "{sql}"}}, to: dst:totals, mode: truncate}}\n')
    flow.apply()
    source.change("append", 0)
    assert flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=None).code == KILLED
    source.change("append", 1)
    steps = flow.plan("--out", "plan.json")["steps"]
    assert [(step["id"], step["action"]) for step in steps] == [
        (table, action) for table in ("orders", "totals") for action in ("recover", "change")
        if (table, action) != ("orders", "recover") or not point.endswith("totals")
    ]  # fmt: skip
    flow.apply("--plan", "plan.json")
    must_be_right("append", target, source)
    assert sqlite_rows(tmp_path / "target.db", "SELECT n, newest FROM totals") == [(10, source.clock)]
    assert set(flow.actions().values()) == {"none"}
