"""Folding changes gives what applying them one after the other gives, however they are divided into batches."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from flowctl.changes import decoded
from flowctl.changes.decoded import Changes
from flowctl.changes.fold import Folded, fold, parts_of
from flowctl.changes.segment import Op
from tests.examples import examples

Key = tuple[int, str]
Row = dict[str, Any]
COLUMNS = ("a", "b")


@dataclass
class Source:
    """A table that records what a stream would send of its changes."""

    rows: dict[Key, Row] = field(default_factory=dict)
    sent: list[dict[str, Any]] = field(default_factory=list)
    clock: int = 0

    def change(self, random: random.Random, *, truncates: bool) -> None:
        self.clock += random.choice((0, 0, 1))
        key = (random.randint(0, 3), random.choice("xy"))
        values = {name: random.choice((None, 1, 2, 3)) for name in COLUMNS}
        there = list(self.rows)
        what = random.choice(("insert", "update", "update", "move", "delete", "truncate"))
        if what == "insert" and key not in self.rows:
            self.rows[key] = values
            self._send(Op.INSERT, key, values)
        elif what == "update" and there:
            self._update(random, old := random.choice(there), old, values)
        elif what == "move" and there and key not in self.rows:
            self._update(random, random.choice(there), key, values)
        elif what == "delete" and there:
            del self.rows[gone := random.choice(there)]
            self._send(Op.DELETE, gone, {})
        elif what == "truncate" and truncates and random.random() < 0.2:
            self.rows.clear()
            self._send(Op.TRUNCATE, (0, ""), {})

    def _update(self, random: random.Random, old: Key, new: Key, values: Row) -> None:
        before = self.rows.pop(old)
        unsent = {name for name in COLUMNS if random.random() < 0.4}
        after = {name: before[name] if name in unsent else values[name] for name in COLUMNS}
        self.rows[new] = after
        self._send(Op.UPDATE, new, {name: after[name] for name in COLUMNS if name not in unsent}, unsent, old)

    def _send(self, op: Op, key: Key, values: Row, unsent: set[str] = frozenset(), old: Key | None = None) -> None:  # type: ignore[assignment]
        self.sent.append({"op": op, "key": key, "values": values, "unsent": unsent, "old": old, "at": self.clock})


def changes_of(sent: list[dict[str, Any]]) -> Changes:
    count = len(sent)
    moment = pa.timestamp("us", tz="UTC")
    at = pa.array([one["at"] for one in sent], pa.int64()).cast(moment)
    zeros = pa.array([0] * count, pa.int64())
    rows = pa.table(
        {
            decoded.OP: pa.array([int(one["op"]) for one in sent], pa.int8()),
            decoded.LSN: zeros,
            decoded.ORDINAL: zeros,
            decoded.COMMITTED_AT: at,
            decoded.EVENT_AT: at,
            decoded.XID: zeros,
            "k": pa.array([one["key"][0] for one in sent], pa.int64()),
            "l": pa.array([one["key"][1] for one in sent], pa.string()),
            **{name: pa.array([one["values"].get(name) for one in sent], pa.int64()) for name in COLUMNS},
        }
    )
    unsent = {name: np.array([name in one["unsent"] for one in sent], bool) for name in COLUMNS}
    unsent = {name: flags for name, flags in unsent.items() if flags.any()}
    has_old = np.array([one["old"] is not None for one in sent], bool)
    if not has_old.any():
        return Changes(rows, unsent)
    olds = [one["old"] or (None, None) for one in sent]
    old = pa.table({"k": pa.array([k for k, _ in olds], pa.int64()), "l": pa.array([v for _, v in olds], pa.string())})
    return Changes(rows, unsent, old, has_old)


def apply(target: dict[Key, Row], folded: Folded) -> dict[Key, Row]:
    after = {} if folded.truncated_at is not None else dict(target)
    origins = folded.origins.to_pylist()
    for at, (row, op) in enumerate(zip(folded.rows.to_pylist(), folded.operations.to_pylist(), strict=True)):
        key = (row["k"], row["l"])
        if op == "D":
            after.pop(key, None)
            continue
        before = target.get((origins[at]["k"], origins[at]["l"]), {})
        after[key] = {
            name: before[name] if folded.open.get(name, np.zeros(at + 1, bool))[at] else row[name] for name in COLUMNS
        }
    return after


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_any_division_into_batches_gives_the_source(seed: int, truncates: bool) -> None:
    chosen = random.Random(seed)
    source, target, done = Source(), {}, 0
    for _ in range(chosen.randint(1, 4)):
        for _ in range(chosen.randint(0, 12)):
            source.change(chosen, truncates=truncates)
        batch = source.sent[done:]
        done = len(source.sent)
        if batch:
            folded = fold(changes_of(batch), ["k", "l"])
            keys = [(row["k"], row["l"]) for row in folded.rows.to_pylist()]
            assert len(keys) == len(set(keys))
            target = apply(target, folded)
            assert target == source.rows


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_versions_are_the_states_at_each_time(seed: int, truncates: bool) -> None:
    chosen = random.Random(seed)
    source = Source()
    for _ in range(chosen.randint(0, 8)):
        source.change(chosen, truncates=False)
    before, done = {key: dict(row) for key, row in source.rows.items()}, len(source.sent)
    states: dict[tuple[Key, int], Row | None] = {}
    touched: set[Key] = set()
    first_truncate = None
    for _ in range(chosen.randint(1, 14)):
        count = len(source.sent)
        source.change(chosen, truncates=truncates)
        if len(source.sent) == count:
            continue
        last = source.sent[-1]
        if last["op"] == Op.TRUNCATE:
            first_truncate = last["at"] if first_truncate is None else first_truncate
            states |= {(key, last["at"]): None for key in touched}
            touched.clear()
            continue
        for key in {last["key"], last["old"] or last["key"]}:
            states[key, last["at"]] = source.rows.get(key)
            touched = touched | {key} if key in source.rows else touched - {key}
    batch = source.sent[done:]
    if not batch:
        return
    folded = fold(changes_of(batch), ["k", "l"], versions=True)
    found: dict[tuple[Key, int], Row | None] = {}
    origins = folded.origins.to_pylist()
    times = folded.rows[decoded.EVENT_AT].cast(pa.int64()).to_pylist()
    for at, (row, op) in enumerate(zip(folded.rows.to_pylist(), folded.operations.to_pylist(), strict=True)):
        key = (row["k"], row["l"])
        there = before.get((origins[at]["k"], origins[at]["l"]), {})
        found[key, times[at]] = (
            None
            if op == "D"
            else {name: there[name] if name in folded.open and folded.open[name][at] else row[name] for name in COLUMNS}
        )
    assert found == states
    assert folded.truncated_at == first_truncate


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.booleans())
def test_parts_give_what_the_whole_gives(seed: int, truncates: bool, versions: bool) -> None:
    chosen = random.Random(seed)
    source = Source()
    for _ in range(chosen.randint(1, 40)):
        source.change(chosen, truncates=truncates)
    if not source.sent:
        return
    whole = fold(changes_of(source.sent), ["k", "l"], versions=versions)
    parts = parts_of(changes_of(source.sent), ["k", "l"], 3)
    found: list[str] = []
    for number in range(3):
        its = [one for one, part in zip(source.sent, parts.tolist(), strict=True) if part in (number, -1)]
        if its:
            part = fold(changes_of(its), ["k", "l"], versions=versions)
            assert part.truncated_at == whole.truncated_at
            found += shown(part)
    assert sorted(found) == sorted(shown(whole))


def shown(folded: Folded) -> list[str]:
    rows, ops, origins = folded.rows.to_pylist(), folded.operations.to_pylist(), folded.origins.to_pylist()
    flags = {name: folded.open.get(name, np.zeros(len(rows), bool)).tolist() for name in COLUMNS}
    kept = [[name for name in COLUMNS if flags[name][at]] for at in range(len(rows))]
    return [str(one) for one in zip(rows, ops, origins, kept, strict=True)]


def test_a_batch_of_one_truncate_removes_everything() -> None:
    sent = [{"op": Op.TRUNCATE, "key": (0, ""), "values": {}, "unsent": set(), "old": None, "at": 1}]
    folded = fold(changes_of(sent), ["k", "l"])
    assert folded.truncated_at == 1 and not folded.rows.num_rows
