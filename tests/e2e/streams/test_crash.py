"""`kill -9` at every step of a stream's pass, then apply again: every target equals the source, which has changed
since, and a target that commits several tables together never shows a part of a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from flowctl.crashpoints import Point, StreamPoint
from tests.e2e.streams.flow import flush, place, write_flow
from tests.e2e.streams.sources import MysqlDatabase, database_of
from tests.e2e.streams.targets import must_equal, orphans
from tests.e2e.streams.workload import Workload

pytestmark = pytest.mark.server

KILLED = -9
#: While the stream begins.
BEGINNING: tuple[Point | StreamPoint, ...] = (
    "moment_begun", "slot_created", "moment_recorded", "after_intent", "during_stage", "before_commit", "in_commit",
    "after_commit", "after_record",
)  # fmt: skip
#: In each pass after that.
ADVANCING: tuple[Point | StreamPoint, ...] = (
    "segment_written", "landed", "acknowledged", "before_intent", "after_intent", "during_stage", "after_stage",
    "before_commit", "in_commit", "after_commit", "before_record", "after_record", "round_committed",
)  # fmt: skip


#: The points that each leave something else behind.
SHORT: tuple[Point | StreamPoint, ...] = ("slot_created", "landed", "before_record")


def walk(folder: Path, url: str, target: str, points: Sequence[Point | StreamPoint], beginning: int) -> None:
    """The first ``beginning`` of ``points`` are reached while the stream begins."""
    workload = Workload(url, seed=7, big=20_000, rows=300)
    workload.create()
    flow = write_flow(folder, url, [target])
    if isinstance(database_of(url), MysqlDatabase):  # it has no slots
        points, beginning = [point for point in points if point != "slot_created"], beginning - 1
    if not beginning:
        flow.apply()
        workload.run(12)
    for number, point in enumerate(points):
        flush(url)
        killed = flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=None)
        assert killed.code == KILLED, f"{point} was not reached: {killed.code}\n{killed.out}{killed.err}"
        if target == "dw" and number > beginning:
            assert not orphans(url)
        workload.run(12)
        flush(url)
        if number >= beginning - 1:
            flow.apply(expect=0)
            must_equal(url, place(flow, url, target))
            workload.run(12)


@pytest.mark.full
@pytest.mark.parametrize(
    ("source_url", "target"),
    [
        *(("postgres", target) for target in ("dw", "lake", "lite")),
        *(("mysql", target) for target in ("lake", "duck", "ice")),
    ],
    indirect=["source_url"],
)
def test_a_pass_killed_at_any_step_loses_and_doubles_nothing(source_url: str, target: str, tmp_path: Path) -> None:
    walk(tmp_path, source_url, target, (*BEGINNING, *ADVANCING), len(BEGINNING))


def test_a_pass_killed_at_the_main_steps(tmp_path: Path, source_url: str) -> None:
    walk(tmp_path, source_url, "dw", SHORT, 1)
