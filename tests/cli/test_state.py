"""`flowctl state` and `flowctl runs`, as people and machines call them."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from flowctl.cli.main import run
from flowctl.connectors import registry
from flowctl.connectors.base import OpenContext
from flowctl.connectors.target import WriteJob
from flowctl.errors import ExitCode
from flowctl.model.commit import Commit
from flowctl.model.table_info import ObjectName
from flowctl.spec.load import load_spec
from flowctl.state import document as documents
from flowctl.state.document import StateDocument
from flowctl.state.lease import Lease
from flowctl.state.location import open_flow
from flowctl.state.runs import put_run
from flowctl.state.store import StateStore
from tests.state.examples import at, committed, intent
from tests.state.test_runs import record

SPEC = """
version: 1
flow: shop
state: state
connections:
  shop: {type: sqlite, path: shop.db}
  copy: {type: sqlite, path: copy.db}
defaults: {to: copy}
tables:
  events: {from: shop:lines, mode: append, cursor: {column: id}}
  orders: {from: shop:orders, mode: merge, key: [id], cursor: {column: id}}
  "raw_${table}": {from: "shop:*", exclude: [orders], mode: truncate}
"""


@dataclass
class Shop:
    """A flow with a state folder, a source and a target, and the command line over it."""

    folder: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def spec(self) -> str:
        return str(self.folder / "shop.yaml")

    @property
    def store(self) -> StateStore:
        return StateStore(open_flow(load_spec([self.spec], {})))

    def write(self, *changes: Callable[[StateDocument], StateDocument]) -> StateDocument:
        document = self.store.read()
        for change in changes:
            document = self.store.write(change(document))
        return document

    def flowctl(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        code = run(list(arguments))
        out, err = self.capsys.readouterr()
        return code, out, err

    def state(self, verb: str, *arguments: str) -> tuple[int, str, str]:
        return self.flowctl("state", verb, self.spec, *arguments)

    def json(self, *arguments: str) -> Any:
        code, out, _ = self.flowctl(*arguments, "--format", "json")
        assert code == ExitCode.OK
        return json.loads(out)


@pytest.fixture
def shop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Shop]:
    (tmp_path / "shop.yaml").write_text(SPEC)
    sql(
        tmp_path / "shop.db", "CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT); CREATE TABLE lines (id INTEGER)"
    )
    yield Shop(tmp_path, capsys)


def sql(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def two_days(document: StateDocument) -> StateDocument:
    return committed(document, "orders", 19)


def pending(document: StateDocument) -> StateDocument:
    return documents.with_intents(document, {"orders": intent(document.table("orders").next_seq, 21)})


def test_list_shows_numbers_positions_and_what_is_begun(shop: Shop) -> None:
    shop.write(two_days, lambda document: committed(document, "customers", 20), pending)
    code, out, _ = shop.state("list")
    assert code == ExitCode.OK
    assert out.splitlines()[0].startswith("shop  serial 3  lineage ")
    lines = [" ".join(line.split()) for line in out.splitlines()[1:]]
    assert lines == [
        "table sequence number position last run",
        "customers 1 2026-11-20 00:00 UTC 20261120T061533Z-1f0c9a",
        "orders 1 2026-11-19 00:00 UTC 2 begun by 20261120T061533Z-1f0c9a",
    ]


def test_what_show_says_of_a_position_can_be_set(shop: Shop) -> None:
    shop.write(two_days)
    shown = [" ".join(line.split()) for line in shop.state("show", "orders")[1].splitlines()]
    assert "position 2026-11-19 00:00 UTC" in shown and "schema id bigint, updated_at timestamp" in shown
    code, out, _ = shop.state("set", "orders", "--position", "2026-11-19 00:00 UTC")
    assert (code, out) == (ExitCode.OK, "Nothing to change.\n")


def test_show_is_the_json_of_one_table(shop: Shop) -> None:
    shop.write(two_days)
    shown = shop.json("state", "show", shop.spec, "orders")
    assert shown["table"]["position"] == {
        "kind": "cursor",
        "type": "timestamp[us, tz=UTC]",
        "value": "2026-11-19T00:00:00.000000Z",
    }


def test_an_unknown_table_is_a_usage_error_naming_the_known_ones(shop: Shop) -> None:
    shop.write(two_days)
    code, _, err = shop.state("show", "order")
    assert (code, "Choose one of orders" in err) == (ExitCode.USAGE, True)


def test_set_shows_the_change_and_writes_the_next_number(shop: Shop) -> None:
    before = shop.write(two_days, pending)
    code, out, err = shop.state("set", "orders", "--position", "2026-11-05", "--accept-definition", "--yes")
    assert (code, out) == (ExitCode.OK, "serial 2 → 3\n")
    assert err.splitlines() == [
        "~ orders",
        "    position            2026-11-19 00:00 UTC → 2026-11-05 00:00 UTC",
        "    definition          recorded → accepted",
        "    given up            to be finished → to be given up",
        "    accepted            the spec's definition"
        " (changed: columns, cursor, from, source_identity, source_system, to)",
    ]
    table = shop.store.read().table("orders")
    assert (table.seq, table.position, table.intent) == (1, at(5), before.table("orders").intent)


def test_a_change_is_asked_for_and_not_written_without_consent(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    before = shop.write(two_days)
    answers = shop.folder / "answers"
    answers.write_text("n\n")
    with answers.open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        code, _, err = shop.state("reset", "orders")
    assert code == ExitCode.BROKEN
    assert "Write this? [y/N]" in err
    assert shop.store.read() == before
    assert shop.state("reset", "orders", "--yes")[0] == ExitCode.OK, "the lease was released"


def test_nothing_to_change_writes_nothing(shop: Shop) -> None:
    before = shop.write(two_days)
    code, out, _ = shop.state("set", "orders", "--position", "2026-11-19", "--yes")
    assert (code, out) == (ExitCode.OK, "Nothing to change.\n")
    assert shop.store.read() == before


def test_set_without_anything_to_set_is_a_usage_error(shop: Shop) -> None:
    assert shop.state("set", "orders", "--yes")[0] == ExitCode.USAGE


def test_reset_forgets_and_rollback_brings_back_but_the_number_stays(shop: Shop) -> None:
    shop.write(two_days, lambda document: committed(document, "orders", 20))
    assert shop.state("reset", "orders", "--yes")[0] == ExitCode.OK
    assert shop.store.read().table("orders").forgotten
    changed = shop.json("state", "rollback", shop.spec, "--to", "1", "--yes")
    assert (changed["serial_before"], changed["serial"]) == (3, 4)
    assert {key: changed["changes"][0][key] for key in ("table", "field")} == {"table": "orders", "field": "position"}
    table = shop.store.read().table("orders")
    assert (table.seq, table.position) == (2, at(19))


def test_history_lists_the_kept_versions_and_what_each_changed(shop: Shop) -> None:
    shop.write(two_days, lambda document: committed(document, "customers", 20))
    shop.state("reset", "orders", "--yes")
    versions = shop.json("state", "history", shop.spec)["versions"]
    assert [(version["serial"], version["changed"]) for version in versions] == [
        (3, ["orders"]),
        (2, ["customers"]),
        (1, None),
    ]
    assert versions[0]["writer"].endswith(f"/{os.getpid()}")
    code, out, _ = shop.state("history", "--limit", "1")
    assert (code, len(out.splitlines())) == (ExitCode.OK, 2)


def test_changes_wait_for_nobody_who_holds_the_lease(shop: Shop) -> None:
    shop.write(two_days)
    with Lease.acquire(shop.store.blobs, run_id="run-7", ttl_seconds=600):
        code, _, err = shop.state("reset", "orders", "--yes")
        assert (code, "locked by run run-7" in err) == (ExitCode.LOCKED, True)
        assert shop.state("list")[0] == ExitCode.OK


def test_unlock_releases_a_held_lease(shop: Shop) -> None:
    holder = Lease.acquire(shop.store.blobs, run_id="run-7", ttl_seconds=600)
    code, out, err = shop.state("unlock", "--yes")
    assert (code, out) == (ExitCode.OK, "Released.\n")
    assert "held by run run-7" in err
    with Lease.acquire(shop.store.blobs, ttl_seconds=600):
        pass
    assert shop.state("unlock", "--yes")[:2] == (ExitCode.OK, "No run holds the lease.\n")
    holder.release()


def test_adopt_of_a_foreign_target_records_its_schema_and_the_given_position(shop: Shop) -> None:
    sql(
        shop.folder / "copy.db",
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO orders VALUES (7, 'x')",
    )
    code, out, err = shop.state("adopt", "orders", "--position", "7", "--yes")
    assert (code, out) == (ExitCode.OK, "serial 0 → 1\n"), err
    table = shop.json("state", "show", shop.spec, "orders")["table"]
    assert table["position"] == {"kind": "cursor", "type": "int64", "value": "7"}
    assert [column["name"] for column in table["target_columns"]] == ["id", "name"]
    assert (table["seq"], table["target_id"] != "") == (0, True)


def test_adopt_takes_the_number_that_the_target_carries(shop: Shop) -> None:
    document = shop.write(two_days)
    sql(shop.folder / "copy.db", "CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT)")
    commit = Commit(document.lineage, "orders", 5, "theirs", "", None, void=True)
    spec = load_spec([shop.spec], {})
    with registry.open(spec.connections["copy"], OpenContext(base_dir=str(shop.folder))) as copy:
        assert copy.target is not None
        copy.target.void(WriteJob(commit, ObjectName(("orders",)), "merge", columns=()))
    code, _, err = shop.state("adopt", "orders", "--yes")
    assert code == ExitCode.OK, err
    table = shop.store.read().table("orders")
    assert (table.seq, table.intent_id, table.position, table.next_seq) == (5, "theirs", at(19), 6)


def test_adopt_of_rows_that_append_would_double_wants_a_position(shop: Shop) -> None:
    sql(shop.folder / "copy.db", "CREATE TABLE events (id INTEGER)")
    code, _, err = shop.state("adopt", "events", "--yes")
    assert (code, "--position" in err) == (ExitCode.USAGE, True)
    assert shop.state("adopt", "events", "--position", "beginning", "--yes")[0] == ExitCode.OK


@pytest.mark.parametrize("position", ["full", '{"kind": "files", "files": []}'])
def test_a_position_of_another_kind_than_the_tables_own_is_refused(shop: Shop, position: str) -> None:
    """append would begin anew with it, and double what is there."""
    shop.write(lambda document: committed(document, "events", 19))
    sql(shop.folder / "copy.db", "CREATE TABLE events (id INTEGER)")
    before = shop.store.read()
    for verb in ("set", "adopt"):
        code, _, err = shop.state(verb, "events", "--position", position, "--yes")
        assert (code, "events is read by its cursor" in err) == (ExitCode.USAGE, True), verb
    assert shop.store.read() == before


def test_adopt_of_a_target_filled_from_files_takes_those_that_are_there_for_read(shop: Shop) -> None:
    (shop.folder / "inbox").mkdir()
    (shop.folder / "inbox" / "a.csv").write_text("id\n1\n")
    spec = SPEC.replace("connections:\n", "connections:\n  inbox: {type: files, path: inbox}\n")
    (shop.folder / "shop.yaml").write_text(spec + '  lists: {from: "inbox:*.csv", mode: append}\n')
    sql(shop.folder / "copy.db", "CREATE TABLE lists (id TEXT)")
    code, _, err = shop.state("adopt", "lists", "--position", "full", "--yes")
    assert (code, "lists reads each file once" in err) == (ExitCode.USAGE, True)
    code, _, err = shop.state("adopt", "lists", "--yes")
    assert (code, "`now`" in err) == (ExitCode.USAGE, True)
    code, _, err = shop.state("adopt", "lists", "--position", "now", "--yes")
    assert code == ExitCode.OK, err
    ((path, _, _),) = shop.json("state", "show", shop.spec, "lists")["table"]["position"]["files"]
    assert path == "a.csv"
    plan = json.loads(shop.flowctl("plan", shop.spec, "--select", "lists", "--format", "json")[1])
    assert [(step["action"], step["reason"]) for step in plan["steps"]] == [("none", "no new files")]


def test_a_table_of_versions_takes_a_number_though_none_is_recorded(shop: Shop) -> None:
    for note in ("first", "second"):
        write_deltalake(shop.folder / "lake" / "notes", pa.table({"note": [note]}), mode="append")
    spec = SPEC.replace("connections:\n", "connections:\n  lake: {type: delta, path: lake}\n")
    (shop.folder / "shop.yaml").write_text(spec + "  notes: {from: lake:notes, mode: append}\n")
    sql(shop.folder / "copy.db", "CREATE TABLE notes (note TEXT)")
    code, _, err = shop.state("adopt", "notes", "--position", "newest", "--yes")
    assert (code, '{"kind": "version", "version": 12}' in err) == (ExitCode.USAGE, True), err
    assert shop.state("adopt", "notes", "--position", "1", "--yes")[0] == ExitCode.OK
    assert shop.state("reset", "notes", "--yes")[0] == ExitCode.OK
    assert shop.state("set", "notes", "--position", "0", "--yes")[0] == ExitCode.OK
    table = shop.json("state", "show", shop.spec, "notes")["table"]
    assert table["position"] == {"kind": "version", "version": 0}


def test_adopt_knows_the_tables_of_a_pattern(shop: Shop) -> None:
    sql(shop.folder / "copy.db", "CREATE TABLE raw_lines (id INTEGER)")
    code, _, err = shop.state("adopt", "raw_lines", "--position", "full", "--yes")
    assert code == ExitCode.OK, err
    assert shop.store.read().table("raw_lines").target_columns[0].name == "id"


def test_adopt_of_a_target_that_is_not_there_is_stopped(shop: Shop) -> None:
    code, _, err = shop.state("adopt", "orders", "--yes")
    assert (code, "does not exist" in err) == (ExitCode.STOPPED, True)


def test_runs_lists_and_shows_runs(shop: Shop) -> None:
    put_run(shop.store.blobs, record("20261119T061533Z-1f0c9a"))
    put_run(shop.store.blobs, record())
    code, out, _ = shop.flowctl("runs", shop.spec)
    assert code == ExitCode.OK
    first, *lines = (line.split() for line in out.splitlines())
    assert first == ["run", "started", "(UTC)", "seconds", "read", "written", "tables"]
    assert [line[0] for line in lines] == ["20261120T061533Z-1f0c9a", "20261119T061533Z-1f0c9a"]
    assert " ".join(lines[0][1:]) == "2026-11-20 06:15 7.0 5 3 1 failed, 1 skipped, 1 committed"
    code, out, _ = shop.flowctl("runs", shop.spec, record().id)
    assert "exit 4  serial 40 → 42" in out
    assert ["orders", "committed", "5", "3", "2.5"] in [line.split() for line in out.splitlines()]
    assert "! invoices failed: no such file (shop.yaml:9:3)\n    next step  Check the path" in out
    assert shop.json("runs", shop.spec, record().id) == record().to_json()
    assert shop.flowctl("runs", shop.spec, "nope")[0] == ExitCode.USAGE


def test_a_flow_that_never_ran_says_so(shop: Shop) -> None:
    assert shop.flowctl("state", "list", shop.spec)[:2] == (ExitCode.OK, "shop  never ran\n")
    assert shop.flowctl("runs", shop.spec)[:2] == (ExitCode.OK, "shop  no run is recorded yet\n")


@pytest.mark.parametrize("arguments", [["state", "list"], ["runs"]])
def test_reading_state_on_disk_loads_nothing_heavy(shop: Shop, arguments: list[str]) -> None:
    script = (
        "import sys; from flowctl.cli.main import run; "
        f"code = run({[*arguments, shop.spec]!r}); "
        "heavy = {'pyspark', 'pyarrow', 'fsspec', 'sqlglot', 's3fs'} & set(sys.modules); "
        "sys.exit(f'loaded {heavy}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == ExitCode.OK, done.stderr
