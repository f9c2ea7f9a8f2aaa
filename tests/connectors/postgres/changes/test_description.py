"""What a look at the server tells of tables that others hold rows of: partitions, and children by inheritance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from flowctl.connectors.postgres.changes.moment import PostgresMoment
from flowctl.connectors.source import Relation
from flowctl.connectors.stream import StreamInfo
from flowctl.errors import StoppedByPolicy
from flowctl.model.table_info import ObjectName, TableInfo
from flowctl.plan.definition import definition
from flowctl.plan.partitions import Moved, moved_partitions
from flowctl.spec.spec import ReadHints
from tests.connectors.postgres.changes.streaming import Captured
from tests.plan.stream_worlds import stream_table
from tests.services import postgres
from tests.services.postgres_versions import VERSIONS, programs

TABLE = ObjectName(("public", "t"))
SCHEMA = """
    CREATE TABLE t (id int DEFAULT 1, g int DEFAULT 2, v text DEFAULT 'x', PRIMARY KEY (id, g)) PARTITION BY LIST (g);
    CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1);
    CREATE TABLE t2 PARTITION OF t FOR VALUES IN (2);
    CREATE TABLE below PARTITION OF t FOR VALUES IN (3, 4) PARTITION BY LIST (id);
    CREATE TABLE t3 PARTITION OF below FOR VALUES IN (1);
    INSERT INTO t VALUES (1, 1, 'a'), (1, 2, 'b'), (1, 3, 'c')
"""
LOADED = "CREATE TABLE t5 (LIKE t INCLUDING ALL); INSERT INTO t5 VALUES (1, 5, 'e'); "
ATTACH = "ALTER TABLE t ATTACH PARTITION t5 FOR VALUES IN (5)"


def run(url: str, *statements: str) -> None:
    """Each by itself, what is separated by semicolons in one transaction."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def look(url: str, folder: Path, table: ObjectName = TABLE) -> StreamInfo:
    captured = Captured(url, folder, [table])
    return captured.source.describe_stream(captured.stream, [table])


CASES: dict[str, tuple[list[str], Moved]] = {
    "created": (["CREATE TABLE t5 PARTITION OF t FOR VALUES IN (5)", "INSERT INTO t VALUES (1, 5, 'e')"], Moved()),
    "created and loaded at once": (
        ["CREATE TABLE t5 PARTITION OF t FOR VALUES IN (5); INSERT INTO t VALUES (1, 5, 'e'); ALTER TABLE t ADD n int"],
        Moved(),
    ),
    "created deeper": (["CREATE TABLE t4 PARTITION OF below FOR VALUES IN (4); INSERT INTO t VALUES (4, 4)"], Moved()),
    "attached empty": (["CREATE TABLE t5 (LIKE t INCLUDING ALL); " + ATTACH], Moved()),
    "attached with rows": ([LOADED, ATTACH], Moved(come=("public.t5 was attached with rows",))),
    "attached with rows at once": ([LOADED + ATTACH], Moved(come=("public.t5 was attached with rows",))),
    "attached as a query's result": (
        ["CREATE TABLE t5 AS SELECT 1 AS id, 5 AS g, 'e'::text AS v; ALTER TABLE t5 ALTER id SET NOT NULL;"
         "ALTER TABLE t5 ALTER g SET NOT NULL; " + ATTACH],
        Moved(come=("public.t5 was attached with rows",)),
    ),
    "attached with partitions": (
        ["CREATE TABLE t5 (LIKE t INCLUDING ALL) PARTITION BY LIST (id);"
         "CREATE TABLE t51 PARTITION OF t5 FOR VALUES IN (1); INSERT INTO t5 VALUES (1, 5, 'e'); " + ATTACH],
        Moved(come=("public.t51 was attached with rows",)),
    ),
    "detached": (["ALTER TABLE t DETACH PARTITION t1"], Moved(gone=("public.t1 was detached or dropped",))),
    "detached concurrently": (
        ["ALTER TABLE t DETACH PARTITION t1 CONCURRENTLY"], Moved(gone=("public.t1 was detached or dropped",)),
    ),
    "dropped": (["DROP TABLE t1"], Moved(gone=("public.t1 was detached or dropped",))),
    "dropped deeper": (["DROP TABLE below"], Moved(gone=("public.t3 was detached or dropped",))),
    "detached and attached": (
        ["ALTER TABLE t DETACH PARTITION t1; ALTER TABLE t ATTACH PARTITION t1 FOR VALUES IN (1)"],
        Moved(gone=("public.t1 was detached and attached again",)),
    ),
    "detached and attached deeper": (
        ["ALTER TABLE t DETACH PARTITION below; ALTER TABLE t ATTACH PARTITION below FOR VALUES IN (3, 4)"],
        Moved(gone=("public.t3 was detached and attached again",)),
    ),
    "truncated": (["TRUNCATE t1"], Moved(gone=("public.t1 was truncated",))),
    "truncated and loaded": (["TRUNCATE t1; INSERT INTO t VALUES (5, 1)"], Moved(unclear=("public.t1",))),
    "truncated as a whole": (["TRUNCATE t"], Moved()),
    "rewritten": (["VACUUM FULL t1"], Moved(unclear=("public.t1",))),
    "indexed again": (["REINDEX TABLE t1", "VACUUM t", "ANALYZE t"], Moved()),
    "renamed": (["ALTER TABLE t1 RENAME TO t0"], Moved()),
    "with other columns": (["ALTER TABLE t ALTER v TYPE varchar(90)", "ALTER TABLE t ADD n int DEFAULT 5"], Moved()),
    "with another type": (["ALTER TABLE t ALTER v DROP DEFAULT, ALTER v TYPE int USING length(v)"], Moved()),
}  # fmt: skip


def must_be_told(name: str, url: str, folder: Path) -> None:
    statements, expected = CASES[name]
    run(url, SCHEMA)
    before: Any = look(url, folder).tables[TABLE]
    run(url, *statements)
    now = look(url, folder).tables[TABLE]
    assert now is not None
    assert moved_partitions(definition(stream_table("t"), before), now) == expected, name


@pytest.mark.parametrize("name", CASES)
def test_what_happens_to_partitions_without_a_change(name: str, postgres_database: str, tmp_path: Path) -> None:
    must_be_told(name, postgres_database, tmp_path)


@pytest.mark.full
@pytest.mark.server
@pytest.mark.parametrize("major", VERSIONS)
def test_partitions_in_every_version(major: int, tmp_path: Path) -> None:
    """What is new in the catalog is known by how the server writes it."""
    with postgres.cluster(programs(major)) as made, made.started() as server:
        for at, name in enumerate(CASES):
            if major == 13 and "CONCURRENTLY" in CASES[name][0][0]:
                continue
            with postgres.database(server, f"case_{at}") as url:
                must_be_told(name, url, tmp_path)


def test_rows_of_other_tables_whose_changes_never_come(postgres_database: str, tmp_path: Path) -> None:
    run(
        postgres_database,
        "CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent)",
        "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY LIST (id);"
        "CREATE UNLOGGED TABLE t1 PARTITION OF t FOR VALUES IN (1)",
    )
    (parent,) = look(postgres_database, tmp_path, ObjectName(("public", "parent"))).problems
    assert parent.what == "public.parent has the rows of public.child by inheritance, but not their changes"
    assert parent.repair.endswith("with an entry of its own: `from: source:public.parent`")
    assert look(postgres_database, tmp_path, ObjectName(("public", "child"))).problems == ()
    (unlogged,) = look(postgres_database, tmp_path).problems
    assert unlogged.what == "the partition public.t1 of public.t is unlogged: its changes are not in the log"
    run(postgres_database, unlogged.repair)
    assert look(postgres_database, tmp_path).problems == ()


def test_rows_that_policies_hide_from_the_snapshot(postgres_database: str, tmp_path: Path) -> None:
    """The log has the changes of all rows. A policy that came after the plan, or one that applies to a standby's user,
    is noticed by the snapshot."""
    run(
        postgres_database,
        "CREATE TABLE t (id int PRIMARY KEY, region text); CREATE POLICY eu ON t USING (region = 'eu');"
        "CREATE ROLE reader LOGIN REPLICATION PASSWORD 'reader'; GRANT SELECT ON t TO reader",
    )
    captured = Captured(postgres_database.replace("etl:etl-secret", "reader:reader"), tmp_path, [TABLE])

    def problems() -> list[str]:
        found = captured.source.describe_stream(captured.stream, [TABLE]).problems
        return [one.repair for one in found if "row-level security of public.t hides rows from reader" in one.what]

    spark: Any = None  # nothing is read
    try:
        assert problems() == []
        run(postgres_database, "ALTER TABLE t ENABLE ROW LEVEL SECURITY")
        (repair,) = problems()
        with captured.source.moment(captured.stream, [TABLE], creates_reader=False) as moment:
            assert isinstance(moment, PostgresMoment)
            read = moment.snapshot(spark, Relation(TABLE), TableInfo(TABLE, (), ""), ReadHints(), lambda name: True)
            with pytest.raises(StoppedByPolicy, match="hides rows from reader, but not their changes"), read:
                pass
        run(postgres_database, repair.partition(",")[0])
        assert problems() == []
        run(postgres_database, "ALTER ROLE reader NOBYPASSRLS; ALTER TABLE t OWNER TO reader")
        assert problems() == []
    finally:
        run(postgres_database, "DROP OWNED BY reader; DROP ROLE reader")


def test_generated_columns_are_not_delivered(postgres_database: str, tmp_path: Path) -> None:
    run(postgres_database, "CREATE TABLE t (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED)")
    found = look(postgres_database, tmp_path).tables[TABLE]
    assert found is not None and [column.name for column in found.columns] == ["id"]
    assert found.extra["undelivered"] == ["twice"]
