"""The PostgreSQL that the other tests rely on."""

import psycopg


def test_databases_are_empty_and_apart(postgres_server: str, postgres_database: str) -> None:
    with psycopg.connect(postgres_database) as there, psycopg.connect(postgres_server) as server:
        there.execute("CREATE TABLE t (id int)")
        assert there.execute("SHOW timezone").fetchone() == ("Europe/Amsterdam",)
        assert server.execute("SELECT to_regclass('t')").fetchone() == (None,)
