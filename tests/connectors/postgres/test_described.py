"""What was described for the plan is what is read: altered columns stop the table, granted columns are enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from flowctl.connectors.base import Connector
from flowctl.connectors.source import ReadRequest, Relation
from flowctl.errors import StoppedByPolicy
from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import CursorPosition, NoPosition
from flowctl.model.value import TypedValue
from flowctl.spec.spec import ReadHints
from tests.connectors.reading import describe, opened, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def postgres(postgres: Connector, reader: str) -> Connector:  # noqa: ARG001 - by each reader in turn
    return postgres


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("ALTER TABLE priced ALTER COLUMN amount TYPE numeric(12,4)", "column amount of public.priced was altered"),
        ("ALTER TABLE priced RENAME COLUMN amount TO total", "has no column amount any more"),
        ("DROP TABLE priced; CREATE TABLE priced (id bigint, amount numeric(10,2))", "dropped and recreated"),
    ],
)
def test_a_table_altered_since_the_plan_is_not_read_with_the_types_it_had(
    spark: SparkSession, database: psycopg.Connection[Any], postgres: Connector, change: str, told: str
) -> None:
    """JDBC would give 1.2345 as 1.23: the values of a column that has become wider are rounded without an error."""
    database.execute("CREATE TABLE priced (id bigint, amount numeric(10,2)); INSERT INTO priced VALUES (1, 1.23)")
    priced = table("public", "priced")
    query = Relation(None, query="SELECT * FROM priced")
    before = {one: describe(postgres.source, one) for one in (priced, query)}
    database.execute(change.encode())
    for relation in (priced, query) if "recreated" not in told else (priced,):
        expected = told.replace("public.priced", ".*")
        with (
            pytest.raises(StoppedByPolicy, match=expected) as refused,
            postgres.source.snapshot(spark, relation, before[relation], ReadHints(splits=2)) as snapshot,
        ):
            snapshot.frame(ReadRequest(before[relation].columns)).collect()
        assert refused.value.hint == "Plan again"


def test_a_column_that_is_not_read_may_change(
    spark: SparkSession, database: psycopg.Connection[Any], postgres: Connector
) -> None:
    database.execute("CREATE TABLE priced (id bigint, amount numeric(10,2)); INSERT INTO priced VALUES (1, 1.23)")
    info = describe(postgres.source, table("public", "priced"))
    database.execute("ALTER TABLE priced ALTER COLUMN amount TYPE text, ADD COLUMN more int")
    with postgres.source.snapshot(spark, table("public", "priced"), info, ReadHints(splits=2)) as snapshot:
        assert snapshot.frame(ReadRequest(info.columns[:1])).count() == 1


@pytest.mark.parametrize("hints", [ReadHints(), ReadHints(splits=3), ReadHints(splits=3, split_by="id")])
def test_granted_columns_are_enough(
    spark: SparkSession, database: psycopg.Connection[Any], postgres_database: str, reader: str, hints: ReadHints
) -> None:
    """``columns.include`` names them. System columns, and so cuts by pages, are for who may read the whole table."""
    del reader
    database.execute(
        "CREATE TABLE staff (id bigint PRIMARY KEY, name text, salary int);"
        "INSERT INTO staff SELECT i, 'n', i FROM generate_series(1, 3000) i; ANALYZE staff;"
        "CREATE ROLE clerk LOGIN PASSWORD 'clerk'; GRANT SELECT (id, name) ON staff TO clerk"
    )
    try:
        with opened("postgres", url=postgres_database, user="clerk", password="clerk") as connector:
            relation, at = table("public", "staff"), TypedValue(types.INT64, 2991)
            info = describe(connector.source, relation)
            interval = Interval(CursorPosition(at), NoPosition(), "id", read_from=at)
            with connector.source.snapshot(spark, relation, info, hints) as snapshot:
                assert snapshot.frame(ReadRequest(info.columns[:2])).count() == 3000
                assert snapshot.frame(ReadRequest(info.columns[:2], interval)).count() == 10
                assert not snapshot.is_empty(ReadRequest(info.columns[:2], interval))
    finally:
        database.execute("DROP OWNED BY clerk; DROP ROLE clerk")
