"""Tables of a stream that do not go with the others: unselected, stopped, removed, published anew, read again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.e2e.flows import Flow
from tests.e2e.streams.flow import flush, named_there, write_flow
from tests.e2e.streams.sources import database_of
from tests.e2e.streams.targets import DeltaPlace, must_be_history, must_equal

pytestmark = pytest.mark.server

TABLES = ("one", "two", "three")
SCHEMA = """
    CREATE TABLE one (id int PRIMARY KEY, value text);
    CREATE TABLE two (id int PRIMARY KEY, value text);
    CREATE TABLE three (id int PRIMARY KEY, value text);
"""
ONE, TWO, THREE = (f'  {name}: {{from: "cdc:public.{name}", to: "lake:{name}", mode: merge}}\n' for name in TABLES)


def execute(url: str, *statements: str) -> None:
    database_of(url).run(*(one for statement in statements for one in statement.split(";") if one.strip()))
    flush(url)


def insert(url: str, number: int, tables: Sequence[str] = TABLES) -> None:
    execute(url, *(f"INSERT INTO {table} VALUES ({number}, 'row {number}')" for table in tables))


def begun(folder: Path, url: str, tables: str = ONE + TWO + THREE, stream: str = "batch: {rows: 400}") -> Flow:
    execute(url, SCHEMA)
    insert(url, 1)
    flow = write_flow(folder, url, [], tables, stream)
    flow.apply()
    return flow


def must_have_all(url: str, folder: Path, tables: Sequence[str] = TABLES) -> None:
    must_equal(url, DeltaPlace(folder / "lake"), tables)


def apart(flow: Flow) -> dict[str, int]:
    found: dict[str, int] = flow.run("state", "list", "flow.yaml", "--format", "json").json()["streams"]["cdc"][
        "stream"
    ]["apart"]
    return found


def serial(flow: Flow) -> str:
    """Of the newest version of the stream's state."""
    done = flow.run("state", "history", "flow.yaml", "--stream", "cdc", "--format", "json", expect=0)
    return str(done.json()["versions"][0]["serial"])


def steps(flow: Flow) -> dict[str, Any]:
    plan = flow.run("plan", "flow.yaml", "--format", "json").json()
    return {step["id"]: step for stream in plan["streams"] for step in stream["steps"]}


@pytest.mark.full
def test_unselected_tables_catch_up(tmp_path: Path, source_url: str) -> None:
    flow = begun(tmp_path, source_url)
    insert(source_url, 2)
    flow.run("apply", "flow.yaml", "--select", "one", expect=0)
    assert sorted(apart(flow)) == ["three", "two"]
    insert(source_url, 3)
    flow.run("apply", "flow.yaml", "--select", "one", "--select", "two", expect=0)
    assert sorted(apart(flow)) == ["three"]
    insert(source_url, 4)
    flow.apply()
    assert apart(flow) == {}
    must_have_all(source_url, tmp_path)


@pytest.mark.full
def test_a_key_that_includes_another_column(tmp_path: Path, postgres_database: str) -> None:
    """The included column changes: it is no part of the key by which the target's row is found."""
    execute(postgres_database, "CREATE TABLE one (id int, value text, PRIMARY KEY (id) INCLUDE (value))")
    insert(postgres_database, 1, ["one"])
    insert(postgres_database, 2, ["one"])
    flow = write_flow(tmp_path, postgres_database, [], ONE)
    flow.apply()
    execute(postgres_database, "UPDATE one SET value = 'new' WHERE id = 1", "DELETE FROM one WHERE id = 2")
    flow.apply()
    must_have_all(postgres_database, tmp_path, ["one"])


@pytest.mark.full
def test_another_replica_identity_for_a_while(tmp_path: Path, postgres_database: str) -> None:
    """Meanwhile the log does not tell which row had another key. Rows that were only inserted are as they are."""
    execute(postgres_database, "CREATE TABLE one (id int PRIMARY KEY, value text NOT NULL UNIQUE)")
    insert(postgres_database, 1, ["one"])
    flow = write_flow(tmp_path, postgres_database, [], ONE.replace("merge", "merge, key: [id]"))
    flow.apply()
    other = "ALTER TABLE one REPLICA IDENTITY USING INDEX one_value_key"
    back = "ALTER TABLE one REPLICA IDENTITY DEFAULT"
    execute(postgres_database, other, "INSERT INTO one VALUES (2, 'two')", back, "UPDATE one SET id = 3 WHERE id = 2")
    flow.apply()
    must_have_all(postgres_database, tmp_path, ["one"])
    execute(postgres_database, other, "UPDATE one SET id = 4 WHERE id = 3", back)
    done = flow.run("apply", "flow.yaml", expect=6)
    assert "rows of cdc:public.one changed while its replica identity was one without id" in done.words
    flow.run("state", "resnapshot", "flow.yaml", "one", "--yes", expect=0)
    flow.apply()
    must_have_all(postgres_database, tmp_path, ["one"])


@pytest.mark.full
def test_a_stopped_table_holds_the_others(tmp_path: Path, postgres_database: str) -> None:
    flow = begun(tmp_path, postgres_database)
    insert(postgres_database, 2)
    execute(postgres_database, "ALTER TABLE two REPLICA IDENTITY NOTHING")
    done = flow.run("apply", "flow.yaml", expect=6)
    assert "public.two has no replica identity" in done.words
    assert "waits for two (on_table_error: stop)" in done.words
    place = DeltaPlace(tmp_path / "lake")
    assert [len(place.rows(table, ["id"])) for table in TABLES] == [1, 1, 1]
    with psycopg.connect(postgres_database) as connection:  # what was captured is not kept by the server
        (lag,) = connection.execute(
            "SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), confirmed_flush_lsn)::bigint FROM pg_replication_slots"
            " WHERE database = current_database()"
        ).fetchone() or (None,)
    assert lag is not None and lag < 100_000
    execute(postgres_database, "ALTER TABLE two REPLICA IDENTITY DEFAULT")
    insert(postgres_database, 3)
    flow.apply()
    must_have_all(postgres_database, tmp_path)


@pytest.mark.full
def test_a_detached_table_catches_up(tmp_path: Path, postgres_database: str) -> None:
    flow = begun(tmp_path, postgres_database, stream="on_table_error: detach, batch: {rows: 1}")
    insert(postgres_database, 2)
    execute(postgres_database, "ALTER TABLE two REPLICA IDENTITY NOTHING")
    flow.run("apply", "flow.yaml", expect=6)
    must_have_all(postgres_database, tmp_path, ["one", "three"])
    insert(postgres_database, 3, ["one", "three"])
    flow.run("apply", "flow.yaml", expect=6)
    execute(postgres_database, "ALTER TABLE two REPLICA IDENTITY DEFAULT")
    insert(postgres_database, 4)
    flow.apply()
    must_have_all(postgres_database, tmp_path)
    assert apart(flow) == {}


@pytest.mark.full
def test_a_removed_table_returns(tmp_path: Path, source_url: str) -> None:
    flow = begun(tmp_path, source_url)
    whole = flow.spec.read_text()
    flow.write(whole.replace(named_there(source_url, TWO), ""))
    insert(source_url, 2)
    assert "two" in flow.apply().words  # shown as removed
    insert(source_url, 3)
    flow.apply()
    flow.write(whole)
    assert steps(flow)["two"]["reason"].startswith("read again")
    flow.apply()
    must_have_all(source_url, tmp_path)


@pytest.mark.parametrize(
    "change",
    ["table", "publication", "recreated"],
)
@pytest.mark.full
def test_changes_that_were_not_published_are_not_missed(change: str, tmp_path: Path, postgres_database: str) -> None:
    """A table that was taken out of its publication, or a publication that was made again: the stream has none of the
    changes in between, and the table is read again."""
    flow = begun(tmp_path, postgres_database)
    insert(postgres_database, 2)
    flow.apply()
    name = "flowctl_shop_cdc"
    match change:
        case "table":
            execute(postgres_database, f"ALTER PUBLICATION {name} DROP TABLE two")
            insert(postgres_database, 3)
            execute(postgres_database, f"ALTER PUBLICATION {name} ADD TABLE two")
        case "publication":
            execute(postgres_database, f"DROP PUBLICATION {name}")
            insert(postgres_database, 3)
            execute(
                postgres_database,
                f"CREATE PUBLICATION {name} FOR TABLE one, two, three WITH (publish_via_partition_root = true)",
            )
        case _:
            execute(postgres_database, "DROP TABLE two", "CREATE TABLE two (id int PRIMARY KEY, value text)")
            insert(postgres_database, 3)
    insert(postgres_database, 4)
    again = "cdc" if change == "publication" else "two"
    done = flow.run("apply", "flow.yaml", expect=6)
    assert f"flowctl state resnapshot flow.yaml {again}" in done.words
    flow.run("state", "resnapshot", "flow.yaml", again, "--yes", expect=0)
    flow.apply()
    must_have_all(postgres_database, tmp_path)
    insert(postgres_database, 5)
    flow.apply()
    must_have_all(postgres_database, tmp_path)


@pytest.mark.full
def test_a_schema_that_was_not_published_meanwhile(tmp_path: Path, postgres_database: str) -> None:
    execute(
        postgres_database,
        *(f"CREATE TABLE {name} (id int PRIMARY KEY, value text)" for name in TABLES),
        "CREATE PUBLICATION ours FOR TABLES IN SCHEMA public WITH (publish_via_partition_root = true)",
    )
    stream = "publication: {name: ours, manage: false}"
    flow = write_flow(tmp_path, postgres_database, [], ONE, stream)
    flow.apply()
    execute(postgres_database, "ALTER PUBLICATION ours DROP TABLES IN SCHEMA public")
    insert(postgres_database, 2, ["one"])
    execute(postgres_database, "ALTER PUBLICATION ours ADD TABLES IN SCHEMA public")
    done = flow.run("apply", "flow.yaml", expect=6)
    assert "flowctl state resnapshot flow.yaml one" in done.words
    flow.run("state", "resnapshot", "flow.yaml", "one", "--yes", expect=0)
    flow.apply()
    must_have_all(postgres_database, tmp_path, ["one"])


@pytest.mark.full
def test_a_whole_stream_is_read_again(tmp_path: Path, postgres_database: str) -> None:
    log = '  log: {from: "cdc:public.one", to: "lake:log", mode: append}\n'
    flow = begun(tmp_path, postgres_database, ONE + TWO + THREE + log)
    insert(postgres_database, 2)
    flow.apply()
    execute(postgres_database, "SELECT pg_drop_replication_slot('flowctl_shop_cdc')")
    execute(postgres_database, "DELETE FROM one WHERE id = 1")
    insert(postgres_database, 3)
    done = flow.run("apply", "flow.yaml", expect=6)
    assert "the position is lost: the slot flowctl_shop_cdc is gone" in done.words
    assert "flowctl state resnapshot flow.yaml cdc" in done.words
    flow.run("state", "resnapshot", "flow.yaml", "cdc", "--yes", expect=0)
    done = flow.run("apply", "flow.yaml", expect=6)
    assert "its rows would be appended again" in done.words  # the others have gone on
    must_have_all(postgres_database, tmp_path)
    flow.run("state", "resnapshot", "flow.yaml", "log", "--append-again", "--yes", expect=0)
    insert(postgres_database, 4)
    flow.apply()
    must_have_all(postgres_database, tmp_path)
    rows = DeltaPlace(tmp_path / "lake").rows("log", ["_op", "id"])
    assert sorted(rows) == [("I", "2"), ("R", "1"), ("R", "2"), ("R", "3"), ("R", "4")]


@pytest.mark.full
def test_a_table_takes_changes_again(tmp_path: Path, source_url: str) -> None:
    log = '  log: {from: "cdc:public.one", to: "lake:log", mode: append}\n'
    flow = begun(tmp_path, source_url, ONE + TWO + THREE + log)
    first = serial(flow)
    for number in (2, 3, 4):
        insert(source_url, number)
        flow.apply()
    flow.run("state", "set", "flow.yaml", "two", "--batch", "1", "--yes", expect=0)
    assert apart(flow) == {"two": 1}
    assert "it would get these changes twice" in flow.run("state", "set", "flow.yaml", "log", "--batch", "1").words
    done = flow.run("state", "rollback", "flow.yaml", "--stream", "cdc", "--to", first, "--yes", expect=64)
    assert "log appends: it would get these changes twice" in done.words
    assert "`flowctl state set flow.yaml ID --batch N`" in done.words
    assert "its position is a batch" in flow.run("state", "set", "flow.yaml", "two", "--position", "beginning").words
    assert "2 changes waiting" in steps(flow)["two"]["reason"]
    flow.apply()
    assert apart(flow) == {}
    must_have_all(source_url, tmp_path)


@pytest.mark.full
def test_a_history_takes_changes_again_if_they_have_all_values(tmp_path: Path, source_url: str) -> None:
    """PostgreSQL leaves out long ones that are unchanged, and only the current version has them here."""
    flow = begun(tmp_path, source_url, '  history: {from: "cdc:public.one", to: "lake:history", mode: scd2}\n')
    first = serial(flow)
    execute(source_url, "UPDATE one SET value = 'second'")
    flow.apply()
    back = ("state", "set", "flow.yaml", "history", "--batch", "0", "--yes")
    if source_url.startswith("postgres"):
        done = flow.run(*back, expect=64)
        assert "may not have sent long values that were unchanged, of value" in done.words
        done = flow.run("state", "rollback", "flow.yaml", "--stream", "cdc", "--to", first, "--yes", expect=64)
        assert "may not have sent long values" in done.words
        flow.run("state", "set", "flow.yaml", "history", "--accept-definition", "--yes", expect=0)
        assert "may not have sent long values" in flow.run(*back, expect=64).words  # nothing is recorded now
    else:
        flow.run(*back, expect=0)
        flow.apply()
    must_be_history(source_url, DeltaPlace(tmp_path / "lake"), "one", "history", ["id"])


@pytest.mark.full
def test_applied_batches_are_removed_when_they_are_old_enough(tmp_path: Path, source_url: str) -> None:
    flow = begun(tmp_path, source_url, stream="buffer: {keep: 0s}")
    for number in (2, 3, 4):
        insert(source_url, number)
        flow.apply()
    landed = tmp_path / "state" / "shop" / "streams" / "cdc"
    assert [path.name for path in (landed / "landed").iterdir()] == ["3.json"]
    assert len(list((landed / "segments").iterdir())) == 1
    must_have_all(source_url, tmp_path)
    insert(source_url, 5)
    flow.run("apply", "flow.yaml", "--select", "one", "--select", "two", expect=0)  # the third needs what comes now
    insert(source_url, 6)
    flow.run("apply", "flow.yaml", "--select", "one", "--select", "two", expect=0)
    flow.apply()
    must_have_all(source_url, tmp_path)


def test_a_cut_shows_one_moment(tmp_path: Path, source_url: str) -> None:
    flow = begun(tmp_path, source_url)
    insert(source_url, 2)
    flow.apply()
    insert(source_url, 3, ["one"])
    flow.apply()
    shown = flow.run("cuts", "flow.yaml", "cdc", "--limit", "2", "--format", "json", expect=0).json()
    counts = []
    for cut in shown["cuts"]:
        versions = {one["id"]: one["version"] for one in cut["tables"]}
        counts.append(
            {id: DeltaTable(str(tmp_path / "lake" / id), version).count() for id, version in versions.items()}
        )
    assert counts == [{"one": 3, "two": 2, "three": 2}, {"one": 2, "two": 2, "three": 2}]
    text = flow.run("cuts", "flow.yaml", "cdc", expect=0).out
    assert "VERSION AS OF" in text and "ATTACH '" in text
    assert json.loads(json.dumps(shown))["stream"] == "cdc"


@pytest.mark.full
def test_a_stream_without_snapshots(tmp_path: Path, source_url: str) -> None:
    execute(source_url, SCHEMA)
    insert(source_url, 1)
    flow = write_flow(tmp_path, source_url, [], ONE + TWO, "snapshot: never")
    flow.apply()
    insert(source_url, 2)
    flow.apply()
    flow.write(flow.spec.read_text() + named_there(source_url, THREE))
    flow.apply()
    insert(source_url, 3)
    flow.apply()
    place = DeltaPlace(tmp_path / "lake")
    found = {table: [id for (id,) in place.rows(table, ["id"])] for table in TABLES}
    assert found == {"one": ["2", "3"], "two": ["2", "3"], "three": ["3"]}
    flow.run("apply", "flow.yaml", "--full-refresh", "one", expect=0)
    must_have_all(source_url, tmp_path, ["one"])


@pytest.mark.full
@pytest.mark.parametrize("point", ["segment_written", "landed", "acknowledged"])
def test_a_killed_capture_repeats_one_batch_at_most(point: str, tmp_path: Path, source_url: str) -> None:
    flow = begun(tmp_path, source_url, ONE, "batch: {rows: 100}")
    execute(source_url, *(f"INSERT INTO one VALUES ({number}, 'x')" for number in range(1000, 1550)))
    folder = tmp_path / "state" / "shop" / "streams" / "cdc"
    flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=-9)
    landed = [json.loads(file.read_text()) for file in (folder / "landed").iterdir()]
    named = {segment["name"] for batch in landed for segment in batch["segments"]}
    orphans = [file for file in (folder / "segments").iterdir() if file.name not in named]
    assert sum(pq.read_metadata(file).num_rows for file in orphans) <= 100
    flow.apply()
    landed = [json.loads(file.read_text()) for file in (folder / "landed").iterdir()]
    changes = [table["changes"] for batch in landed for table in batch["tables"]]
    assert sum(changes) == 550 and max(changes) <= 100
    must_have_all(source_url, tmp_path, ["one"])
