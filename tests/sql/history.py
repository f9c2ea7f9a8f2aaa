"""The definition of scd2 (`semantics.md`, "scd2, exactly") in plain Python, and random histories to hold it against.

Written from the prose, not from the SQL: everything ever read for one key goes in, in order of arrival, and the
versions come out.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hypothesis import strategies as st


@dataclass(frozen=True)
class Observation:
    """One row of a batch for one key. ``state`` is what the compared columns hold, None for a deletion; ``note`` what
    a column holds that is not compared. ``at`` is a small number standing for the event time; ``detected`` marks
    a missing key."""

    at: int
    state: str | None
    detected: bool = False
    note: str | None = None


@dataclass(frozen=True)
class Version:
    valid_from: int
    valid_to: int | None
    state: str
    note: str | None = None


class Batch(NamedTuple):
    """The rows of one key that one run has read, and the moment of that run."""

    moment: int
    rows: tuple[Observation, ...]


class _Kept(NamedTuple):
    """An observation as it is remembered: when it takes effect, and with which batch it came."""

    effective_at: int
    arrival: int
    seen: Observation


def versions(batches: Sequence[Batch]) -> list[Version]:
    """What the table must hold for one key after these batches, oldest version first."""
    known: list[_Kept] = []
    for arrival, batch in enumerate(batches):
        known += list(_observed(known, batch, arrival))
    return _chained(_counting(known))


def _observed(known: list[_Kept], batch: Batch, arrival: int) -> Iterable[_Kept]:
    """What is new in a batch, and when it takes effect: at its event time, but a change without a newer event time
    at the moment of the batch, or with the newest observation if that is later still."""
    counting = _counting(known)
    newest = counting[-1] if counting else None
    current = next((one for one in _chained(counting) if one.valid_to is None), None)
    for seen in batch.rows:
        same_event = [one for one in known if one.seen.at == seen.at]
        before = max(same_event, key=lambda one: one.arrival) if same_event else None
        is_newest = seen.at == max(row.at for row in batch.rows)
        if seen.at == batch.moment and _says_nothing(seen, newest, current, batch.moment):
            continue
        elif newest and is_newest and _is_late(seen, newest):
            yield _Kept(max(batch.moment, newest.effective_at), arrival, seen)
        elif before and (before.seen.state, before.seen.detected) == (seen.state, seen.detected):
            continue
        elif before and (before.seen.state is None) == (seen.state is None):
            yield _Kept(before.effective_at, arrival, seen)
        else:
            yield _Kept(seen.at, arrival, seen)


def _is_late(seen: Observation, newest: _Kept) -> bool:
    if seen.at > newest.effective_at:
        return False
    is_newer, is_same = seen.at > newest.seen.at, seen.at == newest.seen.at
    was_deleted = newest.seen.state is None
    if seen.state is None:
        return not was_deleted and (seen.detected or is_newer or is_same)
    if was_deleted:
        return newest.seen.detected or is_newer or is_same
    return is_newer


def _says_nothing(seen: Observation, newest: _Kept | None, current: Version | None, now: int) -> bool:
    if seen.state is None:
        return newest is None or newest.seen.state is None
    return current is not None and current.state == seen.state and current.valid_from <= now


def _counting(known: Iterable[_Kept]) -> list[_Kept]:
    """Of those that take effect at one time the last to arrive."""
    ordered = sorted(known, key=lambda one: (one.effective_at, one.arrival, one.seen.at))
    return [list(group)[-1] for _, group in itertools.groupby(ordered, lambda one: one.effective_at)]


def _chained(counting: Sequence[_Kept]) -> list[Version]:
    turns: list[_Kept] = []
    for one in counting:
        if not turns or turns[-1].seen.state != one.seen.state:
            turns.append(one)
    ends = [turn.effective_at for turn in turns[1:]]
    return [
        Version(turn.effective_at, end, turn.seen.state, turn.seen.note)
        for turn, end in itertools.zip_longest(turns, ends)
        if turn.seen.state is not None
    ]


def plain(rows: Sequence[Sequence[Observation]]) -> list[Batch]:
    """Batches of which each is read long after all that it and the others tell of."""
    return [Batch(1001 + number, tuple(batch)) for number, batch in enumerate(rows)]


#: Moments and event times are other numbers, as are those of a run and of a source.
def _event_times(moments: int) -> st.SearchStrategy[int]:
    return st.integers(1, moments).map(lambda number: 2 * number)


@st.composite
def histories(draw: st.DrawFn, moments: int = 8, length: int = 6) -> list[Batch]:
    """Batches of one key in order of arrival: few states and few times, so that equals, ties and returns are frequent;
    event times lie before and after the moments of the runs. Some are read again, at the same moment or later."""
    times, note = _event_times(moments), st.sampled_from([None, "x", "y", "z"])
    row = st.builds(Observation, times, st.sampled_from("ABC"), note=note)
    flagged = st.builds(Observation, times, st.none())
    read = st.lists(st.one_of(row, row, row, flagged), max_size=4, unique_by=lambda seen: seen.at).map(tuple)
    made: list[Batch] = []
    for moment in draw(st.lists(st.integers(0, moments), min_size=1, max_size=length).map(sorted)):
        now = 2 * moment + 1
        choice = draw(st.integers(0, 9))
        if choice < 3 and made:
            rows = made[-1].rows if choice else draw(st.sampled_from(made)).rows
            made.append(Batch(now, tuple(seen for seen in rows if not seen.detected)))
        elif choice < 6 and _is_live(made):
            made.append(Batch(now, (Observation(now, None, detected=True),)))
        elif choice == 6:
            made.append(Batch(now, (Observation(now, draw(st.sampled_from("AB")), note=draw(note)),)))
        else:
            made.append(Batch(now, draw(read)))
        if draw(st.booleans()):
            made.append(made[-1])
    return made


def random_histories(count: int, seed: int, moments: int = 8, length: int = 6) -> list[list[Batch]]:
    """As :func:`histories`, many at once, for engines on which one statement is slow: each becomes a key of its own,
    and the moments are the same for all: batch ``n`` is read at :func:`moment_of` ``n``."""
    dice = random.Random(seed)

    def batch(now: int, before: list[Batch]) -> Batch:
        if dice.random() < 0.3 and _is_live(before):
            return Batch(now, (Observation(now, None, detected=True),))
        times = dice.sample(range(2, 2 * moments + 2, 2), dice.randint(0, 4))
        rows = [
            Observation(at, state, note=dice.choice([None, "x", "y"]) if state else None)
            for at, state in ((at, dice.choice("ABCABC-").replace("-", "") or None) for at in times)
        ]
        return Batch(now, tuple(rows))

    made: list[list[Batch]] = []
    for _ in range(count):
        batches: list[Batch] = []
        for number in range(dice.randint(1, length)):
            if batches and dice.random() < 0.3:
                again = tuple(seen for seen in dice.choice(batches).rows if not seen.detected)
                batches.append(Batch(moment_of(number), again))
            else:
                batches.append(batch(moment_of(number), batches))
        made.append(batches)
    return made


def _is_live(batches: Sequence[Batch]) -> bool:
    """Only a key that the target has can be missing in the source."""
    return any(version.valid_to is None for version in versions(batches))


def moment_of(number: int) -> int:
    return 3 + 4 * number
