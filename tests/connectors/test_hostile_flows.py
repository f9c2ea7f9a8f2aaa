"""Names that mean something to a layer below, through whole runs: from every source into every target in every mode,
they arrive by value or the plan refuses them by name."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from flowctl.engine.base import Engine
from flowctl.engine.session import reachable
from flowctl.errors import SpecError
from flowctl.plan.document import action_of
from tests.connectors.hostile import TEXTS
from tests.connectors.hostile_tables import CURSOR, EVENT, KEY, SOURCES, came, expected, plain, quoted
from tests.connectors.whole_runs import SharedRuns
from tests.e2e.flows import duckdb_rows
from tests.plan.worlds import changes

MODES = ("append", "truncate", "merge", "scd2")
#: On Spark the two ways into PostgreSQL's COPY and JDBC; on Sail, where a run costs a second, each source and mode.
SHORT = {("parts", "postgres", "truncate"), ("postgres", "delta", "merge")}
SHORT_ON_SAIL = {
    ("sqlite", "postgres", "scd2"),
    ("files", "sqlite", "append"),
    ("files", "delta", "scd2"),
    ("duckdb", "sqlite", "merge"),
    ("files", "duckdb", "scd2"),
}


def length(*case: str) -> Sequence[pytest.MarkDecorator]:
    if case in SHORT:
        return []
    return [pytest.mark.long_on_spark] if case in SHORT_ON_SAIL else [pytest.mark.full]


MATRIX = [
    pytest.param(source, target, mode, marks=length(source, target, mode))
    for source in SOURCES
    for target in ("delta", "postgres", "sqlite", "duckdb")
    for mode in MODES
]


@pytest.fixture
def runs(tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> SharedRuns:
    monkeypatch.setenv("PG_PASSWORD", "etl-secret")
    return SharedRuns(tmp_path, engine, monkeypatch)


@pytest.mark.parametrize(("source", "target", "mode"), MATRIX)
def test_columns(runs: SharedRuns, postgres_database: str, source: str, target: str, mode: str) -> None:
    """The key, the cursor and the time of a version have such names too; keys are looked for where rows may go."""
    given = SOURCES[source](postgres_database, runs.folder)
    if "url" in given.connection:
        given.connection["url"] = referring(postgres_database)
    connection, rows = place(target, runs, postgres_database, "copied")
    table: dict[str, Any] = {
        "from": given.reference,
        "to": "dst:copies.copied" if target == "postgres" else "dst:copied",
        "mode": mode,
    }
    if given.hints:
        table["read"] = given.hints
    if source == "files":
        table["format"] = {"type": "csv", "multiline": True, "schema": dict(given.kinds)}
    elif mode != "truncate":
        table["cursor"] = {"column": CURSOR}
    if mode in ("merge", "scd2"):
        table["key"] = list(KEY)
    if mode == "scd2":
        table["scd2"] = {"valid_from": EVENT}
    document = {
        "version": 1,
        "flow": "hostile",
        "connections": {"src": given.connection, "dst": connection},
        "state": {"url": "state"},
        "tables": {"odd": table},
    }
    (step,) = runs.plan(document).steps
    refused = [change.column for change in changes(step) or () if change.action == "fail"]
    assert refused == [name for name in given.names if is_refused(target, name)], step.reason
    if refused:
        assert action_of(step) == "stop"
        table["columns"] = {"exclude": refused}
    names = [name for name in given.names if name not in refused]
    for batch in ((), came(names)):
        given.put([{**one, **dict.fromkeys(refused, "")} for one in batch], adds=mode == "append")
        result = runs.apply(document)
        assert result.record is not None
        assert result.exit_code == 0, [outcome.error for outcome in result.record.tables]
    wanted = [[one[name] for name in names] for one in expected(mode, names, keeps_all=given.keeps_all)]
    assert plain(rows(names)) == plain(wanted)


def is_refused(target: str, name: str) -> bool:
    match target:
        case "delta":
            return any(letter in name for letter in " ,;{}()\n\t=")
        case "postgres":
            return len(name.encode()) > 63
        case _:
            return False


def place(
    target: str, runs: SharedRuns, url: str, name: str
) -> tuple[dict[str, Any], Callable[[Sequence[str]], list[tuple[Any, ...]]]]:
    """The connection, and how its table's columns are read by somebody else."""

    def of_postgres(names: Sequence[str]) -> list[tuple[Any, ...]]:
        with psycopg.connect(url) as connection:
            query = f"SELECT {', '.join(map(quoted, names))} FROM copies.{quoted(name)}"
            return connection.execute(query.encode()).fetchall()

    def of_sqlite(names: Sequence[str]) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(runs.folder / "target.db")
        try:
            query = f"SELECT {', '.join(map(quoted, names))} FROM {quoted(name)}"
            return connection.execute(query).fetchall()
        finally:
            connection.close()

    def of_duckdb(names: Sequence[str]) -> list[tuple[Any, ...]]:
        query = f"SELECT {', '.join(map(quoted, names))} FROM {quoted(name)}"
        return duckdb_rows(runs.folder / "target.duckdb", query)

    def of_delta(names: Sequence[str]) -> list[tuple[Any, ...]]:
        frame = runs.engine.spark.read.format("delta").load(str(runs.folder / "lake" / name))
        return [tuple(row) for row in frame.select(*("`" + name.replace("`", "``") + "`" for name in names)).collect()]

    match target:
        case "postgres":
            return {"type": "postgres", "url": referring(url)}, of_postgres
        case "sqlite":
            return {"type": "sqlite", "path": "target.db"}, of_sqlite
        case "duckdb":
            return {"type": "duckdb", "path": "target.duckdb"}, of_duckdb
        case _:
            return {"type": "delta", "path": "lake"}, of_delta


def referring(url: str) -> str:
    return url.replace("etl-secret", "${secret:env:PG_PASSWORD}")


@pytest.mark.parametrize(
    ("source", "target", "labels"),
    [
        ("sqlite", "postgres", ("dots", "double quote", "percent", "variable", "sidecar", "255 bytes")),
        *(
            pytest.param(source, target, tuple(TEXTS), marks=pytest.mark.full)
            for source in ("postgres", "sqlite")
            for target in ("delta", "postgres", "sqlite", "duckdb")
        ),
    ],
)
def test_tables(runs: SharedRuns, postgres_database: str, source: str, target: str, labels: Sequence[str]) -> None:
    """Each from one table into one of the same name."""
    names = [TEXTS[label] for label in labels if label != "upper case"]
    names = [name for name in names if source == "sqlite" or len(name.encode()) <= 63]
    if target == "delta":  # patterns and folders are refused, or meant, in a path; Sail refuses what it would encode
        names = [name for name in names if not set(name) & set("*?/") and (runs.has_jvm or reachable(name))]
        names = [name for name in names if name == name.strip()]  # a path in a spec has no blanks at its ends
    put_tables(source, runs, postgres_database, names)
    connection, _ = place(target, runs, postgres_database, "")
    document = {
        "version": 1,
        "flow": "hostile",
        "connections": {
            "src": {"type": "sqlite", "path": "source.db"}
            if source == "sqlite"
            else {"type": "postgres", "url": referring(postgres_database)},
            "dst": connection,
        },
        "state": {"url": "state"},
        "tables": {
            f"t{at}": {"from": reference("src", source, name), "to": reference("dst", target, name), "mode": "truncate"}
            for at, name in enumerate(names)
        },
    }
    refused = {f"t{at}": name for at, name in enumerate(names) if is_refused_as_table(target, name)}
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
            _, rows = place(target, runs, postgres_database, name)
            assert rows(["id", "said"]) == [(1, name)], name


def is_refused_as_table(target: str, name: str) -> bool:
    """deltalake takes a backslash for a slash, and decodes what looks encoded."""
    if target == "delta":
        return any(sign in name for sign in ("\\", "\n", "\r", "\t", "%25"))
    return target == "postgres" and len(name.encode()) > 63


def put_tables(source: str, runs: SharedRuns, url: str, names: Sequence[str]) -> None:
    statements = [f"CREATE TABLE {quoted(name)} (id bigint, said text)" for name in names]
    texts = [name.replace("'", "''") for name in names]
    statements += [f"INSERT INTO {quoted(n)} VALUES (1, '{text}')" for n, text in zip(names, texts, strict=True)]
    if source == "postgres":
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(";".join(statements).encode())
        return
    database = sqlite3.connect(runs.folder / "source.db")
    database.executescript(";".join(statements))
    database.close()


def reference(connection: str, system: str, name: str) -> str:
    match system:
        case "postgres":
            return f"{connection}:{'public' if connection == 'src' else 'copies'}.{quoted(name)}"
        case "sqlite" | "duckdb":
            return f"{connection}:{quoted(name)}"
        case _:
            return f"{connection}:{name}"
