"""What a connection's options say of the server, checked before it is asked."""

from __future__ import annotations

import pytest

from flowctl.connectors.postgres.client import SSL_MODES, client
from flowctl.errors import AccessDenied, TableError

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


def test_parameters_of_the_url_and_the_options() -> None:
    made = client({"url": f"{URL}?sslmode=require", "options": {"connect_timeout": "5"}})
    assert dict(made.parameters) == {"sslmode": "require", "connect_timeout": "5"}


@pytest.mark.parametrize("mode", ["require", "verify-full"])
def test_a_server_without_tls(postgres_database: str, mode: str) -> None:
    given = client({"url": f"{postgres_database}?sslmode={mode}"})
    with pytest.raises(AccessDenied) as caught, given.connect():
        pass
    assert caught.value.hint == "Set up TLS on the server, or correct `sslmode` and `sslrootcert` here"
