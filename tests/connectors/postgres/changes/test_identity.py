"""What the log has of a row before its change: of each partition by its own replica identity. A look at the server
finds tables whose updates it would refuse once they are published, and those whose changes come under another name."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from flowctl.connectors.stream import StreamInfo
from flowctl.model.table_info import Column, ObjectName
from tests.connectors.postgres.changes.streaming import Captured

TABLE, PARTITION = ObjectName(("public", "t")), ObjectName(("public", "t1"))
PARTITIONED = "CREATE TABLE t (id int{key}, email text NOT NULL, v text) PARTITION BY LIST (id)"
PARTITIONS = [f"CREATE TABLE t{number} PARTITION OF t FOR VALUES IN ({number})" for number in range(1, 5)]
FULL, TABLE_THERE = "ALTER TABLE {} REPLICA IDENTITY FULL", '"public"."t"'
ROOT_ONLY = FULL.format("t")
#: Statements that make a table `t`, and what is wrong with it and its repair.
REFUSED = {
    "a deferrable key": (
        ["CREATE TABLE t (id int PRIMARY KEY DEFERRABLE, email text, v text)"],
        "public.t has no replica identity, so its updates and deletions name no row: its primary key is deferrable",
        f"Add the key again without DEFERRABLE; with mode append or another `key`: {FULL.format(TABLE_THERE)}",
    ),
    "partitions without the identity of the table": (
        [PARTITIONED.format(key=""), *PARTITIONS[:2], ROOT_ONLY],
        "partitions of public.t have no replica identity, so updates and deletions name no row: public.t1, public.t2",
        f"Add a primary key, or: {FULL.format('public.t1')}; {FULL.format('public.t2')}",
    ),
    "a partition with none": (
        [PARTITIONED.format(key=" PRIMARY KEY"), *PARTITIONS[:2], "ALTER TABLE t2 REPLICA IDENTITY NOTHING"],
        "partitions of public.t have no replica identity, so updates and deletions name no row: public.t2",
        f"Add a primary key, or: {FULL.format('public.t2')}",
    ),
    "neither the table nor its partition": (
        [PARTITIONED.format(key=""), *PARTITIONS[:1]],
        "public.t has no replica identity, so its updates and deletions name no row",
        f"Add a primary key, or: {FULL.format(TABLE_THERE)}; {FULL.format('public.t1')}",
    ),
}  # fmt: skip


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def look(url: str, folder: Path, *tables: ObjectName) -> StreamInfo:
    captured = Captured(url, folder, tables)
    return captured.source.describe_stream(captured.stream, tables)


@pytest.mark.parametrize("name", REFUSED)
def test_nothing_is_published_whose_updates_would_fail(name: str, postgres_database: str, tmp_path: Path) -> None:
    made, what, repair = REFUSED[name]
    run(postgres_database, *made)
    info = look(postgres_database, tmp_path, TABLE)
    assert [(one.what, one.repair) for one in info.problems] == [(what, repair)] and info.source_changes == ()
    run(postgres_database, "INSERT INTO t VALUES (1, 'a', 'v')", *repair.partition(": ")[2].split("; "))
    captured = Captured(postgres_database, tmp_path, [TABLE])
    with captured.begin():
        run(postgres_database, "UPDATE t SET v = 'w'", "DELETE FROM t")


def test_a_partition_without_an_identity_does_not_stop_a_published_table(
    postgres_database: str, tmp_path: Path
) -> None:
    """Its inserts are in the log, and a stop would not make its updates possible."""
    run(postgres_database, PARTITIONED.format(key=""), PARTITIONS[0], ROOT_ONLY, FULL.format("t1"))
    run(postgres_database, *look(postgres_database, tmp_path, TABLE).source_changes, PARTITIONS[1])
    info = look(postgres_database, tmp_path, TABLE)
    assert info.problems == ()
    what = "partitions of public.t have no replica identity, so updates and deletions name no row: public.t2"
    assert what in [one.what for one in info.advice]


def test_a_query_makes_the_statements_of_many_partitions(postgres_database: str, tmp_path: Path) -> None:
    run(postgres_database, PARTITIONED.format(key=""), *PARTITIONS)
    (found,) = look(postgres_database, tmp_path, TABLE).problems
    before, query, after = found.repair.split("`")
    assert (before, after) == ("Add a primary key, or: ", " in psql")
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        statements = connection.execute(query.removesuffix(" \\gexec").encode()).fetchall()
    assert len(statements) == 5
    run(postgres_database, *(statement for (statement,) in statements))
    assert look(postgres_database, tmp_path, TABLE).problems == ()


def test_only_what_all_partitions_log_is_known_of_a_row(postgres_database: str, tmp_path: Path) -> None:
    run(postgres_database, PARTITIONED.format(key=" PRIMARY KEY"), *PARTITIONS[:2], ROOT_ONLY)
    run(postgres_database, "ALTER TABLE t1 REPLICA IDENTITY FULL")
    found = look(postgres_database, tmp_path, TABLE).tables[TABLE]
    assert found is not None and found.extra["identity_columns"] == ["id"]
    assert found.extra["identify_fully"] == "ALTER TABLE public.t2 REPLICA IDENTITY FULL"
    run(postgres_database, found.extra["identify_fully"])
    found = look(postgres_database, tmp_path, TABLE).tables[TABLE]
    assert found is not None and found.extra["identity_columns"] == ["id", "email", "v"]
    assert found.extra["identify_fully"] == ""


def test_a_long_value_that_a_partition_has_not_sent(postgres_database: str, tmp_path: Path) -> None:
    """The message says that the old row is whole, because the table's identity is FULL: the partition's is its key."""
    run(postgres_database, PARTITIONED.format(key=" PRIMARY KEY"), *PARTITIONS[:1])
    run(postgres_database, ROOT_ONLY, "ALTER TABLE t1 ALTER v SET STORAGE EXTERNAL")
    run(postgres_database, "CREATE TABLE t9 PARTITION OF t DEFAULT", "ALTER TABLE t9 ALTER v SET STORAGE EXTERNAL")
    run(postgres_database, "INSERT INTO t VALUES (10, 'a', repeat('x', 9000))")
    captured = Captured(postgres_database, tmp_path, [TABLE])
    with captured.begin():
        run(postgres_database, "UPDATE t SET id = 11")
        batch = captured.capture()
    landed = batch.table(TABLE)
    assert landed is not None
    assert [captured.log.shape(digest).old_columns for digest in landed.shapes.values()] == [("id",)]
    described = look(postgres_database, tmp_path, TABLE).tables[TABLE]
    assert described is not None
    columns: list[Column] = [*described.columns]
    changes = captured.changes(columns, ["id"], TABLE)
    assert changes.old is not None and changes.old["id"].to_pylist() == [10]
    assert changes.rows["id"].to_pylist() == [11]
    assert changes.unsent["v"].tolist() == [True]


def test_a_partition_beside_its_table(postgres_database: str, tmp_path: Path) -> None:
    """Also if only the publication still has the table, and not if it sends partitions under their own names."""
    run(postgres_database, PARTITIONED.format(key=" PRIMARY KEY"), *PARTITIONS[:1])
    what = "public.t1 is a partition of public.t, under whose name the publication sends its changes"
    both = look(postgres_database, tmp_path, TABLE, PARTITION)
    assert [(one.what, one.object) for one in both.problems] == [(what, PARTITION)]
    assert both.problems[0].repair.startswith(
        "Exclude public.t1: public.t has its rows; or read it from another stream"
    )
    assert look(postgres_database, tmp_path, PARTITION).problems == ()
    run(postgres_database, *both.source_changes)
    assert [one.what for one in look(postgres_database, tmp_path, PARTITION).problems] == [what]
    run(postgres_database, "ALTER PUBLICATION flowctl_shop_cdc SET (publish_via_partition_root = false)")
    assert look(postgres_database, tmp_path, PARTITION).problems == ()
