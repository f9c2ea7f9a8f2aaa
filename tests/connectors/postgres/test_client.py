"""What a connection's options say of the server, checked before it is asked."""

from __future__ import annotations

import re

import psycopg
import pytest

from flowctl.connectors.postgres.client import SSL_MODES, client, from_driver
from flowctl.connectors.postgres.executors import without_values
from flowctl.errors import AccessDenied, TableError, TransientError
from tests.services import postgres
from tests.services.postgres_versions import VERSIONS, programs

URL = "postgresql://etl:hunter2@db.example/shop"


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (
            {"url": URL, "options": {"conect_timeout": "5"}},
            "PostgreSQL has no connection parameter `conect_timeout`, which is in `options`",
            "Did you mean `connect_timeout`?",
        ),
        ({"url": f"{URL}?sslmode=requires"}, "there is no sslmode requires", "Did you mean `require`?"),
        (
            {"url": URL, "options": {"sslmode": "on"}},
            "there is no sslmode on",
            f"Use one of {', '.join(sorted(SSL_MODES))}",
        ),
        (
            {"url": f"{URL}?ssl_mode=require"},
            "the connection's url is not a PostgreSQL URL: it has an unknown parameter",
            "Did you mean `sslmode`?",
        ),
    ],
)
def test_a_parameter_that_the_library_does_not_know(options: dict[str, object], message: str, hint: str) -> None:
    with pytest.raises(TableError) as caught:
        client(options)
    assert (caught.value.message, caught.value.hint) == (message, hint)


@pytest.mark.full
@pytest.mark.server
@pytest.mark.parametrize("major", VERSIONS)
def test_a_snapshot_that_was_lost_is_transient(major: int) -> None:
    """A server's words for it differ by version."""
    with postgres.cluster(programs(major)) as made, made.started() as server, psycopg.connect(server) as connection:
        with pytest.raises(psycopg.Error) as error:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '00000005-00000002-1'")
        assert isinstance(from_driver(error.value, client({"url": URL})), TransientError)


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("SELECT s::int FROM t", "invalid input syntax for type integer: …"),
        ("SELECT s::date FROM t", "invalid input syntax for type date: …"),
        ("SELECT 1 FROM t WHERE n = 'opn'", 'invalid input syntax for type integer: "opn"'),
        ("INSERT INTO t VALUES ('secret', 1)", 'duplicate key value violates unique constraint "t_pkey"'),
        ("DO $$ BEGIN RAISE '%', format('no \"%s\"', 'secret'); END $$", "no …"),
    ],
)
def test_values_of_rows_are_not_shown(postgres_database: str, statement: str, told: str) -> None:
    """Literals of the statement are, and names."""
    with (
        pytest.raises(TableError, match=re.escape(told) + "$") as caught,
        client({"url": postgres_database}).connect() as connection,
    ):
        connection.execute("CREATE TEMPORARY TABLE t (s text PRIMARY KEY, n int)")
        connection.execute("INSERT INTO t VALUES ('secret', 1)")
        connection.execute(statement.encode())
    assert "secret" not in str(caught.value)


def test_parameters_of_the_url_and_the_options() -> None:
    made = client({"url": f"{URL}?sslmode=require", "options": {"connect_timeout": "5"}})
    assert dict(made.parameters) == {"sslmode": "require", "connect_timeout": "5"}


@pytest.mark.parametrize(
    ("state", "message", "told"),
    [
        ("22P02", "ungültige Eingabesyntax für Typ integer: »geheim«", "ungültige Eingabesyntax für Typ integer: …"),
        (
            "22P02",
            "syntaxe en entrée invalide pour l'entier : « geheim »",
            "syntaxe en entrée invalide pour l'entier : …",
        ),
        ("22P02", "nieprawidłowa składnia dla typu integer: „geheim”", "nieprawidłowa składnia dla typu integer: …"),
        ("22P02", "invalid input syntax for type integer: 'geheim'", "invalid input syntax for type integer: …"),
        ("22P02", "неверный синтаксис: geheim", "InvalidTextRepresentation"),
        ("22XYZ", "неверный синтаксис: geheim", "SQLSTATE 22XYZ"),
        ("P0001", "Kunde für heute gesperrt", "Kunde für heute gesperrt"),
        ("42703", "Spalte »id« existiert nicht", "Spalte »id« existiert nicht"),
    ],
)
def test_values_are_not_shown_in_other_languages(state: str, message: str, told: str) -> None:
    assert without_values(state, message) == told


@pytest.mark.parametrize("mode", ["require", "verify-full"])
def test_a_server_without_tls(postgres_database: str, mode: str) -> None:
    given = client({"url": f"{postgres_database}?sslmode={mode}"})
    with pytest.raises(AccessDenied) as caught, given.connect():
        pass
    assert caught.value.hint == "Set up TLS on the server, or correct `sslmode` and `sslrootcert` here"
