"""`plan --effects` in front of a run: its numbers are those that the run commits, and what the table's rows differ by
afterwards. Nothing is left behind."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from flowctl.engine.base import Engine
from flowctl.model.commit import RowCounts
from flowctl.model.effects import CountedEffects, Effects
from flowctl.model.step import Load, Plan, Recover
from flowctl.plan.document import from_json, to_json
from tests.connectors.whole_runs import SharedRuns
from tests.e2e.flows import sqlite_script
from tests.e2e.targets import ENV, KINDS, TargetPlace, kinds_with, place

SOURCE = """
CREATE TABLE orders (id INTEGER, "a.b`c" TEXT, amount DECIMAL(12,2), ratio DOUBLE, gone BOOLEAN,
                     at TIMESTAMP NOT NULL);
"""
#: Sail compares no hashes of floating-point numbers.
NO_FLOATS = {"columns": {"exclude": ["ratio"]}}
APPEND: dict[str, Any] = {"mode": "append", "cursor": {"column": "at"}, **NO_FLOATS}
MERGE: dict[str, Any] = {"mode": "merge", "key": ["id"]}
FLAG, MISSING = {"detect": "flag", "column": "gone"}, {"detect": "missing_keys"}
ANY = {"guard": {"max_deleted": "100%"}}
SCD2: dict[str, Any] = {"mode": "scd2", "key": ["id"], **NO_FLOATS}
TABLES: dict[str, dict[str, Any]] = {
    "append": APPEND,
    "append with checks": {**APPEND, "expect": [{"rows": {"min": 0}}]},
    "truncate": {"mode": "truncate"},
    "merge": MERGE,
    "merge by cursor": {**MERGE, "cursor": {"column": "at"}},
    "flag": {**MERGE, "deletes": {**FLAG, "action": "hard"}, **ANY},
    "soft flag": {**MERGE, "deletes": {**FLAG, "action": "soft"}, **ANY},
    "missing keys": {**MERGE, "deletes": {**MISSING, "action": "hard"}, **ANY},
    "soft missing keys": {**MERGE, "deletes": {**MISSING, "action": "soft"}, **ANY},
    "scd2": {**SCD2, "scd2": {"valid_from": "at"}},
    "scd2 now": {**SCD2, "scd2": {"valid_from": "now"}, "deletes": MISSING, **ANY},
}  # fmt: skip
#: Of those of a history and of soft deletes, what is no value of the source's.
OWN = ("valid_from", "valid_to", "is_current", "row_hash", "_deleted_at")


@dataclass
class Orders:
    """The source's rows by id, changed at random but the same each time, and a moment that rises."""

    path: Path
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    rows: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    moment: int = 0

    def change(self, *, only_adds: bool = False) -> None:
        """About as many new, changed, deleted and untouched rows."""
        for id in [] if only_adds else list(self.rows):
            match self.chance.randrange(5):
                case 0:
                    del self.rows[id]
                case 1 | 2:
                    self.rows[id] = self._row(id, self.rows[id])
        for id in self.chance.sample(range(60), 12):
            if id not in self.rows:
                self.rows[id] = self._row(id)
        self.put()

    def _row(self, id: int, before: tuple[Any, ...] | None = None) -> tuple[Any, ...]:
        self.moment += 1
        note = self.chance.choice(("a", "b", None, ""))
        amount = before[2] if before and self.chance.random() < 0.5 else self.chance.choice(("1.10", "2.20", None))
        ratio = self.chance.choice((0.5, None))
        gone = self.chance.random() < 0.3
        return (id, note, amount, ratio, gone, f"2026-01-01 {self.moment // 60:02}:{self.moment % 60:02}:00")

    def put(self) -> None:
        connection = sqlite3.connect(self.path)
        with connection:
            connection.execute("DELETE FROM orders")
            connection.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?)", self.rows.values())
        connection.close()


@dataclass(frozen=True)
class Flow:
    runs: SharedRuns
    orders: Orders
    target: TargetPlace

    def document(self, table: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        return {
            "version": 1,
            "flow": "shop",
            "state": {"url": "state"},
            "connections": {"src": {"type": "sqlite", "path": "source.db"}, "dst": self.target.options},
            "tables": {"orders": {"from": "src:orders", "to": f"dst:{self.target.object}", **table}, **more},
        }

    def content(self) -> list[dict[str, Any]]:
        names = self.target.columns() if self.exists() else []
        return [dict(zip(names, row, strict=True)) for row in self.target.rows(names)] if names else []

    def exists(self) -> bool:
        try:
            return bool(self.target.columns())
        except Exception:  # noqa: BLE001 - each system says in its own way that there is no table
            return False

    def everything(self) -> Sequence[Any]:
        """All that there is: files and folders with their content, and the tables of a database."""
        files = [
            (str(path), path.read_bytes() if path.is_file() else None)
            for path in sorted(self.runs.folder.rglob("*"))
            if not path.name.endswith(("-wal", "-shm")) and path.name != "flow.yaml"
        ]
        return [*files, *self.target.everything()]


@pytest.fixture(params=KINDS)
def flow(request: pytest.FixtureRequest, tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Flow:
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    target = place(request.param, tmp_path, request.getfixturevalue)
    sqlite_script(tmp_path / "source.db", SOURCE.replace("a.b", "a") if target.refuses_column("a.b`c") else SOURCE)
    return Flow(SharedRuns(tmp_path, engine, monkeypatch), Orders(tmp_path / "source.db"), target)


#: The ways of each target that differ most.
SHORT = {("delta", "scd2"), ("postgres", "soft missing keys"), ("sqlite", "append")}


@pytest.mark.parametrize(
    ("flow", "name"),
    [
        pytest.param(kind, name, marks=pytest.mark.long_on_spark if (kind, name) in SHORT else pytest.mark.full)
        for name in TABLES
        for kind in kinds_with(TABLES[name]["mode"])
    ],
    indirect=["flow"],
)
def test_what_is_counted_is_what_a_run_changes(flow: Flow, name: str) -> None:
    mode = TABLES[name]["mode"]
    for options in ({}, {}, {}, {"full_refresh": ("orders",)}):
        flow.orders.change(only_adds=mode == "append")
        document = flow.document(TABLES[name])
        there, before = flow.content(), flow.everything()
        found = counted(flow.runs.effects(document, **options))
        assert flow.everything() == before
        result = flow.runs.apply(document, **options)
        assert result.exit_code == 0, result.record
        assert result.record is not None
        now = flow.content()
        replaced = mode == "truncate" or (bool(options) and mode != "scd2")
        assert numbers(found) == difference(there, now, mode, replaced=replaced), options
        (committed,) = result.record.tables
        agree(found, committed.rows, soft="soft" in name)
        if mode == "merge" and there and not replaced and "cursor" not in name:
            assert found.unchanged == len(flow.orders.rows) - deletions(flow, name) - found.inserted - found.updated


#: What a full refresh turns into a history: rows of another mode, and a history of other keys.
HISTORIES = {"rows": TABLES["truncate"], "other keys": {**TABLES["scd2"], "key": ["id", "gone"]}}


@pytest.mark.parametrize(
    ("flow", "before"),
    [pytest.param(kind, name, marks=pytest.mark.full) for kind in kinds_with("scd2") for name in HISTORIES],
    indirect=["flow"],
)
def test_a_history_in_the_place_of_something_else(flow: Flow, before: str) -> None:
    flow.orders.change()
    flow.runs.apply(flow.document({**HISTORIES[before], **NO_FLOATS}))
    flow.orders.change()
    document, there = flow.document(TABLES["scd2"]), flow.content()
    found = counted(flow.runs.effects(document, full_refresh=("orders",)))
    assert flow.runs.apply(document, full_refresh=("orders",)).exit_code == 0
    assert (found.inserted, found.updated, found.deleted) == (len(flow.content()), 0, len(there))


def deletions(flow: Flow, name: str) -> int:
    """Rows of the batch that only say that they are gone."""
    return sum(row[4] for row in flow.orders.rows.values()) if "flag" in name else 0


def counted(plan: Plan) -> CountedEffects:
    found = effects(plan)["orders"]
    assert isinstance(found, CountedEffects), found
    assert from_json(to_json(plan)) == plan
    return found


def effects(plan: Plan) -> dict[str, Effects]:
    steps = (step for step in plan.steps if isinstance(step, Load | Recover))
    return {step.id: step.effects for step in steps if step.effects is not None}


def numbers(found: CountedEffects) -> tuple[int, int, int, dict[str, int]]:
    own = {name: count for name, count in found.columns.items() if name not in OWN}
    return found.inserted, found.updated, found.deleted, own


def difference(
    before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]], mode: str, *, replaced: bool
) -> tuple[int, int, int, dict[str, int]]:
    """By value: rows inserted, updated and deleted, and the columns that updates change."""
    if replaced:
        return len(after), 0, len(before), {}
    if mode == "append":
        stays = Counter(repr(row) for row in before)
        come = Counter(repr(row) for row in after)
        assert not stays - come
        return (come - stays).total(), 0, 0, {}
    identity = ("id", "valid_from") if mode == "scd2" else ("id",)
    old, new = ({tuple(row[name] for name in identity): row for row in rows} for rows in (before, after))
    inserted, deleted = [key for key in new if key not in old], [key for key in old if key not in new]
    changed = [key for key in new if key in old and new[key] != old[key]]
    marked = [key for key in changed if not old[key].get("_deleted_at") and new[key].get("_deleted_at")]
    updated = [key for key in changed if key not in marked]
    pairs = [(old[key], new[key]) for key in updated]
    if mode == "scd2":
        current = {row["id"]: row for row in before if row["is_current"]}
        pairs += [(current[key[0]], new[key]) for key in inserted if key[0] in current]
    columns = Counter(name for one, other in pairs for name in other if one.get(name) != other[name])
    told = {name: count for name, count in columns.items() if name not in (*OWN, *identity)}
    return len(inserted), len(updated), len(deleted) + len(marked), told


def agree(found: CountedEffects, committed: RowCounts, *, soft: bool) -> None:
    """With what the target counted, as far as it does; Delta counts rows that are marked as deleted as updated."""
    assert committed.inserted == found.inserted
    if committed.deleted is None and soft:
        assert committed.updated in (None, found.updated + found.deleted)
        return
    assert committed.updated in (None, found.updated)
    assert committed.deleted in (None, found.deleted)
