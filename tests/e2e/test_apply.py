"""apply as a user meets it: a second run, two at once, a broken table beside healthy ones, saved plans, signals."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.flows import Flow, postgres_rows, sqlite_rows, sqlite_script, wait_until_stopped

pytestmark = pytest.mark.server

ORDERS = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT, amount DECIMAL(12,2), updated_at TIMESTAMP NOT NULL);
INSERT INTO orders VALUES (1, 'first', '1.10', '2026-01-01 00:00:00'), (2, NULL, '2.20', '2026-01-02 00:00:00');
CREATE TABLE lines (id INTEGER PRIMARY KEY, order_id INTEGER);
INSERT INTO lines VALUES (1, 1), (2, 1), (3, 2);
"""
HEAD = """
version: 1
flow: shop
state: state
spark: {url: "local[2]"}
connections:
  src: {type: sqlite, path: source.db}
  dst: {type: sqlite, path: target.db}
tables:
"""
#: The same with an engine that starts in no time, for what no engine has to do with.
ON_SAIL = HEAD.replace("local[2]", "sail")
#: flowctl that waits 8 s for a lock of SQLite, not 30: whoever reads and commits beside another waits in vain.
IMPATIENT = """
import sys
from flowctl.cli.main import run
from flowctl.connectors.sql import timeouts
timeouts.FILE_LOCK = 8.0
sys.exit(run(sys.argv[1:]))
"""
MERGED = HEAD + "  orders: {from: src:orders, to: dst:orders, mode: merge, key: [id], cursor: {column: updated_at}}\n"


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    folder = tmp_path / "a folder with spaces"
    folder.mkdir()
    sqlite_script(folder / "source.db", ORDERS)
    return Flow(folder)


def target(flow: Flow, query: str) -> list[tuple[object, ...]]:
    return sqlite_rows(flow.folder / "target.db", query)


def test_a_second_run_finds_nothing_to_do_and_starts_no_jvm(flow: Flow) -> None:
    flow.write(MERGED)
    assert flow.plan()["lineage"] == ""  # nobody has one yet
    flow.apply(expect=0)
    again = flow.apply(expect=0, env={"JAVA_HOME": "/nonexistent", "PATH": "/nonexistent"})
    assert "up to date" in again.out
    assert target(flow, "SELECT id, note, amount FROM orders") == [(1, "first", "1.10"), (2, None, "2.20")]

    history = flow.run("runs", "flow.yaml", "--format", "json", expect=0).json()
    assert len(history["runs"]) == 2
    [(recorded,)] = target(flow, "SELECT DISTINCT lineage FROM _flowctl_commits")
    state = flow.run("state", "list", "flow.yaml", "--format", "json", expect=0).json()
    assert {run["lineage"] for run in history["runs"]} == {state["lineage"]} == {recorded}


def test_two_at_once_one_runs_and_one_says_who_holds_the_lease(flow: Flow) -> None:
    """Whoever gets the lease is suspended before its commit until the other one has ended."""
    flow.write(MERGED.replace(HEAD, ON_SAIL))
    stopped_at = {"FLOWCTL_CRASH_AT": "before_commit", "FLOWCTL_CRASH_WITH": "SIGSTOP"}
    both = [flow.start("apply", "flow.yaml", env=stopped_at) for _ in range(2)]
    until = time.monotonic() + 120
    while not (ended := [process for process in both if process.poll() is not None]):
        assert time.monotonic() < until
        time.sleep(0.05)
    (loser,) = ended
    (winner,) = set(both) - {loser}
    out, err = loser.communicate()
    assert loser.returncode == 5, out + err
    assert f"process {winner.pid} on " in err
    wait_until_stopped(winner)
    winner.send_signal(signal.SIGCONT)
    out, err = winner.communicate(timeout=300)
    assert winner.returncode == 0, out + err
    assert len(target(flow, "SELECT id FROM orders")) == 2


def test_a_broken_table_stops_its_dependents_and_nobody_else(flow: Flow) -> None:
    sqlite_script(flow.folder / "source.db", "CREATE TABLE bad (n INTEGER); INSERT INTO bad VALUES ('no number')")
    flow.write(
        HEAD
        + """
  bad: {from: src:bad, to: dst:bad, mode: truncate}
  orders: {from: src:orders, to: dst:orders, mode: truncate}
  after_bad: {from: {sql: "SELECT n FROM {{ ref('bad') }}"}, to: dst:after_bad, mode: truncate}
  totals:
    from: {sql: "SELECT count(*) AS orders, sum(amount) AS amount FROM {{ ref('orders') }}"}
    to: dst:totals
    mode: truncate
"""
    )
    done = flow.apply(expect=4)
    assert "bad" in done.err and "rowid 1" in done.err and "flow.yaml:" in done.err
    assert target(flow, "SELECT * FROM totals") == [(2, "3.30")]
    record = flow.run("runs", "flow.yaml", "--format", "json", expect=0).json()["runs"][0]
    detail = flow.run("runs", "flow.yaml", record["id"], "--format", "json", expect=0).json()
    assert {table["id"]: table["outcome"] for table in detail["tables"]} == {
        "bad": "failed",
        "after_bad": "skipped",
        "orders": "committed",
        "totals": "committed",
    }
    # Nothing was written for the failed ones: the next plan is an ordinary one.
    assert flow.actions()["bad"] == "create"


def test_expectations_quarantine_and_guards(flow: Flow) -> None:
    flow.write(
        ON_SAIL
        + """
  strict: {from: src:orders, to: dst:strict, mode: truncate, expect: [{column: note, not_null: true}]}
  sieved:
    from: src:orders
    to: dst:sieved
    mode: merge
    key: [id]
    cursor: {column: updated_at}
    expect: [{column: note, not_null: true, on_fail: quarantine}, {rows: {min: 5}, on_fail: warn}]
  shrinking: {from: src:orders, to: dst:shrinking, mode: truncate, guard: {max_shrink: 10%}}
"""
    )
    first = flow.apply(expect=4)
    assert "note: not_null" in first.err and "at least 5 expected" in first.err
    assert target(flow, "SELECT id FROM sieved") == [(1,)]
    assert target(flow, "SELECT id, _reason, _seq FROM sieved__quarantine") == [("2", "note: not_null", 1)]
    assert target(flow, "SELECT name FROM sqlite_master WHERE name = 'strict'") in ([], [("strict",)])

    sqlite_script(flow.folder / "source.db", "DELETE FROM orders WHERE id = 2")
    second = flow.apply("--select", "shrinking", expect=6)
    assert "2 rows would become 1" in second.err
    assert len(target(flow, "SELECT id FROM shrinking")) == 2


def test_a_saved_plan_is_executed_as_it_is_or_refused(flow: Flow) -> None:
    flow.write(MERGED.replace(HEAD, ON_SAIL))
    flow.run("plan", "flow.yaml", "--out", "plan.json", expect=0)
    sqlite_script(flow.folder / "source.db", "INSERT INTO orders VALUES (3, 'late', '3', '2026-01-03 00:00:00')")
    flow.apply("--plan", "plan.json", expect=0)
    # A merge reads everything above its position in one snapshot, but records only what was planned.
    state = json.loads((flow.folder / "state/shop/state/2.json").read_text())
    assert state["tables"]["orders"]["position"]["value"].startswith("2026-01-02")
    stale = flow.apply("--plan", "plan.json", expect=1)
    assert "serial" in stale.err or "state" in stale.err
    flow.apply(expect=0)
    assert len(target(flow, "SELECT id FROM orders")) == 3

    sqlite_script(flow.folder / "source.db", "INSERT INTO orders VALUES (4, 'new', '4', '2026-01-04 00:00:00')")
    flow.run("plan", "flow.yaml", "--out", "plan.json", expect=0)
    sqlite_script(flow.folder / "source.db", "ALTER TABLE orders RENAME TO gone")
    stale = flow.apply("--plan", "plan.json", expect=1)
    assert "orders: the source src:orders is gone" in stale.err


@pytest.mark.parametrize(
    ("journal", "at_once"),
    [
        ("delete", "4"),
        *(pytest.param(*both, marks=pytest.mark.full) for both in (("delete", "1"), ("wal", "1"), ("wal", "4"))),
    ],
)
def test_one_sqlite_file_is_source_and_target(flow: Flow, journal: str, at_once: str) -> None:
    """Without WAL, SQLite lets nobody commit while somebody reads, not even the reader. Several tables at once may have
    to try again."""
    flow.program = ("-c", IMPATIENT)
    sqlite_script(flow.folder / "source.db", f"PRAGMA journal_mode = {journal}")
    modes = {
        "copied": "mode: truncate",
        "logged": "mode: append, cursor: {column: id}",
        "merged": "mode: merge, key: [id], deletes: {detect: missing_keys, action: hard}, guard: {max_deleted: 100%}",
        "kept": "mode: scd2, key: [id], scd2: {valid_from: updated_at}",
        "sieved": "mode: truncate, expect: [{column: note, not_null: true, on_fail: quarantine}]",
    }
    tables = [f"  {name}: {{from: src:orders, to: src:{name}, {rest}}}\n" for name, rest in modes.items()]
    flow.write(ON_SAIL + "".join(tables))
    flow.apply("--parallel", at_once)
    changes = "DELETE FROM orders WHERE id = 1; INSERT INTO orders VALUES (3, 'c', '3', '2026-01-03 00:00:00')"
    sqlite_script(flow.folder / "source.db", changes)
    done = flow.apply("--parallel", at_once)
    assert "try 1" not in done.err or at_once != "1"
    found = {name: sqlite_rows(flow.folder / "source.db", f"SELECT count(*) FROM {name}")[0][0] for name in modes}
    assert found == {"copied": 2, "logged": 3, "merged": 2, "kept": 3, "sieved": 1}


def test_sigterm_ends_the_run_in_order(flow: Flow) -> None:
    flow.write(MERGED)
    process = flow.start("apply", "flow.yaml")
    assert process.stderr is not None
    assert process.stderr.readline().startswith("run ")
    assert process.stderr.readline().startswith("orders: merge")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode in (0, 4), out + err
    assert "SIGTERM" in err
    # The lease was released: nobody has to wait for it.
    flow.write(MERGED.replace(HEAD, ON_SAIL))
    flow.apply(expect=0)
    assert len(target(flow, "SELECT id FROM orders")) == 2


def test_a_connection_that_lets_nobody_in_is_asked_once_for_all_its_tables_and_told_of_once(
    flow: Flow, postgres_database: str
) -> None:
    """A server that counts failed logins must not lock the account because a flow has many tables."""
    ((data,),) = postgres_rows(postgres_database, "SHOW data_directory")
    log = Path(str(data)).parent / "postgres.log"
    refused_before = log.read_text().count("password authentication failed")
    flow.write(
        HEAD.replace("src: {type: sqlite, path: source.db}", 'src: {type: postgres, url: "${secret:env:URL}"}')
        + "".join(f"  t{number}: {{from: src:public.t{number}, to: dst, mode: truncate}}\n" for number in range(20))
    )
    done = flow.apply(env={"URL": postgres_database.replace("etl-secret", "wrong")}, expect=4)
    assert done.out.count("password authentication failed") == 1 and "flow.yaml:7" in done.words
    assert "! 20 tables stopped" in done.words and "t0, t1, t10" in done.words
    assert log.read_text().count("password authentication failed") - refused_before == 1


@pytest.mark.full
def test_no_secret_reaches_any_output(flow: Flow, postgres_database: str) -> None:
    url = postgres_database.replace("etl-secret", "${secret:env:PG_PASSWORD}")
    flow.write(
        HEAD.replace("dst: {type: sqlite, path: target.db}", f'dst: {{type: postgres, url: "{url}"}}')
        + "  orders: {from: src:orders, to: dst:public.orders, mode: truncate}\n"
        + "  nothing: {from: dst:public.nothing, to: dst:public.copy, mode: truncate}\n"
    )
    env = {"PG_PASSWORD": "etl-secret"}
    outputs = [
        flow.run("plan", "flow.yaml", "--out", "plan.json", env=env),
        flow.apply("--verbose", env=env, expect=4),
    ]
    flow.write(flow.spec.read_text().replace("local[2]", "sail"))
    outputs += [
        flow.apply("--format", "json", "--log-format", "json", env=env, expect=4),
        flow.apply(env={"PG_PASSWORD": "wrong-secret"}, expect=4),
    ]
    texts = [done.out + done.err for done in outputs]
    texts += [file.read_text() for file in flow.folder.rglob("*.json")]
    assert not [text for text in texts if "etl-secret" in text or "wrong-secret" in text]
