"""Whose failure it was: by the place or the system that an error names, otherwise nobody's."""

from __future__ import annotations

import pytest

from flowctl.diagnostics import Mark
from flowctl.errors import TransientError, WriteConflict
from flowctl.run.failure import at_fault
from flowctl.spec.secrets import parse_secrets
from flowctl.spec.spec import Connection


def connection(name: str, type: str, **options: str) -> Connection:
    return Connection(name, type, {key: parse_secrets(value) for key, value in options.items()}, Mark("flow.yaml", 1))


SOURCE = connection("src", "postgres", url="postgresql://etl:${secret:env:PW}@10.0.0.1:5432/shop")
OTHER = connection("dst", "postgres", host="10.0.0.2", port="5433", database="shop")
TWIN = connection("twin", "postgres", url="postgresql://etl:${secret:env:PW}@10.0.0.1:5432/copy")
LAKE = connection("lake", "delta", path="s3://lake/tables")
FILE = connection("file", "sqlite", path="source.db")


@pytest.mark.parametrize(
    ("text", "connections", "found"),
    [
        ("Connection to 10.0.0.1:5432 refused. Check that the hostname", (SOURCE, OTHER), ("src",)),
        ("PostgreSQL 10.0.0.2:5433/shop: server closed the connection", (SOURCE, OTHER), ("dst",)),
        (
            "org.postgresql.util.PSQLException: An I/O error occurred while sending to the backend",
            (SOURCE, LAKE),
            ("src",),
        ),
        ("org.postgresql.util.PSQLException: An I/O error occurred while sending to the backend", (SOURCE, OTHER), ()),
        ("SlowDown: s3a://lake/tables/orders/_delta_log/1.json", (SOURCE, LAKE), ("lake",)),
        ("Connection to 10.0.0.1:5432 refused", (SOURCE, TWIN), ("src", "twin")),
        ("/data/source.db: disk I/O error", (FILE, SOURCE), ("file",)),
        ("StatusCode.UNAVAILABLE failed to connect to all addresses 127.0.0.1:15002", (SOURCE, LAKE), ()),
        ("Spark lost executors: ExecutorLostFailure", (SOURCE, LAKE), ()),
        ("io.delta.exceptions.ConcurrentAppendException: [DELTA_CONCURRENT_APPEND]", (SOURCE, LAKE), ()),
        ("/data/source.db: database is locked", (FILE, LAKE), ()),
    ],
)
def test_only_the_connection_that_an_error_names(
    text: str, connections: tuple[Connection, ...], found: tuple[str, ...]
) -> None:
    assert at_fault(RuntimeError(text), connections) == found


def test_no_connection_is_to_blame_for_another_writer() -> None:
    """Whatever place the text names, and whatever hides it."""
    conflict = WriteConflict("another writer committed to s3://lake/tables/orders at the same moment")
    hidden = TransientError("the commit failed")
    hidden.__cause__ = conflict
    assert at_fault(conflict, (SOURCE, LAKE)) == at_fault(hidden, (SOURCE, LAKE)) == ()
    assert at_fault(TransientError(conflict.message), (SOURCE, LAKE)) == ("lake",)
