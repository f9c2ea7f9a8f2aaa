"""Columns whose names mean something to a layer below: read and written by value, by every way there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from flowctl.connectors.base import Connector
from flowctl.spec.spec import ReadHints
from tests.connectors.hostile import TEXTS
from tests.connectors.reading import spark_rows, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Every target but SQLite takes all of them for different names; "ABC" is "abc" to SQLite and to Spark.
NAMES = [name for label, name in TEXTS.items() if label != "upper case"]


@pytest.fixture
def postgres(postgres: Connector, reader: str) -> Connector:  # noqa: ARG001 - by each reader in turn
    return postgres


@pytest.mark.parametrize("hints", [ReadHints(), ReadHints(splits=2, split_by="id")], ids=["few", "many"])
def test_columns_of_a_postgres_source(
    spark: SparkSession, postgres: Connector, postgres_database: str, hints: ReadHints
) -> None:
    names = [name for name in NAMES if len(name.encode()) <= 63]
    made = sql.SQL(", ").join(sql.SQL("{} text[]").format(sql.Identifier(name)) for name in names)
    rows = [{"id": n, **{name: [name, None, str(n)] for name in names}} for n in (1, 2, 3)]
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE TABLE odd (id int PRIMARY KEY, {})").format(made))
        with connection.cursor().copy("COPY odd FROM STDIN") as copy:
            for row in rows:
                copy.write_row(list(row.values()))
    found = spark_rows(spark, postgres.source, table("public", "odd"), hints=hints)
    assert sorted(found, key=lambda row: row["id"]) == rows
