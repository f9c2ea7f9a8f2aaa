"""Every source into every target, by value: types, empty and wide tables; rows that change and end; a new and a wider
column; another definition; kills at every step; a million rows.

The pairs come from the published schemas: a connector that can read or write is in here, or in ``ELSEWHERE`` with the
reason. Modes × hostile names of the same pairs are in :mod:`tests.connectors.test_hostile_flows`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flowctl.connectors.registry import capabilities
from flowctl.crashpoints import POINTS, Point
from flowctl.engine.base import Engine
from flowctl.model import types
from flowctl.plan.document import action_of
from flowctl.spec.schema import connector_types, role, target_modes
from tests.connectors.matrix import contents, flows
from tests.connectors.matrix.contents import EXTRA, MANY, ORDERS, order
from tests.connectors.matrix.flows import CHANGING, Entry, able, document, must_equal, redefined
from tests.connectors.matrix.lakes import WidenedDelta
from tests.connectors.matrix.source import MILLION, Source
from tests.connectors.matrix.sources import ELSEWHERE, SOURCES
from tests.connectors.whole_runs import SharedRuns
from tests.e2e.flows import Flow
from tests.e2e.targets import ENV, KINDS, OF_ENGINE, Databases, DeltaPlace, Kind, TargetPlace, place

KILLED = -9
#: In every run: each source and each target once, with what is there or with what changes.
SMOKE = {
    "tables": {
        ("mysql", "sqlite"),
        ("sqlite", "postgres"),
        ("parquet", "mysql"),
        ("duckdb", "iceberg"),
        ("delta", "duckdb"),
    },
    "changes": {("postgres", "delta"), ("iceberg", "files")},
}
#: Steps that all tables of a run take together.
OF_THE_RUN: tuple[Point, ...] = ("before_intent", "after_intent")


def cases(test: str) -> list[Any]:
    """All pairs, but for the smoke set of ``test`` only in the full run."""
    found = []
    for source in SOURCES:
        for target in KINDS if test == "kills" else OF_ENGINE:  # what is killed is a process with a Sail of its own
            length = pytest.mark.long_on_spark if (source, target) in SMOKE.get(test, ()) else pytest.mark.full
            found.append(pytest.param(source, target, marks=length))
    return found


def test_every_connector_is_in_the_matrix_or_has_a_reason() -> None:
    def able(side: str) -> set[str]:
        return {type for type in connector_types() if role(type, side) is not None} - set(ELSEWHERE)

    of_files = {"csv", "jsonl", "parquet", "orc", "avro"}
    assert set(SOURCES) - of_files | {"files"} == able("source")
    assert set(KINDS) == able("target")


class Checks:
    """What has passed so far, and how long it took: for the table at the end."""

    def __init__(self, record: Callable[[str, object], None]) -> None:
        self._record = record

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        begun = time.monotonic()
        try:
            yield
        except BaseException:
            self._record("check", [name, "failed", time.monotonic() - begun])
            raise
        self._record("check", [name, "passed", time.monotonic() - begun])

    def skip(self, name: str, reason: str) -> None:
        self._record("check", [name, reason, 0])


@pytest.fixture
def checks(record_property: Callable[[str, object], None]) -> Checks:
    return Checks(record_property)


@pytest.fixture
def runs(tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> SharedRuns:
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    return SharedRuns(tmp_path, engine, monkeypatch)


class Pair:
    """One flow, run in this process."""

    def __init__(self, runs: SharedRuns, source: Source, target: TargetPlace) -> None:
        self.runs, self.source, self.target = runs, source, target

    def apply(self, entries: Sequence[Entry], **options: Any) -> None:
        result = self.runs.apply(document(self.source, self.target, entries), **options)
        assert result.record is not None
        said = {
            outcome.id: (outcome.error and outcome.error.message) or outcome.outcome for outcome in result.record.tables
        }
        assert result.exit_code == 0, said

    def is_not_begun(self, entry: Entry) -> bool:
        """What continues from a cursor makes no table before there is a value of it."""
        return entry.mode != "truncate" and self.source.takes_cursor and not self.source.content[entry.source].written

    def must_be_right(self, entries: Sequence[Entry], columns: contents.Columns) -> None:
        for entry in entries:
            content = self.source.content[entry.source]
            must_equal(entry, self.target, content, keeps_all=self.source.keeps_all, columns=columns)


def fill(source: Source) -> None:
    for name in ("orders", "events"):
        source.create(name, ORDERS, [order(id, id) for id in range(1, 13)])


def change(source: Source, clock: int) -> None:
    """A row changes, one ends, one is new. None twice: a version that no run has read is no part of a history."""
    untouched = sorted(id for id, row in source.content["orders"].live.items() if row["note"] == "first")
    again, ended = untouched[0], untouched[-1]
    gone = {**source.content["orders"].live[ended], "at": order(0, clock)["at"]}
    extra = {EXTRA: f"since {clock}"} if EXTRA in source.content["orders"].columns else {}
    came = [{**order(100 + clock, clock, "new"), **extra}]
    source.put("orders", [{**order(again, clock, f"changed at {clock}"), **extra}, *came], [gone])
    source.put("events", came)


def stays_narrow(target: Kind, *, has_jvm: bool) -> str:
    """Why the target cannot make a column wider; empty if it can."""
    if target == "delta" and not has_jvm:
        return "Sail widens no column of a Delta table in place"
    able = capabilities(target).target
    assert able is not None
    return "" if able.widens(types.INT32, types.INT64) else f"{target} widens no column in place"


@pytest.mark.parametrize(("source", "target"), cases("tables"))
def test_tables(runs: SharedRuns, databases: Databases, checks: Checks, source: str, target: Kind) -> None:
    """As they are: types at their ends, none of rows, hundreds of columns."""
    pair = Pair(runs, SOURCES[source](runs.folder, databases), place(target, runs.folder, databases).apart())
    carried = pair.source.carried(contents.TYPES)
    pair.source.create("types", carried, contents.typed())
    pair.source.create("nothing", ORDERS, [])
    pair.source.create("wide", contents.WIDE, contents.wide())
    cases = (("types", flows.TYPES, carried), ("empty", flows.EMPTY, ORDERS), ("wide", flows.WIDE, contents.WIDE))
    for name, entries, columns in cases:
        with checks.of(name):
            listed = able(entries, target)
            for _ in range(2):  # the second has nothing new
                pair.apply(listed)
                pair.must_be_right([entry for entry in listed if not pair.is_not_begun(entry)], columns)
    with checks.of("first"):
        pair.source.put("nothing", [order(1, 1)])
        pair.apply(able(flows.EMPTY, target))
        pair.must_be_right(able(flows.EMPTY, target), ORDERS)


@pytest.mark.parametrize(("source", "target"), cases("changes"))
def test_changes(runs: SharedRuns, databases: Databases, checks: Checks, source: str, target: Kind) -> None:
    """From run to run: of rows, of columns, of the definition."""
    pair = Pair(runs, SOURCES[source](runs.folder, databases), place(target, runs.folder, databases).apart())
    entries = able(CHANGING, target)
    with checks.of("rows"):
        fill(pair.source)
        pair.apply(entries)
        pair.must_be_right(entries, ORDERS)
        change(pair.source, 21)
        pair.apply(entries)
        pair.must_be_right(entries, ORDERS)
    with checks.of("column"):
        for table in ("orders", "events"):
            pair.source.add_column(table)
        change(pair.source, 22)
        pair.apply(entries)
        pair.must_be_right(entries, {**ORDERS, EXTRA: "text"})
    columns: contents.Columns = {**ORDERS, EXTRA: "text"}
    reason = pair.source.never_widens or stays_narrow(target, has_jvm=runs.has_jvm)
    if reason:
        checks.skip("wider", reason)
    else:
        with checks.of("wider"):
            for table in ("orders", "events"):
                pair.source.widen(table)
            columns = {**columns, "small": "bigint"}
            if isinstance(pair.target, DeltaPlace):
                pair.target = WidenedDelta(pair.target.folder, lake=pair.target.lake, spark=runs.engine.spark)
            change(pair.source, 23)
            for table in ("orders", "events"):
                pair.source.put(table, [{**order(500, 24), "small": 2**40}])
            pair.apply(entries)
            pair.must_be_right(entries, columns)
    with checks.of("definition"):
        changed = [redefined(entry, target) for entry in entries]
        others = {made.id for entry, made in zip(entries, changed, strict=True) if made != entry}
        plan = runs.plan(document(pair.source, pair.target, changed))
        assert {step.id for step in plan.steps if action_of(step) == "stop"} == others
        pair.apply(changed, full_refresh=frozenset(others))
        content = pair.source.content["orders"]
        for table in pair.source.content.values():
            table.last = dict(table.live)  # rows that ended before are not made
            if not pair.source.keeps_all:
                table.newest, table.versions = dict(table.live), list(table.live.values())
        pair.must_be_right(changed, columns)
        assert content.live
        change(pair.source, 25)
        pair.apply(changed)
        pair.must_be_right(changed, columns)


def kills(source: str, entries: Sequence[Entry]) -> Iterator[tuple[Point, Entry]]:
    """Each pair at every step, each time in another mode; with another source of the same target, in the next one."""
    first = list(SOURCES).index(source)
    for at, point in enumerate(POINTS):
        able = [entry for entry in entries if entry.mode in ("merge", "scd2") or point != "after_stage"]
        if able:
            yield point, able[(first + at) % len(able)]


@pytest.mark.parametrize(("source", "target"), cases("kills"))
def test_kills(tmp_path: Path, databases: Databases, checks: Checks, source: str, target: Kind) -> None:
    """One after the other: what finishes the work of a killed run is killed, too."""
    there, to = SOURCES[source](tmp_path, databases), place(target, tmp_path, databases).apart()
    entries = [entry for entry in able(CHANGING, target) if entry.id not in ("merge", "soft")]
    for name in ("orders", "events"):
        there.create(name, ORDERS, [order(id, id) for id in range(1, 40)])
    flow = Flow(tmp_path, ENV)
    flow.write(json.dumps(document(there, to, entries, "sail")))
    flow.apply()
    with checks.of("kills"):
        for at, (point, entry) in enumerate(kills(source, entries)):
            change(there, 100 + at)
            where = point if point in OF_THE_RUN else f"{point}:{entry.id}"
            killed = flow.apply(env={"FLOWCTL_CRASH_AT": where}, expect=None)
            assert killed.code == KILLED, (point, entry.id, killed.words)
        flow.apply()
        for entry in entries:
            must_equal(entry, to, there.content[entry.source], keeps_all=there.keeps_all, columns=ORDERS)


@pytest.mark.parametrize(("source", "target"), cases("million"))
def test_million(runs: SharedRuns, databases: Databases, checks: Checks, source: str, target: Kind) -> None:
    """Every value of every row, as the target's own reader compares it."""
    pair = Pair(runs, SOURCES[source](runs.folder, databases), place(target, runs.folder, databases).apart())
    pair.source.million("many")
    with checks.of("million"):
        pair.apply([Entry("copied", "many", "truncate")])
        right = f'"twice" = 2 * "id" AND "note" = {pair.target.joined("note ", "id")}'
        (found,) = pair.target.named("copied").fetch(
            'SELECT count(*) AS n, count(DISTINCT "id") AS ids, min("id") AS least, max("id") AS most, '
            f"sum(CASE WHEN {right} THEN 1 ELSE 0 END) AS good FROM {{table}}"
        )
    assert tuple(map(int, found)) == (MILLION, MILLION, 1, MILLION, MILLION)
    assert set(pair.target.named("copied").columns()) >= set(MANY)
    assert set(target_modes(target)) >= {"truncate"}
