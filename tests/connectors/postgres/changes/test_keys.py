"""Which columns identify a row: those of an index's key, without the columns that the index merely includes."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from flowctl.connectors.base import Connector
from flowctl.connectors.postgres.changes.stream import PostgresStreams
from flowctl.connectors.postgres.client import client
from flowctl.connectors.survey import Index
from flowctl.model.table_info import ObjectName
from tests.connectors.captured import STREAM


@pytest.mark.parametrize(
    ("ddl", "primary", "identity", "index"),
    [
        ("CREATE TABLE t (email text, b int, a int, PRIMARY KEY (a, b) INCLUDE (email))", ["a", "b"], ["a", "b"], 0),
        (
            "CREATE TABLE t (a int PRIMARY KEY, b int NOT NULL, email text, UNIQUE (b) INCLUDE (email, a));"
            "ALTER TABLE t REPLICA IDENTITY USING INDEX t_b_email_a_key",
            ["a"],
            ["b"],
            1,
        ),
    ],
)
def test_included_columns_are_no_part_of_a_key(
    database: psycopg.Connection[Any],
    postgres: Connector,
    postgres_database: str,
    ddl: str,
    primary: list[str],
    identity: list[str],
    index: int,
) -> None:
    database.execute(ddl.encode())
    table = ObjectName(("public", "t"))
    info = PostgresStreams(client({"url": postgres_database})).describe_stream(STREAM, [table]).tables[table]
    assert info is not None
    assert list(info.primary_key) == primary and info.extra["identity_columns"] == identity
    details = postgres.source.details([table])[table]  # type: ignore[attr-defined]
    assert details.indexes[index] == Index(tuple(identity), is_unique=True)
