"""A PostgreSQL target that refuses to be written: a setting, or a standby."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from flowctl.connectors.postgres.client import client
from flowctl.connectors.postgres.commits import why_unwritable
from flowctl.errors import TableError
from flowctl.model.table_info import ObjectName
from tests.services import postgres

T = ObjectName(("public", "t"))
SETTING = "default_transaction_read_only"


def refused(url: str, options: str = "") -> TableError | None:
    with client({"url": url, "options": {"options": options}}).connect() as connection:
        return why_unwritable(connection, T, "merge")


def failed(url: str) -> TableError:
    with pytest.raises(TableError) as met, client({"url": url}).connect() as connection:
        connection.execute("CREATE TABLE t (id int)")
    return met.value


def test_a_setting_is_ended_where_it_is_made(database: psycopg.Connection[Any], postgres_database: str) -> None:
    name = database.info.dbname
    database.execute("DROP ROLE IF EXISTS loader; CREATE ROLE loader SUPERUSER LOGIN PASSWORD 'loader'")
    url = postgres_database.replace("etl:etl-secret", "loader:loader")
    places = (f'ALTER DATABASE "{name}"', f'ALTER ROLE "loader" IN DATABASE "{name}"', 'ALTER ROLE "loader"')
    try:
        assert refused(url) is None
        for place in places:
            database.execute(f"{place} SET {SETTING} = on".encode())
            error = refused(url)
            assert error is not None and error.hint == f"{place} RESET {SETTING}"
            assert error.message == f"public.t cannot be written: {SETTING} is on for loader"
            run = failed(url)
            assert "cannot execute CREATE TABLE in a read-only transaction" in run.message
            assert run.hint == f"Name the primary server, or: ALTER ROLE loader RESET {SETTING}"
            database.execute(error.hint.encode())
            assert refused(url) is None
        by_client = refused(url, f"-c {SETTING}=on")
        assert by_client is not None and by_client.hint == f"Remove {SETTING} from the connection's `options`"
    finally:
        database.execute("DROP ROLE loader")


@pytest.mark.server
@pytest.mark.full
def test_a_standby_is_no_target() -> None:
    with (
        postgres.cluster() as primary,
        primary.started(),
        postgres.standby_of(primary) as copy,
        copy.started() as standby,
    ):
        error = refused(standby)
        assert error is not None and error.message == "public.t cannot be written: the server is a standby"
        assert error.hint == "Name the primary server"
        assert failed(standby).hint.startswith("Name the primary server, or")
