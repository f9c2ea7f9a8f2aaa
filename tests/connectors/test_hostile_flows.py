"""Names that mean something to a layer below, through whole runs: from every source into every target in every mode,
they arrive by value or the plan refuses them by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flowctl.engine.base import Engine
from flowctl.errors import SpecError
from flowctl.plan.document import action_of
from flowctl.spec.schema import target_modes
from tests.connectors.hostile import TEXTS
from tests.connectors.hostile_tables import CURSOR, EVENT, KEY, SOURCES, came, expected, plain
from tests.connectors.whole_runs import SharedRuns
from tests.e2e.targets import ENV, KINDS, OF_ENGINE, Databases, Kind, place, sql_place
from tests.plan.worlds import changes

#: On Spark the two ways into PostgreSQL's COPY and JDBC; on Sail, where a run costs a second, each source and mode.
SHORT = {("parts", "postgres", "truncate"), ("postgres", "delta", "merge")}
SHORT_ON_SAIL = {
    ("sqlite", "postgres", "scd2"),
    ("files", "sqlite", "append"),
    ("files", "delta", "scd2"),
    ("duckdb", "sqlite", "merge"),
    ("iceberg", "duckdb", "merge"),
    ("files", "duckdb", "scd2"),
}


def length(*case: str) -> Sequence[pytest.MarkDecorator]:
    if case in SHORT:
        return []
    return [pytest.mark.long_on_spark] if case in SHORT_ON_SAIL else [pytest.mark.full]


MATRIX = [
    pytest.param(source, target, mode, marks=length(source, target, mode))
    for source in SOURCES
    for target in KINDS
    for mode in target_modes(target)
    if target in OF_ENGINE or (source, target, mode) in SHORT
]


@pytest.fixture
def runs(tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> SharedRuns:
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    return SharedRuns(tmp_path, engine, monkeypatch)


@pytest.mark.parametrize(("source", "target", "mode"), MATRIX)
def test_columns(runs: SharedRuns, databases: Databases, source: str, target: Kind, mode: str) -> None:
    """The key, the cursor and the time of a version have such names too; keys are looked for where rows may go."""
    given = SOURCES[source](databases, runs.folder)
    to = place(target, runs.folder, databases).apart().named("copied")
    table: dict[str, Any] = {
        "from": given.reference,
        "to": f"dst:{to.object}",
        "mode": mode,
    }
    if given.hints:
        table["read"] = given.hints
    if source == "files":
        table["format"] = {"type": "csv", "multiline": True, "schema": dict(given.kinds)}
    elif given.takes_cursor and mode != "truncate":
        table["cursor"] = {"column": CURSOR}
    if mode in ("merge", "scd2"):
        table["key"] = list(KEY)
    if mode == "scd2":
        table["scd2"] = {"valid_from": EVENT}
    document = {
        "version": 1,
        "flow": "hostile",
        "connections": {"src": given.connection, "dst": to.options},
        "state": {"url": "state"},
        "tables": {"odd": table},
    }
    (step,) = runs.plan(document).steps
    refused = [change.column for change in changes(step) or () if change.action == "fail"]
    assert refused == [name for name in given.names if to.refuses_column(name)], step.reason
    if refused:
        assert action_of(step) == "stop"
        table["columns"] = {"exclude": refused}
    if refused and "key" in table:
        table["key"] = [name for name in KEY if name not in refused]
    names = [name for name in given.names if name not in refused]
    for batch in ((), came(names)):
        blank = {name: "" for name in refused if name not in KEY}  # a source finds its rows by the key
        given.put([{**one, **blank} for one in batch], adds=mode == "append")
        result = runs.apply(document)
        assert result.record is not None
        assert result.exit_code == 0, [outcome.error for outcome in result.record.tables]
    wanted = [[one[name] for name in names] for one in expected(mode, names, keeps_all=given.keeps_all)]
    assert plain(to.rows(names)) == plain(wanted)


@pytest.mark.parametrize(
    ("source", "target", "labels"),
    [
        ("sqlite", "postgres", ("dots", "double quote", "percent", "variable", "sidecar", "255 bytes")),
        *(
            pytest.param(source, target, tuple(TEXTS), marks=pytest.mark.full)
            for source in ("postgres", "sqlite")
            for target in OF_ENGINE
        ),
    ],
)
def test_tables(runs: SharedRuns, databases: Databases, source: Kind, target: Kind, labels: Sequence[str]) -> None:
    """Each from one table into one of the same name."""
    names = [TEXTS[label] for label in labels if label != "upper case"]
    given, to = sql_place(source, runs.folder, databases), place(target, runs.folder, databases).apart()
    names = [name for name in names if not given.refuses_table(name) and to.is_one_name(name, has_jvm=runs.has_jvm)]
    for name in names:
        filled = "INSERT INTO {table} VALUES (1, '" + name.replace("'", "''") + "')"
        given.named(name).run(f"CREATE TABLE {{table}} (id bigint, said text); {filled}")
    document = {
        "version": 1,
        "flow": "hostile",
        "connections": {
            "src": given.options,
            "dst": to.options,
        },
        "state": {"url": "state"},
        "tables": {
            f"t{at}": {
                "from": f"src:{given.named(name).reference}",
                "to": f"dst:{to.named(name).reference}",
                "mode": "truncate",
            }
            for at, name in enumerate(names)
        },
    }
    refused = {f"t{at}": name for at, name in enumerate(names) if to.refuses_table(name)}
    if refused:
        with pytest.raises(SpecError) as caught:
            runs.plan(document)
        said = [finding.message for finding in caught.value.diagnostics]
        assert len(said) == len(refused)
        assert [
            name for name in refused.values() if not any(f'"{name}" is not a valid name there' in one for one in said)
        ] == []
    document["tables"] = {id: table for id, table in document["tables"].items() if id not in refused}
    result = runs.apply(document)
    assert result.record is not None
    outcomes = {names[int(one.id[1:])]: one for one in result.record.tables}
    failed = {name: str(one.error) for name, one in outcomes.items() if one.outcome == "failed"}
    assert failed == {}
    for at, name in enumerate(names):
        if f"t{at}" not in refused:
            assert to.named(name).rows(["id", "said"]) == [(1, name)], name
