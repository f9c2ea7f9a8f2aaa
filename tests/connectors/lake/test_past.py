"""Which version of a history's sidecar has the observations of an earlier number, whatever has happened since."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from flowctl.connectors.lake.past import Past, PastCommit, read_past, version_of_observations
from flowctl.connectors.lake.record import OBSERVATIONS, Record, data_commit, sidecar_record
from flowctl.errors import StoppedByPolicy
from flowctl.model.commit import Commit

#: A number and the attempt that has observed under it.
Observed = tuple[int, str]


@dataclass
class History:
    """A table and its sidecar, as commits with the observations that the sidecar then has. ``expected`` are the
    numbers whose observations belong to each number's content."""

    table: list[Record] = field(default_factory=list)
    sidecar: list[tuple[PastCommit, frozenset[Observed]]] = field(default_factory=list)
    expected: dict[int, frozenset[int]] = field(default_factory=dict)

    @property
    def newest(self) -> Record | None:
        return self.table[-1] if self.table else None

    @property
    def content(self) -> frozenset[Observed]:
        return self.sidecar[-1][1] if self.sidecar else frozenset()

    @property
    def current(self) -> frozenset[int]:
        return self.expected[self.newest.seq] if self.newest is not None else frozenset()

    @property
    def counted(self) -> frozenset[int]:
        """The numbers whose observations count now, as ``lost_observations_of`` decides."""
        last = data_commit(self.newest)
        counts = (
            one for one, attempt in self.content if one < last.number or (one, attempt) == (last.number, last.attempt)
        )
        return frozenset(counts)

    def begin(self) -> Commit:
        return Commit("lineage", "orders", len(self.table) + 1, uuid.uuid4().hex, "id", None)

    def observe(self, commit: Commit, *, anew: bool = False) -> str:
        """One attempt at a number writes its observations."""
        last, attempt = data_commit(self.newest), uuid.uuid4().hex
        kept = frozenset(
            (one, by)
            for one, by in self.content
            if not (last.number < one < commit.seq or (one == last.number and by != last.attempt))
        )
        record = sidecar_record(commit, len(self.sidecar), "id", OBSERVATIONS)
        self._write(record, (frozenset() if anew else kept) | {(commit.seq, attempt)})
        return attempt

    def apply(self, attempts: int, *, winner: int = -1, anew: bool = False) -> None:
        """``winner``: whose versions are committed. A server may do that for an attempt that is given up already."""
        commit = self.begin()
        made = [self.observe(commit, anew=anew) for _ in range(attempts)]
        self.expected[commit.seq] = (frozenset() if anew else self.current) | {commit.seq}
        self.table.append(Record(commit, attempt=made[winner]))

    def give_up(self, attempts: int) -> None:
        commit = replace(self.begin(), void=True)
        for _ in range(attempts):
            self.observe(commit)
        last = data_commit(self.newest)
        self.expected[commit.seq] = self.current
        self.table.append(Record(commit, attempt=last.attempt, data_seq=last.number))

    def compact(self) -> None:
        self._write(None, self.content)

    def restore(self, seq: int, *, is_killed: bool = False, is_old: bool = False) -> None:
        """``is_killed``: before the sidecar. ``is_old``: by a flowctl whose commit to the sidecar had no record."""
        past = self.past(seq)
        version = self.version(past)
        newest = self.newest
        assert version is not None and newest is not None
        if newest.restores != seq:
            commit, last = self.begin(), data_commit(past.wanted)
            self.expected[commit.seq] = self.expected[seq]
            newest = Record(commit, attempt=last.attempt, data_seq=last.number, restores=seq)
            self.table.append(newest)
        if is_killed or version == len(self.sidecar):
            return
        record = None if is_old else sidecar_record(newest.commit, len(self.sidecar), "id", OBSERVATIONS)
        self._write(record, self.sidecar[version - 1][1], restores=True)

    def past(self, seq: int) -> Past:
        commits = (PastCommit(at, one, True, None, False) for at, one in enumerate(self.table, 1))
        return read_past(reversed(list(commits)), seq, "orders", "the log of orders")

    def version(self, past: Past) -> int | None:
        return version_of_observations(self.newest_first(), past, "the log of orders__observed")

    def newest_first(self) -> Iterator[PastCommit]:
        return (one for one, _ in reversed(self.sidecar))

    def _write(self, record: Record | None, content: frozenset[Observed], *, restores: bool = False) -> None:
        commit = PastCommit(len(self.sidecar) + 1, record, True, None, restores)
        self.sidecar.append((commit, content))


def with_three_numbers() -> History:
    made = History()
    for _ in range(3):
        made.apply(1)
    return made


@pytest.mark.parametrize("is_old", [False, True])
def test_the_observations_of_any_number_are_found_in_any_order(is_old: bool) -> None:
    """Also after restorations that an older flowctl has committed without a record."""
    for seed in range(200):
        this, made = random.Random(seed), History()
        made.apply(1)
        for _ in range(this.randint(2, 14)):
            attempts = this.randint(1, 2)
            match this.choice(("apply", "apply", "anew", "give up", "compact", "restore", "restore", "killed")):
                case "apply":
                    made.apply(attempts, winner=this.randrange(attempts))
                case "anew":
                    made.apply(attempts, anew=True)
                case "give up":
                    made.give_up(this.randint(0, 2))
                case "compact":
                    made.compact()
                case way:
                    numbers = [one.seq for one in made.table if not one.commit.void]
                    if way == "killed":  # the plan stops until another restoration
                        made.restore(this.choice(numbers), is_killed=True)
                        numbers.append(made.table[-1].seq)
                    made.restore(this.choice(numbers), is_old=is_old)
            assert made.counted == made.current, seed


def test_after_a_restoration_a_later_number_has_its_observations_again() -> None:
    made = with_three_numbers()
    made.restore(2)
    assert made.version(made.past(3)) == 3
    assert made.version(made.past(2)) == made.version(made.past(4)) == 4


def test_it_is_the_last_version_with_these_observations() -> None:
    """Compaction replaces files, which may be deleted afterwards."""
    made = History()
    made.apply(2)
    made.compact()
    made.apply(1)
    assert made.version(made.past(1)) == 3


def test_a_restoration_is_found_when_the_log_of_the_data_is_gone() -> None:
    made = with_three_numbers()
    made.restore(1)
    made.apply(1)
    del made.table[:3]
    del made.sidecar[:3]
    commits = [PastCommit(one.seq, one, True, None, False) for one in reversed(made.table)]
    assert made.version(read_past(commits, 4, "orders", "the log of orders")) == 4


def test_observations_that_cannot_be_found_stop_it() -> None:
    made = with_three_numbers()
    past = made.past(1)
    del made.sidecar[:2]
    with pytest.raises(StoppedByPolicy, match="the log of orders__observed has no observations of sequence number 1"):
        made.version(past)


def test_a_table_without_a_history_has_none() -> None:
    made = with_three_numbers()
    made.table[0] = replace(made.table[0], attempt="")
    assert made.version(made.past(1)) is None
