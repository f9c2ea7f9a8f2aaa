"""What only a MySQL target has: two ways to load, DDL that ends a transaction, its own types, and other engines."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Sequence
from decimal import Decimal as Exact
from typing import Any

import pytest

from flowctl.connectors.mysql.client import client
from flowctl.connectors.mysql.session import MysqlSession
from flowctl.connectors.target import WriteShape
from flowctl.errors import FlowctlError, StateConflict, StoppedByPolicy, TableError, TransientError
from flowctl.model import types
from flowctl.model.mode import Mode
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column, ObjectName
from flowctl.spec.spec import Layout
from flowctl.storage.buffer import Buffer
from tests.connectors.mysql.conftest import Script
from tests.connectors.reading import describe
from tests.connectors.target_matrix import Place, opened
from tests.connectors.test_target_history import COLUMNS as HISTORY
from tests.connectors.test_target_history import seen
from tests.connectors.test_target_types import ALL
from tests.connectors.writing import COLUMNS, Writer, gone, row, upserts
from tests.e2e.flows import mysql_rows
from tests.services import mariadb

pytestmark = [pytest.mark.long_on_spark]


def typed_rows() -> tuple[list[Column], list[dict[str, Any]]]:
    """Every type's awkward values, and texts that look like what the two ways of loading are made of."""
    texts = [
        "\\",
        "\\N",
        "NULL",
        "a\tb\nc\rd",
        "'",
        "''",
        '"',
        "\\'; --",
        "%s \x1a\0",
        "x" * 3_000_000,
        " ",
        "\U0001f986",
    ]
    of_columns = {**ALL, "text": (types.STRING, texts), "bytes": (types.BINARY, [b"", b"\0\\\n'\xff", b"N" * 70_000])}
    columns = [Column("id", types.INT64), *(Column(name, kind) for name, (kind, _) in of_columns.items())]
    return columns, [
        {"id": at, **{name: values[at] if at < len(values) else None for name, (_, values) in of_columns.items()}}
        for at in range(len(texts) + 1)
    ]


def test_both_ways_load_the_same(writer: Writer, request: pytest.FixtureRequest) -> None:
    columns, rows = typed_rows()
    write = WriteShape(
        "append", tuple(columns), (), Layout(), creates=True, alters=False, replaces=False, rows=1, in_memory=True
    )
    said = writer.place.target.explain_write(writer.place.object, None, write, "sail", {})
    writer.write(rows, 1, columns=columns, in_memory=True)
    names = [column.name for column in columns]
    by_file = sorted(writer.place.read(names), key=lambda row: int(row[0]))
    request.getfixturevalue("takes_no_files")
    writer.write(rows, 2, "truncate", columns=columns, in_memory=True, replace=True)
    by_statements = sorted(writer.place.read(names), key=lambda row: int(row[0]))
    assert by_file == by_statements
    assert [row[names.index("text")] for row in by_file] == [row["text"] for row in rows]
    assert [row[names.index("bytes")] for row in by_file] == [row["bytes"] for row in rows]
    again = writer.place.target.explain_write(writer.place.object, None, write, "sail", {})
    assert (said, again) == ("", "loaded by multi-row INSERT, as the server's local_infile is off")


def test_a_file_that_ends_in_the_middle_loads_nothing(script: Script, mysql_database: str) -> None:
    script("CREATE TABLE t (i INT)")

    def content() -> Iterator[bytes]:
        yield b"1\n" * 100_000
        raise FlowctlError("the buffer is gone", hint="Look")

    there = client({"url": mysql_database})
    with pytest.raises(FlowctlError, match="the buffer is gone"), there.connect(sends_files=True) as connection:
        connection.send("LOAD DATA LOCAL INFILE 'rows' INTO TABLE t", content())
    assert script("SELECT count(*) FROM t") == [(0,)]


CHANGES = {
    "drop": SchemaChange("n", "dropped_column", types.INT32, None, "drop", "--full-refresh"),
    "widen": SchemaChange("n", "wider_type", types.INT32, types.INT64, "widen", "wider_type"),
    "retype": SchemaChange("n", "other_type", types.INT32, types.STRING, "retype", "--full-refresh"),
    "relax": SchemaChange("n", "nullable", types.INT32, types.INT32, "relax", "relax"),
    "add": SchemaChange("m", "new_column", None, types.DATE, "add", "new_column"),
}
INDEXED = ("in use by index i", "Drop index i, run, and recreate it")
CHECKED = ("in use by constraint p n", "Drop constraint p n, run, and recreate it")
ATTRIBUTES = ("it has a default, a comment or an attribute, which would be lost", "Change it with ALTER TABLE t MODIFY")


@pytest.mark.parametrize(
    ("made", "refused"),
    [
        ("n INT", {}),
        ("n INT NOT NULL", {}),
        ("n INT, KEY i (n, id)", {"drop": INDEXED, "retype": INDEXED}),
        ("n INT DEFAULT 7", {"widen": ATTRIBUTES, "relax": ATTRIBUTES}),
        ("n INT COMMENT 'it''s'", {"widen": ATTRIBUTES, "relax": ATTRIBUTES}),
        ("n INT NOT NULL AUTO_INCREMENT, KEY i (n)", {
            "drop": INDEXED, "retype": INDEXED, "widen": ATTRIBUTES, "relax": ATTRIBUTES
        }),
        ("n INT NOT NULL, PRIMARY KEY (n)", {
            "drop": ("in use by the primary key", "Drop the primary key, run, and recreate it"),
            "retype": ("in use by the primary key", "Drop the primary key, run, and recreate it"),
            "relax": ("may be null, and the primary key has it", "Drop the primary key: a UNIQUE key takes nulls"),
        }),
        ("n INT, `d n` INT AS (n * 2) VIRTUAL", {
            "drop": ("in use by the computed column d n", "Drop the computed column d n, run, and recreate it")
        }),
        ("n INT, CONSTRAINT `p n` CHECK (n > 0 OR id > 0)", {"drop": CHECKED, "retype": CHECKED}),
        ("n INT, CONSTRAINT `p n` CHECK (n > 0)", {"drop": CHECKED, "retype": CHECKED}),
    ],
)  # fmt: skip
@pytest.mark.full
def test_what_mysql_cannot_change_stops_the_plan(
    place: Place, script: Script, made: str, refused: dict[str, tuple[str, str]]
) -> None:
    """And what does not stop it, the server does."""
    for action, asked in CHANGES.items():
        script(f"DROP TABLE IF EXISTS t; CREATE TABLE t (id INT, {made})")
        info = describe(place.target, ObjectName(("t",)))
        (change,) = place.target.alter_statements(info, [asked])
        if action in refused:
            note, next_step = refused[action]
            assert (change.action, change.note, change.statement) == ("fail", note, ""), action
            assert change.next_step.startswith(next_step)
        else:
            assert (change.action, change.note) == (action, "")
            if change.statement:
                script(change.statement)


@pytest.mark.parametrize(
    ("native", "rest"),
    [("INT", ""), ("VARCHAR(9) CHARACTER SET latin1", ""), ("DATETIME(6)", "COMMENT 'timestamp in UTC'")],
)
@pytest.mark.full
def test_a_relaxed_column_keeps_what_it_is(place: Place, script: Script, native: str, rest: str) -> None:
    script(f"CREATE TABLE t (n {native} NOT NULL {rest})")
    info = describe(place.target, ObjectName(("t",)))
    (before,), shown = info.columns, script("SHOW CREATE TABLE t")[0][1]
    asked = SchemaChange("n", "nullable", before.type, before.type, "relax", "relax")
    (change,) = place.target.alter_statements(info, [asked])
    script(change.statement)
    (after,) = describe(place.target, ObjectName(("t",))).columns
    assert (after.type, after.native, after.nullable) == (before.type, before.native, True)
    assert script("SHOW CREATE TABLE t")[0][1] == shown.replace("NOT NULL", "DEFAULT NULL")


AT = dt.datetime(2026, 1, 1)
LIMITED = {
    "DATETIME(3)": (types.TIMESTAMP_NTZ, AT.replace(microsecond=1000), AT.replace(microsecond=1001)),
    "TIMESTAMP NULL": (types.TIMESTAMP, AT.replace(tzinfo=dt.UTC), AT.replace(tzinfo=dt.UTC, microsecond=500_000)),
    "TIME": (types.STRING, "-25:00:00", "25:00:00.5"),
    "CHAR(4)": (types.STRING, "a b", "a "),
    "VARCHAR(4)": (types.STRING, "abc ", "abcd "),
    "ENUM('large','a''b')": (types.STRING, "a'b", "LARGE"),
    "ENUM('no comment yet','seen')": (types.STRING, "no comment yet", "no comment YET"),
    "SET('large','a''b')": (types.STRING, "large,a'b", "a'b,large"),
    "SET('no comment yet','seen')": (types.STRING, "seen", "seen,seen"),
    "SET('a','b')": (types.STRING, "", "3"),
    "SET('x','y')": (types.STRING, "x,y", "X"),
    "BINARY(3)": (types.BINARY, b"\0\1\2", b"\0\1"),
    "YEAR": (types.INT16, 1970, 70),
    "DOUBLE(8,2)": (types.DOUBLE, 0.25, 0.255),
    "DECIMAL(65,2)": (types.STRING, "1.50", "1.505"),
}  # fmt: skip


@pytest.mark.parametrize("native", LIMITED)
@pytest.mark.full
def test_a_value_that_a_column_would_change_is_refused(writer: Writer, native: str) -> None:
    kind, fits, other = LIMITED[native]
    columns = (Column("id", types.INT64), Column("v", kind))
    writer.place.execute(f"CREATE TABLE {{table}} (id BIGINT, v {native})")
    assert [one.name for one in writer.place.target.limited_columns(writer.info(), ["id", "v"])] == ["v"]
    writer.write([{"id": 1, "v": fits}, {"id": 2, "v": None}], 1, columns=columns, in_memory=True)
    with pytest.raises(TableError, match="would change a value"):
        writer.write([{"id": 3, "v": other}], 2, columns=columns, in_memory=True)
    assert sorted(writer.place.read(["id"])) == [(1,), (2,)]


@pytest.mark.parametrize("altered", ["MODIFY amount INT", "MODIFY name VARBINARY(9)", "MODIFY amount DECIMAL(12,1)"])
@pytest.mark.full
def test_a_column_altered_since_the_plan_rounds_nothing(writer: Writer, altered: str) -> None:
    writer.write(upserts({**row(1), "amount": Exact("1.00")}), 1, "merge")
    job = writer.job(2, "merge", standing=writer.info().columns)
    writer.place.execute(f"ALTER TABLE {{table}} {altered}")
    with pytest.raises(StoppedByPolicy, match="was altered since the plan was made"):
        writer.place.target.write(
            writer.spark, writer.batch(upserts({**row(2), "amount": Exact("0.55")}), COLUMNS), job
        )
    assert writer.place.read(["id"]) == [(1,)]


@pytest.mark.full
def test_a_table_recreated_since_the_plan_is_another(writer: Writer) -> None:
    writer.write([row(1)], 1)
    job = writer.job(2, "append")
    writer.place.execute("DROP TABLE {table}; CREATE TABLE {table} (id BIGINT, name TEXT, amount DECIMAL(12,2))")
    with pytest.raises(StateConflict, match="was replaced since this sequence number was begun"):
        writer.place.target.write(writer.spark, writer.batch([row(2)], COLUMNS), job)
    assert writer.place.read(["id"]) == []


@pytest.mark.full
def test_keys_that_the_owners_collation_takes_for_one(writer: Writer) -> None:
    """flowctl compares all characters; a unique key that does not is named when it refuses a row."""
    columns = (Column("id", types.STRING), Column("n", types.INT32))
    writer.place.execute("CREATE TABLE {table} (id VARCHAR(9) COLLATE utf8mb4_general_ci, n INT)")
    writer.write(upserts({"id": "a", "n": 1}, {"id": "A", "n": 2}, {"id": "a ", "n": 3}), 1, "merge", columns=columns)
    writer.write([*upserts({"id": "A", "n": 5}), gone("a ", columns)], 2, "merge", columns=columns)  # type: ignore[arg-type]
    assert sorted(writer.place.read(["id", "n"])) == [("A", 5), ("a", 1)]
    writer.place.execute("DELETE FROM {table} WHERE n = 1; ALTER TABLE {table} ADD PRIMARY KEY (id)")
    with pytest.raises(TableError, match=r"PRIMARY KEY \(id\), which has refused a row") as error:
        writer.write(upserts({"id": "a", "n": 6}), 3, "merge", columns=columns)
    assert "DROP PRIMARY KEY" in error.value.hint
    assert writer.place.read(["id", "n"]) == [("A", 5)]


@pytest.mark.full
def test_other_engines_and_views_are_no_targets(place: Place, script: Script) -> None:
    script("CREATE TABLE flat (id INT) ENGINE = MyISAM; CREATE TABLE t (id INT PRIMARY KEY); CREATE VIEW v AS SELECT 1")
    script("CREATE TABLE child (id INT, CONSTRAINT c FOREIGN KEY (id) REFERENCES t (id) ON DELETE CASCADE)")

    def refused(name: str, *, replaces: bool = False) -> str:
        found = place.target.refuse_write(describe(place.target, ObjectName((name,))), "append", replaces=replaces)
        return found.message if found else ""

    assert "engine MyISAM" in refused("flat") and "v is a view" in refused("v")
    assert refused("t") == "" and "rows of child" in refused("t", replaces=True)


@pytest.mark.full
def test_why_nothing_can_be_written(place: Place, mariadb_server: mariadb.Server) -> None:
    assert place.target.why_unwritable(ObjectName(("t",)), "append") is None
    missing = place.target.why_unwritable(ObjectName(("no such", "t")), "append")
    assert missing is not None and "there is no database no such" in missing.message
    mariadb_server.administer("SET GLOBAL read_only = ON")
    try:
        read_only = place.target.why_unwritable(ObjectName(("t",)), "append")
    finally:
        mariadb_server.administer("SET GLOBAL read_only = OFF")
    assert read_only is not None and "read-only" in read_only.message


@pytest.mark.full
@pytest.mark.parametrize("format", ["STATEMENT", "MIXED", "ROW"])
def test_a_server_with_a_binary_log(writer: Writer, format: str, scratch: Buffer) -> None:
    with (
        mariadb.created() as server,
        server.started({"log-bin": "log", "binlog-format": format}) as url,
        opened("mysql", {"url": url}, scratch) as target,
    ):
        place = Place(
            "mysql", {"url": url}, target, ObjectName(("t",)), lambda _: mysql_rows(url, "SELECT * FROM t"), print
        )
        there = Writer(writer.spark, place, in_memory=True)
        why = target.why_unwritable(ObjectName(("t",)), "append")
        if format == "STATEMENT":
            assert why is not None and "binlog_format" in why.hint
            with pytest.raises(TableError, match="BINLOG_FORMAT = STATEMENT"):
                there.write(upserts(row(1)), 1, "merge")
        else:
            assert why is None
            there.write(upserts(row(1)), 1, "merge")
            there.write([*upserts(row(2)), gone(1)], 2, "merge")
            assert [found[0] for found in place.read([])] == [2]


def kill_others(script: Script) -> None:
    threads = "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND ID <> CONNECTION_ID()"
    for (thread,) in script(threads):
        script(f"KILL {thread}")


@pytest.mark.full
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_connection_lost_in_the_commit_leaves_nothing(writer: Writer, script: Script, mode: Mode) -> None:
    """With a column added before, which the next try finds."""
    writer.write(upserts(row(1)) if mode == "merge" else [row(1)], 1, mode)
    columns = (*COLUMNS, Column("note", types.STRING))
    change = SchemaChange("note", "new_column", None, types.STRING, "add", "")
    alter = writer.place.target.alter_statements(writer.info(), [change])
    second: dict[str, Any] = {"columns": columns, "alter": alter, "new_columns": ("note",)}
    one = {**row(2), "note": "x"}
    rows = upserts(one) if mode == "merge" else [one]
    with pytest.raises(TransientError):
        writer.write(rows, 2, mode, **second, before_commit=lambda: kill_others(script))
    assert writer.place.read(["id", "note"]) == [(1, None)]
    for _ in range(2):
        assert writer.write(rows, 2, mode, **second).seq == 2
        assert sorted(writer.place.read(["id", "note"])) == [(1, None), (2, "x")]


@pytest.mark.full
def test_a_suspended_process_makes_no_late_change(
    place: Place, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOWCTL_LEASE_SECONDS", "1")
    target: Any = place.target
    with pytest.raises(TransientError), target.writing_session() as session:
        while script("SELECT 1 FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND ID <> CONNECTION_ID()"):
            time.sleep(0.2)
        session.execute("CREATE TABLE late (i INT)")
    assert script("SHOW TABLES") == []


def test_nothing_is_left_of_tries(writer: Writer, script: Script) -> None:
    """A staging table whose process died is dropped by the next fence."""
    writer.write(upserts(row(1)), 1, "merge")
    listed = "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()"
    (table,) = {name for (name,) in script(listed)} - {"_flowctl_commits"}
    with (
        pytest.raises(FlowctlError),
        writer.place.target.stage(writer.spark, writer.batch([row(2)], COLUMNS), writer.job(2, "append")),
    ):
        (stage,) = [name for (name,) in script(listed) if name.startswith("_flowctl_stage_")]
        script(f"CREATE TABLE {stage.rpartition('_')[0]}_dead SELECT * FROM {stage}")
        raise FlowctlError("killed", hint="")
    assert f"{stage.rpartition('_')[0]}_dead" in {name for (name,) in script(listed)}
    writer.write(upserts(row(3)), 3, "merge")
    assert {name for (name,) in script(listed)} == {"_flowctl_commits", table}


@pytest.mark.full
@pytest.mark.parametrize("mode", ["merge", "scd2"])
def test_no_statement_compares_all_pairs_of_rows(writer: Writer, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every join of two large tables is by hash or by index, every subquery is materialized."""
    plans: dict[str, list[Any]] = {}
    execute = MysqlSession.execute

    def explained(session: MysqlSession, statement: str, parameters: Sequence[Any] = ()) -> int:
        query = statement.removeprefix("CREATE TEMPORARY TABLE _flowctl_difference AS ")
        is_applied = query.startswith(("UPDATE ", "DELETE ")) and "_flowctl_difference" in query
        if query != statement or is_applied:
            plans[query] = session.fetch(f"EXPLAIN {query}")
        return execute(session, statement, parameters)

    def rows(since: int, name: str) -> list[dict[str, Any]]:
        if mode == "merge":
            return [*upserts(*(row(id, name) for id in range(since, since + 3000))), gone(1)]  # type: ignore[list-item]
        return [{**seen(name, 1 + since // 2000), "id": id} for id in range(since, since + 3000)]

    columns = COLUMNS if mode == "merge" else HISTORY
    writer.write(rows(1, "a"), 1, mode, columns=columns, in_memory=True)
    monkeypatch.setattr(MysqlSession, "execute", explained)
    writer.write(rows(2001, "b"), 2, mode, columns=columns, in_memory=True)
    assert len(plans) >= 2
    slow = [(query, step) for query, plan in plans.items() for step in plan if is_nested(step)]
    assert slow == []


def is_nested(step: Sequence[Any]) -> bool:
    """Whether EXPLAIN's ``step`` reads a whole table again for each row before it."""
    _, kind, _, access, *_, extra = step
    return kind == "DEPENDENT SUBQUERY" or (access == "ALL" and "BNL join" in str(extra))


@pytest.mark.parametrize("count", [150, 400, 900])
@pytest.mark.full
def test_wide_tables(writer: Writer, count: int) -> None:
    columns = [Column("id", types.INT64), *(Column(f"c{at}", types.STRING) for at in range(count))]
    one = {"id": 1, **{f"c{at}": f"{at} " * 20 for at in range(count)}}
    try:
        writer.write(upserts(one), 1, "merge", columns=columns, in_memory=True)
    except TableError as error:
        assert count > 150 and "columns.exclude" in error.hint
        return
    assert writer.place.read(["id", f"c{count - 1}"]) == [(1, one[f"c{count - 1}"])]
