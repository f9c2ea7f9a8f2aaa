"""Runs whose connections come from elsewhere than the spec: what identifies a table stays, and no secret leaves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.e2e.flows import Flow, Row, delta_rows, sqlite_script

pytestmark = pytest.mark.server

HEAD = """
version: 1
flow: shop
state: state
spark: {url: sail}
connections:
  lake: {type: delta, path: lake}
"""
APPENDING = "tables: {t: {from: app:t, to: lake, mode: append, cursor: {column: id}}}\n"
USER_FILE = "connections: {app: {type: sqlite, path: app.db}}\n"
PASSWORD = "p1@nted/pw%25 'ü"


def read(flow: Flow) -> list[Row]:
    return sorted(delta_rows(flow.folder / "lake" / "t", ["id"]))


@pytest.mark.full
def test_where_a_connection_comes_from_does_not_matter_to_its_tables(tmp_path: Path) -> None:
    flow = Flow(tmp_path)
    database = tmp_path / "app.db"
    sqlite_script(database, "CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t VALUES (1)")
    (tmp_path / "mine.yaml").write_text(USER_FILE)
    flow.write(HEAD + APPENDING)
    flow.apply("--connection", "app=sqlite:app.db")
    sqlite_script(database, "INSERT INTO t VALUES (2)")
    flow.apply(env={"FLOWCTL_CONN_APP": "{type: sqlite, path: app.db}"})
    sqlite_script(database, "INSERT INTO t VALUES (3)")
    flow.apply(env={"FLOWCTL_CONNECTIONS": "mine.yaml"})
    sqlite_script(database, "INSERT INTO t VALUES (4)")
    flow.write(HEAD + "  app: {type: sqlite, path: app.db}\n" + APPENDING)
    flow.apply()
    assert read(flow) == [(1,), (2,), (3,), (4,)]


@pytest.mark.full
def test_a_saved_plan_is_refused_with_another_connection(tmp_path: Path) -> None:
    flow = Flow(tmp_path)
    for name in ("app.db", "other.db"):
        sqlite_script(tmp_path / name, "CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t VALUES (1)")
    flow.write(HEAD + APPENDING)
    flow.run("plan", "flow.yaml", "--out", "plan.json", "--connection", "app=sqlite:app.db", expect=0)
    refused = flow.run("apply", "flow.yaml", "--plan", "plan.json", "--connection", "app=sqlite:other.db", expect=1)
    assert "the saved plan is stale: the spec (or a variable, or a connection) has changed" in refused.words
    flow.run("apply", "flow.yaml", "--plan", "plan.json", env={"FLOWCTL_CONN_APP": "sqlite:app.db"}, expect=0)
    assert read(flow) == [(1,)]


@pytest.fixture
def url(postgres_database: str) -> Iterator[str]:
    """Of a user whose password is planted, and who may read one table."""
    import psycopg
    from psycopg import sql

    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
        connection.execute("INSERT INTO t VALUES (1), (2)")
        connection.execute(sql.SQL("CREATE ROLE given LOGIN PASSWORD {}").format(sql.Literal(PASSWORD)))
        connection.execute("GRANT SELECT ON t TO given")
    yield f"postgresql://given:{quote(PASSWORD, safe='')}@{postgres_database.rpartition('@')[2]}"
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("DROP OWNED BY given")
        connection.execute("DROP ROLE given")


def test_a_password_given_inline_is_used_and_never_shown_or_stored(tmp_path: Path, url: str) -> None:
    flow = Flow(tmp_path)
    flow.write(HEAD + "tables: {t: {from: app:public.t, to: lake, mode: merge, key: [id]}}\n")
    given, wrong = ("--connection", f"app={url}"), ("--connection", f"app={url.replace('given:', 'nobody:')}")
    shown = [
        flow.run("plan", "flow.yaml", *given, "--out", "plan.json", "--verbose", expect=0),
        flow.run("apply", "flow.yaml", "--plan", "plan.json", "--verbose", expect=0, env={"FLOWCTL_CONN_APP": url}),
        flow.run("plan", "flow.yaml", *given, "--format", "json", expect=0),
        flow.run("doctor", "flow.yaml", *given, expect=0),
        flow.run("runs", "flow.yaml", *given, "--format", "json", expect=0),
        flow.run("state", "show", "flow.yaml", "t", *given, "--format", "json", expect=0),
        flow.run("apply", "flow.yaml", *wrong, "--verbose", "--log-format", "json"),
    ]
    assert read(flow) == [(1,), (2,)]
    assert shown[-1].code == 4 and "--connection app=…" in shown[-1].words
    stored = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(stored) > 5
    for form in ("p1@nted", quote("p1@nted")):
        assert not any(form in done.out + done.err for done in shown)
        assert not any(form.encode() in data for data in stored)
