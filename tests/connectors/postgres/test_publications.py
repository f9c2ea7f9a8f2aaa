"""Which tables a publication has, and which of them the server would not update."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from flowctl.connectors.postgres.publications import publishing_schemas, without_identity

PARTITIONED = (
    "CREATE TABLE t (id int) PARTITION BY LIST (id); CREATE TABLE t_1 PARTITION OF t FOR VALUES IN (1);"
    "CREATE TABLE t_2 PARTITION OF t FOR VALUES IN (2); ALTER TABLE t_2 REPLICA IDENTITY FULL"
)


@pytest.mark.parametrize(
    ("published", "schemas"),
    [
        ("FOR ALL TABLES", {"s", "nowhere"}),
        ("FOR ALL TABLES WITH (publish = 'insert, truncate')", set()),
        ("FOR TABLES IN SCHEMA s", {"s"}),
        ("FOR TABLE s.t", set()),
    ],
)
def test_where_new_tables_are_published(database: psycopg.Connection[Any], published: str, schemas: set[str]) -> None:
    database.execute(f"CREATE SCHEMA s; CREATE TABLE s.t (id int); CREATE PUBLICATION p {published}".encode())
    assert publishing_schemas(database, ["s", "nowhere"]) == schemas


@pytest.mark.parametrize(
    ("made", "published", "refused"),
    [
        ("CREATE TABLE t (id int)", "FOR ALL TABLES", {("public.t", "UPDATE"), ("public.t", "DELETE")}),
        ("CREATE TABLE t (id int)", "FOR TABLE t WITH (publish = 'insert, delete')", {("public.t", "DELETE")}),
        ("CREATE TABLE t (id int)", "FOR TABLES IN SCHEMA public", {("public.t", "UPDATE"), ("public.t", "DELETE")}),
        ("CREATE TABLE t (id int); CREATE TABLE u (id int)", "FOR TABLE u", set()),
        ("CREATE TABLE t (id int PRIMARY KEY)", "FOR ALL TABLES", set()),
        (
            "CREATE TABLE t (id int PRIMARY KEY DEFERRABLE)",
            "FOR ALL TABLES",
            {("public.t", "UPDATE"), ("public.t", "DELETE")},
        ),
        (
            "CREATE TABLE t (id int NOT NULL UNIQUE); ALTER TABLE t REPLICA IDENTITY USING INDEX t_id_key",
            "FOR ALL TABLES",
            set(),
        ),
        ("CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t REPLICA IDENTITY NOTHING", "FOR TABLE t", {
            ("public.t", "UPDATE"), ("public.t", "DELETE"),
        }),
        (PARTITIONED, "FOR TABLE t", {("public.t_1", "UPDATE"), ("public.t_1", "DELETE")}),
        (PARTITIONED, "FOR TABLE t_1", {("public.t_1", "UPDATE"), ("public.t_1", "DELETE")}),
        (PARTITIONED, "FOR TABLE t_2", set()),
    ],
)  # fmt: skip
def test_what_the_server_refuses_to_update(
    database: psycopg.Connection[Any], made: str, published: str, refused: set[tuple[str, str]]
) -> None:
    """The server says the same of each table that holds rows."""
    database.execute(f"{made}; CREATE PUBLICATION p {published}".encode())
    ((oid,),) = database.execute("SELECT 't'::regclass::oid::bigint").fetchall()
    rows = database.execute(without_identity(database.info.server_version).encode(), [[oid]]).fetchall()
    assert {(name, statement) for _, name, statement in rows} == refused
    for table in {"t_1", "t_2"} if made == PARTITIONED else {"t"}:
        for statement in (f"UPDATE {table} SET id = 1", f"DELETE FROM {table}"):
            is_refused = (f"public.{table}", statement.partition(" ")[0]) in refused
            try:
                database.execute(statement.encode())
            except psycopg.errors.ObjectNotInPrerequisiteState:
                assert is_refused, statement
            else:
                assert not is_refused, statement


def test_a_version_that_publishes_no_schemas(database: psycopg.Connection[Any]) -> None:
    database.execute("CREATE TABLE t (id int); CREATE PUBLICATION p FOR TABLE t")
    ((oid,),) = database.execute("SELECT 't'::regclass::oid::bigint").fetchall()
    assert len(database.execute(without_identity(140000).encode(), [[oid]]).fetchall()) == 2
