"""Every change of a definition × the remedies that the plan prints × every target: the remedy works, the plan says what
happens, and the table is right by value, also after the next run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from flowctl.cli.main import run
from flowctl.spec.schema import target_modes
from tests.e2e.definition_changes import CHANGES, Change, Definition, Model, Row
from tests.e2e.flows import Flow, sqlite_rows, sqlite_script
from tests.e2e.targets import BY_ENGINE, ENV, KINDS, Databases, Kind, TargetPlace, place

pytestmark = pytest.mark.server

STOPPED = 6
REMEDIES = ("full refresh", "accept")
SCHEMA = (
    "(id INTEGER PRIMARY KEY, code TEXT, note TEXT, other TEXT, clock INTEGER NOT NULL, updated_at TIMESTAMP NOT NULL)"
)


def put(name: str, id: int, note: str, clock: int) -> str:
    values = f"{id}, 'k{id}', '{note}', 'o', {clock}, '2026-01-01 00:00:{clock:02}'"
    return f"INSERT OR REPLACE INTO {name} VALUES ({values});"


def rounds(name: str) -> tuple[str, str, str]:
    """What happens in a source before the first run, before the remedy, and before the run after that."""
    first = "".join(put(name, id, "first", id) for id in range(1, 6))
    second = f"DELETE FROM {name} WHERE id = 1;" + put(name, 2, "changed", 11) + put(name, 6, "new", 12)
    third = f"DELETE FROM {name} WHERE id = 3;" + put(name, 4, "changed again", 21) + put(name, 7, "newer", 22)
    return f"CREATE TABLE {name} {SCHEMA};{first}", second, third


class Changes:
    """One flow that has all of the changes as its tables."""

    def __init__(self, flow: Flow, target: TargetPlace, engine: str, changes: Iterable[Change]) -> None:
        self.flow, self.target, self.engine = flow, target, engine
        able = target_modes(target.kind)
        self.changes = tuple(
            change
            for change in changes
            if {change.before.mode, change.after.mode} <= set(able) and (engine != "sail" or not change.needs_jvm)
        )
        self.models = {change.name: Model() for change in self.changes}
        sqlite_script(flow.folder / "source.db", rounds("elsewhere")[0])

    def write(self, *, changed: bool) -> None:
        listed = [(change, change.after if changed else change.before) for change in self.changes]
        tables = [
            f"  {change.name}: {made.yaml(change.name, self.target.named(change.name).object)}"
            for change, made in listed
        ]
        self.flow.write(
            f'version: 1\nflow: shop\nstate: state\nspark: {{url: "{self.engine}"}}\nconnections:\n'
            f"  src: {{type: sqlite, path: source.db}}\n  dst: {self.target.connection}\ntables:\n" + "\n".join(tables)
        )

    def change_sources(self, round: int) -> None:
        names = [change.name for change in self.changes] + (["elsewhere"] if round else [])
        sqlite_script(self.flow.folder / "source.db", "".join(rounds(name)[round] for name in names))

    def source(self, change: Change, definition: Definition) -> list[Row]:
        query = f"SELECT id, note, clock FROM {definition.source or change.name}"
        return [Row(*row) for row in sqlite_rows(self.flow.folder / "source.db", query)]

    def accept(self, change: Change) -> None:
        """As the plan prints it; refused where the plan does not print it."""
        code = run(["state", "set", str(self.flow.spec), change.name, "--accept-definition", "--yes"])
        assert code == (STOPPED if change.refused else 0), change.name

    def must_be_right(self, change: Change, definition: Definition, *, shape: bool) -> None:
        model, name = self.models[change.name], f"{change.name}{definition.target}"
        table = self.target.named(name)
        own = definition.own
        found = table.rows(["id", definition.value, *own])
        rows = [row[:2] for row in found]
        if definition.mode == "scd2":
            versions = [(id, note) for (id, _), note in model.versions.items()]
            assert sorted(rows, key=repr) == sorted(versions, key=repr), (change.name, "versions")
            rows = [row[:2] for row in found if row[2 + own.index("is_current")]]
        elif own:
            rows = [row[:2] for row in found if row[2] is None]
        assert sorted(rows, key=repr) == sorted(model.rows, key=repr), change.name
        if shape:
            assert set(table.columns()) == {*definition.names, *own}, change.name


def show(
    flow: Flow,
    target: TargetPlace,
    engine: str,
    remedy: str,
    changes: Iterable[Change],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(flow.folder)
    world = Changes(flow, target, engine, changes)
    world.change_sources(0)
    world.write(changed=False)
    flow.apply()
    for change in world.changes:
        world.models[change.name].applied(change.before, world.source(change, change.before), refresh=True, anew=True)
        world.must_be_right(change, change.before, shape=True)

    world.change_sources(1)
    world.write(changed=True)
    steps = {step["id"]: step for step in flow.plan(expect=None)["steps"]}
    for change in world.changes:
        step = steps[change.name]
        assert (step["action"] == "stop") == change.stops, (change.name, step["reason"])
        if change.stops:
            assert "the definition changed" in step["reason"] and f"--full-refresh {change.name}" in step["hint"]
            assert ("--accept-definition" in step["hint"]) == (not change.refused), (change.name, step["hint"])

    refreshed = set()
    for change in world.changes:
        if remedy == "accept" and change.stops:
            world.accept(change)
        if remedy == "full refresh" or change.refused:
            refreshed.add(change.name)
    terms = [word for name in sorted(refreshed) for word in ("--full-refresh", name)]
    planned = {step["id"]: step for step in flow.plan(*terms, expect=None)["steps"]}
    stopped = {name: step["reason"] + step["hint"] for name, step in planned.items() if step["action"] == "stop"}
    assert stopped == {}
    flow.apply(*terms)
    for change in world.changes:
        moved = change.before.target != change.after.target
        anew = moved or (change.name in refreshed and not _keeps_history(change))
        if anew and not moved:
            assert planned[change.name]["write_full"], change.name
        model = world.models[change.name]
        model.continued(change.before, change.after)
        again = change.name in refreshed or moved or change.before.cursor != change.after.cursor
        model.applied(change.after, world.source(change, change.after), refresh=again, anew=anew)
        world.must_be_right(change, change.after, shape=anew)

    world.change_sources(2)
    flow.apply()
    for change in world.changes:
        world.models[change.name].applied(change.after, world.source(change, change.after), refresh=False)
        world.must_be_right(change, change.after, shape=False)
    assert set(flow.actions().values()) <= {"none", "change"}


def _keeps_history(change: Change) -> bool:
    before, after = ({*one.key.split(", ")} for one in (change.before, change.after))
    return change.before.mode == change.after.mode == "scd2" and before == after


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("remedy", REMEDIES)
@pytest.mark.parametrize("engine", ["sail", "local[2]"])
def test_every_change_of_a_definition_and_its_remedies(
    engine: str,
    remedy: str,
    kind: Kind,
    tmp_path: Path,
    databases: Databases,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A target that the engine does not write gets the same rows from each: on Spark, only what needs a JVM is left."""
    is_shown = engine == "sail" or kind in BY_ENGINE
    changes = [change for change in CHANGES if is_shown or change.needs_jvm]
    show(Flow(tmp_path, ENV), place(kind, tmp_path, databases), engine, remedy, changes, monkeypatch)
