"""PostgreSQL tables that are not there or may not be written: what is said of them before anything is tried."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from flowctl.connectors.base import Connector
from flowctl.connectors.postgres.commits import why_unwritable
from flowctl.model.table_info import ObjectName, same_identity
from tests.connectors.reading import opened, table


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        (("sales", "ordres"), "Did you mean `sales.Orders`?"),
        (("sale", "Orders"), "Did you mean `sales.Orders`?"),
        (("custmers",), "Did you mean `customers`?"),
        (("sales", "nothing_like_it"), "Correct `from`, or let the connection's user see it"),
    ],
)
def test_a_table_that_is_not_there_is_named_with_its_place_and_what_comes_near(
    database: psycopg.Connection[Any], postgres: Connector, wanted: tuple[str, ...], hint: str
) -> None:
    database.execute('CREATE SCHEMA sales; CREATE TABLE sales."Orders" (id int); CREATE TABLE customers (id int)')
    assert postgres.source is not None
    missing = postgres.source.why_missing(table(*wanted))
    assert missing.hint == hint
    assert database.info.dbname in missing.reason and str(database.info.port) in missing.reason


def test_a_target_that_this_user_may_not_write_says_which_right_is_missing(
    database: psycopg.Connection[Any], postgres: Connector
) -> None:
    database.execute(
        "DROP ROLE IF EXISTS reader; CREATE ROLE reader; CREATE SCHEMA closed; CREATE SCHEMA open;"
        "GRANT USAGE, CREATE ON SCHEMA open TO reader; CREATE TABLE open.ours (id int)"
    )
    refused = {}
    with psycopg.connect(database.info.dsn, password=database.info.password, autocommit=True) as reader:
        reader.execute("SET ROLE reader")
        for parts in (("closed", "t"), ("nowhere", "t"), ("open", "ours"), ("open", "t")):
            refused[parts] = why_unwritable(reader, ObjectName(parts))
    hints = {parts: error.hint if error else None for parts, error in refused.items()}
    assert hints == {
        ("closed", "t"): "GRANT USAGE, CREATE ON SCHEMA closed TO reader",
        ("nowhere", "t"): "Make the schema nowhere, or: GRANT CREATE ON DATABASE … TO reader",
        ("open", "ours"): "GRANT SELECT, INSERT, UPDATE, DELETE ON open.ours TO reader",
        ("open", "t"): None,
    }
    database.execute("DROP SCHEMA open, closed CASCADE; DROP ROLE reader")
    assert postgres.target is not None and postgres.target.why_unwritable(ObjectName(("public", "t"))) is None


def test_a_user_who_may_not_ask_for_the_systems_identifier_sees_the_same_table(
    database: psycopg.Connection[Any], postgres_database: str, postgres: Connector
) -> None:
    database.execute("CREATE TABLE orders (id int); REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    database.execute("CREATE ROLE teller LOGIN PASSWORD 'teller'; GRANT SELECT ON orders TO teller")
    orders = table("public", "orders")
    assert postgres.source is not None
    try:
        with opened("postgres", url=postgres_database, user="teller", password="teller") as connector:
            assert connector.source is not None
            ours, theirs = (one.describe([orders])[orders] for one in (postgres.source, connector.source))
    finally:
        database.execute("DROP OWNED BY teller; DROP ROLE teller")
    assert ours is not None and theirs is not None and ours.identity != theirs.identity
    assert "unknown@" in theirs.system
    assert same_identity(ours.identity, theirs.identity) and same_identity(theirs.system, ours.system)
