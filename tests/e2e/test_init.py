"""`flowctl init` as a new user runs it: `validate`, `plan` and `apply` take the file as it is."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from psycopg import sql

from flowctl.connectors.sqlite.source import SqliteSource
from flowctl.init.draft import InitOptions, propose
from flowctl.spec.load import load_spec
from tests.connectors.hostile_tables import SOURCES, before, plain
from tests.e2e.flows import Done, Flow, delta_rows, mysql_rows, sqlite_script
from tests.e2e.targets import Databases
from tests.init import chinook

PASSWORD = "pl@nted/pw"


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    return Flow(tmp_path)


def init(flow: Flow, *arguments: str, expect: int = 0) -> Done:
    """Always to `flow.yaml`."""
    return flow.run("init", *arguments, "--output", "flow.yaml", expect=expect)


def apply(flow: Flow) -> None:
    """The file as it is, which is for Sail; nothing stops after the first run either."""
    assert "spark: {url: sail}" in flow.spec.read_text()
    flow.run("validate", "flow.yaml", expect=0)
    flow.apply()  # which plans, and exits with 6 if a table is stopped
    assert "stop" not in flow.actions().values()


def modes(flow: Flow) -> dict[str, str]:
    return {table.id: table.mode for table in load_spec([flow.spec], {}).tables}


@pytest.mark.full
@pytest.mark.server
def test_chinook_in_sqlite(flow: Flow) -> None:
    sqlite_script(flow.folder / "chinook.db", chinook.sqlite_script())
    said = flow.run("init", "chinook.db", expect=0).words
    assert "chinook.yaml: 11 tables (11 truncate)" in said
    assert "Next: flowctl plan chinook.yaml" in said
    (flow.folder / "chinook.yaml").rename(flow.spec)
    apply(flow)
    counts = {name: len(delta_rows(flow.folder / "lake" / name, [])) for name in chinook.COUNTS}
    assert counts == chinook.COUNTS


def test_chinook_in_postgres(flow: Flow, url: str, postgres_database: str) -> None:
    """As a user whose password is nowhere but in the command and in a variable; into another database."""
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(chinook.postgres_script().encode())
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO given")
    done = init(flow, url, "--to", "sqlite:copy.db")
    (variable,) = [word for word in done.out.split() if word.endswith("_PASSWORD=…")]
    assert PASSWORD not in done.out + done.err + flow.spec.read_text()
    assert quote(PASSWORD, safe="") not in done.out + done.err + flow.spec.read_text()
    flow.env[variable.removesuffix("=…")] = PASSWORD
    apply(flow)
    for name, count in chinook.COUNTS.items():
        assert len(rows_of(flow.folder / "copy.db", chinook.postgres_name(name))) == count


@pytest.fixture
def url(postgres_database: str) -> Iterator[str]:
    """Of a user whose password has to be encoded."""
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE given LOGIN PASSWORD {}").format(sql.Literal(PASSWORD)))
    yield f"postgresql://given:{quote(PASSWORD, safe='')}@{postgres_database.rpartition('@')[2]}"
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("DROP OWNED BY given")
        connection.execute("DROP ROLE given")


@pytest.mark.full
def test_what_this_user_cannot_read_is_a_comment(flow: Flow, url: str, postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(RIGHTS)
    init(flow, url)
    flow.env |= dict.fromkeys(variables(flow), PASSWORD)
    assert modes(flow) == {"log": "append", "orders": "merge", "partly": "merge", "totals_of_orders": "truncate"}
    text = flow.spec.read_text()
    for left_out in (
        "this user may not use the schema hidden\n  # t: {from: ",
        "this user may not read it\n  # secret: {from: ",
        "has no columns. Give it one, or leave it out: `exclude: [nothing]` for a pattern\n  # nothing: {from: ",
        "# decide: left out, as this user may not read them: ssn\n  partly:",
        "# decide: views are read only if named; there are: public.v",
        "cursor updated_at: indexed, not null, newest 2.0 h old\n  orders: {from: ",
    ):
        assert left_out in text
    apply(flow)
    assert delta_rows(flow.folder / "lake" / "partly", ["id"]) == [(1,)]


RIGHTS = """
    CREATE SCHEMA hidden;
    CREATE TABLE hidden.t (id int);
    CREATE TABLE secret (id int PRIMARY KEY);
    CREATE TABLE nothing ();
    CREATE TABLE partly (id int PRIMARY KEY, ssn text, updated_at timestamptz NOT NULL);
    INSERT INTO partly VALUES (1, 'x', now());
    CREATE TABLE orders (id int PRIMARY KEY, updated_at timestamptz NOT NULL);
    CREATE INDEX ON orders (updated_at);
    INSERT INTO orders VALUES (1, now() - interval '2 hours');
    CREATE TABLE log (id bigserial PRIMARY KEY, what jsonb);
    CREATE MATERIALIZED VIEW totals_of_orders AS SELECT count(*) FROM orders;
    CREATE VIEW v AS SELECT * FROM orders;
    GRANT SELECT ON ALL TABLES IN SCHEMA public TO given;
    REVOKE SELECT ON secret, partly FROM given;
    GRANT SELECT (id, updated_at) ON partly TO given;
"""


@pytest.mark.full
@pytest.mark.server
def test_a_duckdb_file(flow: Flow) -> None:
    with duckdb.connect(flow.folder / "shop.duckdb") as connection:
        connection.execute(DUCKDB)
    init(flow, "shop.duckdb")
    assert modes(flow) == {"orders": "merge", "sales_orders": "merge", "lines": "truncate", "event_log": "append"}
    assert "cursor: {column: changed}" in flow.spec.read_text()
    apply(flow)
    assert delta_rows(flow.folder / "lake" / "orders", ["id"]) == [(1,)]


DUCKDB = """
    CREATE SCHEMA sales;
    CREATE SEQUENCE numbers;
    CREATE TABLE orders (id INTEGER PRIMARY KEY, updated_at TIMESTAMP NOT NULL, tags MAP(VARCHAR, INTEGER));
    INSERT INTO orders VALUES (1, '2026-01-01', MAP {'x': 1});
    CREATE TABLE sales.orders ("the code" VARCHAR NOT NULL UNIQUE, changed TIMESTAMPTZ);
    CREATE INDEX by_time ON sales.orders (changed);
    CREATE TABLE sales.lines (a HUGEINT);
    CREATE TABLE event_log (id BIGINT DEFAULT nextval('numbers'), what VARCHAR);
    CREATE VIEW v AS SELECT * FROM orders;
"""


@pytest.mark.full
def test_a_mysql_database(flow: Flow, mysql_database: str) -> None:
    """As a user who may not read all of it."""
    user, name = "given", mysql_database.rpartition("/")[2]
    mysql_rows(
        mysql_database, MYSQL.replace("{database}", name).replace("{user}", user).replace("{password}", PASSWORD)
    )
    there = urlsplit(mysql_database)
    url = f"mysql://{user}:{quote(PASSWORD, safe='')}@{there.hostname}:{there.port}/{name}"
    try:
        done = init(flow, url)
        assert PASSWORD not in done.out + flow.spec.read_text()
        assert modes(flow) == {"orders": "merge", "Event_Log": "append", "places": "truncate", "partly": "merge"}
        text = flow.spec.read_text()
        for expected in (
            "cursor updated_at: indexed, not null",
            "cursor no: numbered, indexed, not null, newest 1",
            "# decide: left out, as this user may not read them: ssn\n",
            "# decide: views are read only if named; there are: v",
        ):
            assert expected in text
        assert "secret:" not in text.replace("${secret:", "")  # what a user may not read is not listed there
        flow.env |= dict.fromkeys(variables(flow), PASSWORD)
        apply(flow)
        assert delta_rows(flow.folder / "lake" / "partly", ["id"]) == [(1,)]
    finally:
        mysql_rows(mysql_database, f"DROP USER {user}@'%'")


MYSQL = """
    CREATE TABLE orders (id INT UNSIGNED PRIMARY KEY, updated_at TIMESTAMP(3) NOT NULL, KEY (updated_at));
    INSERT INTO orders VALUES (1, NOW(3));
    CREATE TABLE "Event Log" (no BIGINT AUTO_INCREMENT PRIMARY KEY, what JSON);
    INSERT INTO "Event Log" VALUES (1, '{}');
    CREATE TABLE places (code VARCHAR(300), KEY prefix (code(10)));
    CREATE TABLE partly (id INT PRIMARY KEY, ssn TEXT, updated_at DATETIME NOT NULL);
    INSERT INTO partly VALUES (1, 'x', NOW());
    CREATE TABLE secret (id INT); CREATE VIEW v AS SELECT * FROM orders;
    CREATE USER {user}@'%' IDENTIFIED BY '{password}';
    GRANT SELECT ON {database}.orders TO {user}@'%'; GRANT SELECT ON {database}.v TO {user}@'%';
    GRANT SELECT ON {database}."Event Log" TO {user}@'%'; GRANT SELECT ON {database}.places TO {user}@'%';
    GRANT SELECT (id, updated_at), INSERT (ssn) ON {database}.partly TO {user}@'%';
"""


@pytest.mark.server
def test_a_folder_of_files(flow: Flow) -> None:
    write_files(flow.folder / "in")
    init(flow, "in")
    expected = {"customers": "truncate", "events": "append", "invoices": "append", "orders": "append"}
    assert modes(flow) == expected
    text = flow.spec.read_text()
    assert "the first rows fit format: {schema: {id: bigint, born: date}}" in text
    assert "broken.parquet cannot be read as parquet" in text
    apply(flow)
    counts = {name: len(delta_rows(flow.folder / "lake" / name, ["id"])) for name in expected}
    assert counts == {"customers": 2, "events": 4, "invoices": 2, "orders": 2}
    assert "partitions: {year: bigint, month: string}" in text
    days = delta_rows(flow.folder / "lake" / "events", ["id", "year", "month"])
    assert days == [(1, 2026, "01"), (1, 2026, "02"), (2, 2026, "01"), (2, 2026, "02")]
    note = delta_rows(flow.folder / "lake" / "orders", ["id", "note"])
    assert note == [("1", "a\nb"), ("2", "c")]


@pytest.mark.full
@pytest.mark.server
def test_a_second_spec_for_tables_that_were_written(flow: Flow) -> None:
    """What the flow has written is no source; its tables stay, and what has changed about them is a question."""
    write_files(flow.folder / "in")
    init(flow, "in")
    expected = modes(flow)
    apply(flow)
    (flow.folder / "in" / "new.csv").write_text("id\n1\n")
    init(flow, "in", "--force")
    assert modes(flow) == {**expected, "new": "truncate"}
    assert "the definition changed" not in flow.spec.read_text()
    apply(flow)
    init(flow, ".", "--force")
    assert modes(flow) == {**expected, "new": "truncate"}
    assert "# decide: the definition changed: from.connection: in" in flow.spec.read_text()


@pytest.mark.full
@pytest.mark.server
def test_json_lines(flow: Flow) -> None:
    write_files(flow.folder / "in")
    clicks = flow.folder / "in" / "clicks"
    clicks.mkdir()
    (clicks / "2026-01-01.jsonl").write_text('{"id": 1, "tags": ["a"], "by": {"id": 1}}\n{"id": 2, "f": 1.5}\n')
    (clicks / "2026-01-02.jsonl").write_text('{"id": 3, "f": 1}\n')
    init(flow, "in")
    apply(flow)
    rows = delta_rows(flow.folder / "lake" / "clicks", ["id", "tags", "by", "f"])
    assert rows == [(1, ["a"], '{"id":1}', None), (2, None, None, 1.5), (3, None, None, 1.0)]


def write_files(folder: Path) -> None:
    for month in ("01", "02"):
        part = folder / "events" / "year=2026" / f"month={month}"
        part.mkdir(parents=True)
        pq.write_table(pa.table({"id": [1, 2], "what": ["a", "b"]}), part / "part-0.parquet")
    (folder / "invoices").mkdir()
    for city in ("amsterdam", "utrecht"):
        (folder / "invoices" / f"{city}.csv").write_text("id,amount\n1,2.50\n")
    (folder / "customers.csv").write_text("id;name;born\n1;Ada;1815-12-10\n2;Edsger;1930-05-11\n")
    (folder / "orders_2026-01.csv").write_text('id,note\n1,"a\nb"\n')
    (folder / "orders_2026-02.csv").write_text("id,note\n2,c\n")
    (folder / "broken.parquet").write_text("nothing")
    (folder / "readme.txt").write_text("nothing")


@pytest.mark.parametrize(
    "source",
    [pytest.param(name, marks=[] if name == "postgres" else [pytest.mark.full]) for name in SOURCES],
)
@pytest.mark.server
def test_hostile_names(flow: Flow, databases: Databases, source: str) -> None:
    """Columns with names that the target refuses get others; all rows arrive."""
    given = SOURCES[source](databases, flow.folder)
    init(flow, given.address, *(["--select", "* 1?.csv"] if source == "files" else []))
    flow.env |= dict.fromkeys(variables(flow), urlsplit(given.address).password or "")
    tables = load_spec([flow.spec], {}).tables
    apply(flow)
    names = [name for name in given.names if name not in tables[0].columns.exclude]
    assert len(names) >= len(given.names) - 2
    written = [tables[0].columns.rename.get(name, name) for name in names]
    rows = [row for table in tables for row in delta_rows(flow.folder / "lake" / table.id, written)]
    wanted = [tuple(one[name] for name in names) for one in before(names)]
    assert plain(rows) == plain(wanted)


def variables(flow: Flow) -> list[str]:
    """The environment variables that the spec refers to."""
    return re.findall(r"\$\{secret:env:(\w+)\}", flow.spec.read_text())


def rows_of(database: Path, table: str) -> Sequence[object]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(f'SELECT * FROM "{table}"').fetchall()


# The command


def test_an_existing_file_is_kept(flow: Flow) -> None:
    sqlite_script(flow.folder / "a.db", "CREATE TABLE t (id INTEGER PRIMARY KEY)")
    flow.write("mine")
    refused = init(flow, "a.db", expect=64)
    assert "flow.yaml exists. Name another file with --output, or replace it with --force" in refused.words
    assert flow.spec.read_text() == "mine"
    init(flow, "a.db", "--force")
    assert modes(flow) == {"t": "truncate"}
    assert sorted(path.name for path in flow.folder.iterdir()) == ["a.db", "flow.yaml"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nothing.db"], 64, "nothing.db: there is no such file or folder"),
        (["empty.db"], 6, "there is no table to read. Name a view in a spec to read it; there are: v"),
        (["empty"], 6, "there is no table to read. Check the path. Formats are known by the names of files"),
        (["files", "--select", "a"], 64, "Name paths, as in 'orders/*'"),
        (["a.db", "--select", "z*"], 64, "no table matches --select and --exclude"),
        (["a.db", "--output", "missing/flow.yaml"], 64, "the folder missing does not exist"),
        (["postgresql://etl:pl@nted@127.0.0.1:1/db"], 4, "there is more than one @"),
        (["postgresql://etl:planted@127.0.0.1:1/db"], 4, "127.0.0.1:1"),
        (["a.db", "--to", "postgresql://etl:planted@127.0.0.1:1/db"], 4, "127.0.0.1:1"),
    ],
)
def test_what_cannot_be_done(flow: Flow, arguments: list[str], code: int, said: str) -> None:
    sqlite_script(flow.folder / "a.db", "CREATE TABLE t (id INTEGER PRIMARY KEY)")
    sqlite_script(flow.folder / "empty.db", "CREATE VIEW v AS SELECT 1 AS one")
    (flow.folder / "empty").mkdir()
    (flow.folder / "files").mkdir()
    (flow.folder / "files" / "a.csv").write_text("id\n1\n")
    refused = flow.run("init", *arguments, expect=code)
    assert said in refused.words
    assert "planted" not in refused.words
    assert not list(flow.folder.glob("*.yaml"))


def test_selected_tables(flow: Flow) -> None:
    sqlite_script(flow.folder / "a.db", "CREATE TABLE a1 (id); CREATE TABLE a2 (id); CREATE TABLE b (id)")
    init(flow, "a.db", "--select", "a*", "--exclude", "*2")
    assert modes(flow) == {"a1": "truncate"}


def test_the_result_as_json(flow: Flow) -> None:
    sqlite_script(flow.folder / "a.db", "CREATE TABLE t (id INTEGER PRIMARY KEY, updated_at TIMESTAMP NOT NULL)")
    assert json.loads(init(flow, "a.db", "--format", "json").out) == {
        "format": 1,
        "path": "flow.yaml",
        "flow": "flow",
        "variables": [],
        "tables": [
            {
                "id": "t",
                "object": "t",
                "mode": "merge",
                "key": ["id"],
                "cursor": "updated_at",
                "reason": "primary key id; cursor updated_at: not indexed, not null",
                "decide": [],
                "left_out": None,
            }
        ],
    }


def test_many_tables_take_as_many_queries_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    columns = "id INTEGER PRIMARY KEY, code TEXT NOT NULL UNIQUE, updated_at TIMESTAMP, created_at TIMESTAMP NOT NULL"
    sqlite_script(tmp_path / "a.db", "".join(f"CREATE TABLE t{number} ({columns});" for number in range(200)))
    asked: list[str] = []
    for name in ("discover", "describe", "details", "views", "high_watermarks"):
        monkeypatch.setattr(SqliteSource, name, _counted(getattr(SqliteSource, name), name, asked))
    proposal = propose(InitOptions("a.db"), lambda path: None)
    assert len(proposal.decisions) == 200
    assert sorted(asked) == [
        "describe",
        "describe",
        "details",
        "discover",
        "high_watermarks",
        "high_watermarks",
        "views",
    ]


def _counted(method: Callable[..., Any], name: str, asked: list[str]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        asked.append(name)
        return method(*arguments)

    return call
