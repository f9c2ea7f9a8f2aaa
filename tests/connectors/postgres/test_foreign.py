"""Rows of other servers: a snapshot of this one does not reach them, so they are read at once or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psycopg
import pytest

from flowctl.connectors import registry
from flowctl.connectors.base import Connector, OpenContext
from flowctl.connectors.source import ReadRequest, Relation, WatermarkRequest
from flowctl.diagnostics import Mark
from flowctl.errors import StoppedByPolicy
from flowctl.spec.spec import Connection, ReadHints
from flowctl.storage.buffer import Buffer
from tests.connectors.reading import describe, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = 2_000


@pytest.fixture
def database(postgres_database: str) -> Iterator[psycopg.Connection[Any]]:
    """``far`` is a foreign table over ``near`` of the same database; ``text`` comes out of a program."""
    url = urlsplit(postgres_database)
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(
            "CREATE EXTENSION postgres_fdw; CREATE EXTENSION file_fdw;"
            "CREATE SERVER files FOREIGN DATA WRAPPER file_fdw;"
            f"CREATE SERVER other FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '{url.hostname}', port '{url.port}',"
            f" dbname '{url.path[1:]}'); CREATE USER MAPPING FOR CURRENT_USER SERVER other"
            f" OPTIONS (user '{url.username}', password '{url.password}');"
            "CREATE TABLE near (id bigint PRIMARY KEY, part int, v text);"
            f"INSERT INTO near SELECT i, i % 4, 'v' FROM generate_series(1, {_ROWS}) i;"
            "CREATE FOREIGN TABLE far (id bigint, part int, v text) SERVER other OPTIONS (table_name 'near');"
            "CREATE FOREIGN TABLE text (id bigint) SERVER files OPTIONS (program 'seq 1 9', format 'csv');"
            "CREATE VIEW seen AS SELECT f.* FROM far f; CREATE VIEW seen_again AS SELECT * FROM seen;"
            "CREATE TABLE parts (id bigint, part int, v text) PARTITION BY LIST (part);"
            "CREATE TABLE parts_9 PARTITION OF parts FOR VALUES IN (9); INSERT INTO parts VALUES (0, 9, 'here');"
            "CREATE FOREIGN TABLE parts_0 PARTITION OF parts FOR VALUES IN (0, 1, 2, 3) SERVER other"
            " OPTIONS (table_name 'near');"
            "CREATE TABLE parent (id bigint PRIMARY KEY, part int, v text); INSERT INTO parent VALUES (0, 9, 'here');"
            "CREATE FOREIGN TABLE child () INHERITS (parent) SERVER other OPTIONS (table_name 'near')"
        )
        yield connection


@pytest.fixture
def postgres(postgres_database: str, reader: str, scratch: Buffer) -> Iterator[Connector]:  # noqa: ARG001
    connection = Connection("source", "postgres", {"url": postgres_database}, Mark("flow.yaml", 1))
    with registry.open(connection, OpenContext(buffer=scratch)) as connector:
        yield connector


RELATIONS = {
    "table": (table("public", "far"), 0),
    "view of a view": (table("public", "seen_again"), 0),
    "partition": (table("public", "parts"), 1),
    "child of a table with a key": (table("public", "parent"), 1),
    "query": (Relation(None, query="SELECT n.id, f.part, f.v FROM near n JOIN far f USING (id)"), 0),
}
each_relation = pytest.mark.parametrize(("relation", "own"), RELATIONS.values(), ids=RELATIONS)


@each_relation
@pytest.mark.usefixtures("database")
def test_explicit_parts_are_refused_by_name(postgres: Connector, relation: Relation, own: int) -> None:  # noqa: ARG001
    info = describe(postgres.source, relation)
    for hints in (ReadHints(splits=4), ReadHints(split_by="part")):
        error = postgres.source.refuse_read(info, hints, reads_twice=False)
        assert isinstance(error, StoppedByPolicy)
        assert "cannot be read in parts" in error.message and "another server" in error.message
    assert postgres.source.refuse_read(info, ReadHints(splits=1), reads_twice=True) is None
    assert "lies on another server" in postgres.source.explain_read(WatermarkRequest(relation, info), ReadHints())


@each_relation
def test_all_frames_of_a_snapshot_are_of_one_moment(
    spark: SparkSession, database: psycopg.Connection[Any], postgres: Connector, relation: Relation, own: int
) -> None:
    """Rows, then keys: what moves, goes and comes in between is in neither or in both. Without hints, and so cut by the
    key of the parent before."""
    info = describe(postgres.source, relation)
    with postgres.source.snapshot(spark, relation, info, ReadHints()) as snapshot:
        frame = snapshot.frame(ReadRequest(info.columns))
        rows = frame.selectExpr("count(*)", "count(DISTINCT id)").first()
        database.execute(f"UPDATE near SET part = (part + 1) % 4; DELETE FROM near WHERE id <= {_ROWS // 2}")
        keys = snapshot.frame(ReadRequest(info.columns[:1])).selectExpr("count(*)").first()
        empty = snapshot.is_empty(ReadRequest(info.columns))
    assert tuple(rows) == (_ROWS + own, _ROWS + own)
    assert tuple(keys) == (_ROWS + own,)
    assert not empty


def test_other_wrappers_promise_no_second_look(
    spark: SparkSession, database: psycopg.Connection[Any], postgres: Connector
) -> None:
    database.execute("CREATE VIEW mixed AS SELECT id FROM text UNION ALL SELECT id FROM far")
    query = Relation(None, query="SELECT * FROM text")
    for relation in (table("public", "text"), table("public", "mixed"), query):
        info = describe(postgres.source, relation)
        error = postgres.source.refuse_read(info, ReadHints(), reads_twice=True)
        assert error is not None and "takes two queries of one moment" in error.message
        assert postgres.source.refuse_read(info, ReadHints(), reads_twice=False) is None
    with postgres.source.snapshot(spark, query, info, ReadHints()) as snapshot:
        assert snapshot.frame(ReadRequest(info.columns)).count() == 9


def test_a_partition_that_became_foreign_after_the_plan_is_not_cut(
    spark: SparkSession, database: psycopg.Connection[Any], postgres: Connector
) -> None:
    relation = table("public", "parts")
    database.execute("ALTER TABLE parts DETACH PARTITION parts_0")
    info = describe(postgres.source, relation)
    assert "foreign" not in info.extra
    database.execute("ALTER TABLE parts ATTACH PARTITION parts_0 FOR VALUES IN (0, 1, 2, 3)")
    with postgres.source.snapshot(spark, relation, info, ReadHints(splits=4)) as snapshot:
        assert snapshot.frame(ReadRequest(info.columns)).count() == _ROWS + 1


@pytest.mark.usefixtures("postgres")
def test_local_relations_say_nothing(database: psycopg.Connection[Any], postgres: Connector) -> None:
    database.execute("CREATE VIEW local AS SELECT * FROM near")
    for relation in (table("public", "near"), table("public", "local"), Relation(None, query="SELECT * FROM near")):
        info = describe(postgres.source, relation)
        assert postgres.source.refuse_read(info, ReadHints(splits=4, split_by="part"), reads_twice=True) is None
