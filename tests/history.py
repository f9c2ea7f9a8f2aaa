"""The definition of scd2 (`semantics.md`, "scd2, exactly") in plain Python, and random histories to hold it against.

Written from the prose, not from the SQL: everything ever read for one key goes in, in order of arrival, and the
versions come out.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st


@dataclass(frozen=True)
class Observation:
    """One row of a batch for one key. ``state`` is what the compared columns hold, None for a deletion. ``at`` is a
    small number standing for the event time; ``detected`` marks a missing key."""

    at: int
    state: str | None
    detected: bool = False


@dataclass(frozen=True)
class Version:
    valid_from: int
    valid_to: int | None
    state: str


Batch = tuple[Observation, ...]


def versions(batches: Sequence[Batch]) -> list[Version]:
    """What the table must hold for one key after these batches, oldest version first."""
    arrivals = [(number, seen) for number, batch in enumerate(batches) for seen in batch]
    latest: dict[int, tuple[int, Observation]] = {}
    for number, seen in arrivals:
        latest[seen.at] = (number, seen)

    def is_cancelled(number: int, deletion: Observation) -> bool:
        return deletion.detected and any(
            later > number and row.state is not None and row.at <= deletion.at for later, row in arrivals
        )

    counting = [seen for _, (number, seen) in sorted(latest.items()) if not is_cancelled(number, seen)]
    turns: list[Observation] = []
    for seen in counting:
        if not turns or turns[-1].state != seen.state:
            turns.append(seen)
    ends = [turn.at for turn in turns[1:]]
    return [
        Version(turn.at, end, turn.state) for turn, end in itertools.zip_longest(turns, ends) if turn.state is not None
    ]


def _batches(moments: int) -> st.SearchStrategy[Batch]:
    """One row per event time, of few states and few moments, so that equals, ties and returns are frequent."""
    row = st.builds(Observation, st.integers(1, moments), st.sampled_from("ABC"))
    flagged = st.builds(Observation, st.integers(1, moments), st.none())
    detected = st.builds(Observation, st.integers(1, moments), st.none(), st.just(True))
    return st.lists(st.one_of(row, row, row, flagged, detected), max_size=4, unique_by=lambda seen: seen.at).map(tuple)


def histories(moments: int = 8, length: int = 6) -> st.SearchStrategy[list[Batch]]:
    """Batches of one key in order of arrival; some are read again."""

    def with_replays(batches: list[Batch]) -> st.SearchStrategy[list[Batch]]:
        again = st.lists(st.booleans(), min_size=len(batches), max_size=len(batches))
        return again.map(
            lambda flags: [
                batch for first, twice in zip(batches, flags, strict=True) for batch in (first,) * (1 + twice)
            ]
        )

    return st.lists(_batches(moments), min_size=1, max_size=length).flatmap(with_replays)


def random_histories(count: int, seed: int, moments: int = 8, length: int = 6) -> list[list[Batch]]:
    """As :func:`histories`, many at once, for engines on which one statement is slow: each becomes a key of its own."""
    dice = random.Random(seed)

    def batch() -> Batch:
        times = dice.sample(range(1, moments + 1), dice.randint(0, 4))
        return tuple(dice.choice([*(Observation(at, state) for state in "ABC"), Observation(at, None),
                                  Observation(at, None, detected=True)]) for at in times)  # fmt: skip

    made = []
    for _ in range(count):
        batches = [batch() for _ in range(dice.randint(1, length))]
        made.append([again for one in batches for again in (one,) * dice.choice((1, 1, 2))])
    return made
