"""Restorations of a history, in any order: its versions and its observations are those of the number."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.flows import Row, sqlite_script
from tests.e2e.restoring import Restored, with_commits
from tests.e2e.target_place import TargetPlace
from tests.e2e.targets import place

pytestmark = [pytest.mark.server, pytest.mark.full]

#: Where a restoration may be killed.
POINTS = ("after_commit:versions", "in_commit:versions__observed", "after_commit:versions__observed")
#: Where a run may be killed.
POINTS_OF_RUNS = ("before_commit:versions", "in_commit:versions", "after_commit:versions")


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> TargetPlace:
    return place(request.param, tmp_path)


def observed(made: Restored) -> list[Row]:
    """The observations, without what an attempt that was killed has left of the same number."""
    query = "SELECT DISTINCT id, _event_at, _seq FROM {table}"
    return sorted(made.place.named("versions__observed").fetch(query), key=repr)


def test_a_restored_history_is_restored_again(lake: TargetPlace) -> None:
    made = with_commits(lake, "versions", 2)
    before = observed(made)
    made.restore("1")
    assert made.rows == made.contents[0] and observed(made) != before
    made.restore("2")
    assert made.rows == made.contents[1]
    assert observed(made) == before


@dataclass
class Walk:
    """Runs and restorations of a history, some of them killed. ``known`` is what it was at each number."""

    made: Restored
    this: random.Random
    known: dict[int, tuple[list[Row], list[Row]]] = field(default_factory=dict)
    days: int = 3

    @property
    def number(self) -> int:
        """As the state has it."""
        newest = max((self.made.flow.folder / "state/shop/state").glob("*.json"), key=lambda path: int(path.stem))
        return int(json.loads(newest.read_text())["tables"]["versions"]["seq"])

    @property
    def now(self) -> tuple[list[Row], list[Row]]:
        return self.made.rows, observed(self.made)

    def run(self) -> None:
        """Reads new rows and rows that are late."""
        self.days += 2
        day = self.days - self.this.choice((0, 0, 1))
        values = f"({self.this.randint(1, 5)}, 'day {self.days}', datetime('2026-01-01', '{day} days'))"
        sqlite_script(self.made.flow.folder / "source.db", f"INSERT OR REPLACE INTO orders VALUES {values}")
        options = ("apply", "flow.yaml", "--select", "versions")
        if self.this.random() < 0.3:
            point = self.this.choice(POINTS_OF_RUNS)
            self.made.flow.run(*options, env={"FLOWCTL_CRASH_AT": point})  # if there is something to do
        self.made.flow.run(*options, expect=0)
        self.known[self.number] = self.now

    def restore(self) -> None:
        number = self.this.choice(list(self.known))
        if self.this.random() < 0.4:  # then to another number, or to the same one
            self.kill_restoration(number)
            number = self.this.choice([number, self.this.choice(list(self.known))])
        self.made.restore(str(number))
        assert self.now == self.known[number], number
        self.known[self.number] = self.now

    def kill_restoration(self, number: int) -> None:
        before = self.now[0]
        command = ("restore", "flow.yaml", "versions", "--to", str(number), "--yes")
        done = self.made.flow.run(*command, env={"FLOWCTL_CRASH_AT": self.this.choice(POINTS)})
        assert done.code in (0, -9), done.words  # 0: the observations are the same
        assert self.made.rows in (before, self.known[number][0])

    def maintain(self) -> None:
        self.made.flow.run("maintain", "flow.yaml", "--select", "versions", "--yes", expect=0)


@pytest.mark.parametrize("seed", range(3))
def test_a_history_is_what_it_was_at_every_number(lake: TargetPlace, seed: int) -> None:
    walk = Walk(with_commits(lake, "versions", 1), random.Random(seed))
    walk.known[1] = walk.now
    walk.run()
    for _ in range(8):
        walk.this.choice((walk.run, walk.restore, walk.restore, walk.maintain))()
    walk.run()
    assert walk.made.is_up_to_date()
