"""Nothing waits for ever, for a lock, a server or a signal: each wait has a bound (`bounds.py`) and ends when asked."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from flowctl.connectors.base import Connector
from flowctl.connectors.postgres.client import Client, client
from flowctl.connectors.source import ReadRequest
from flowctl.connectors.sql import timeouts, waiting
from flowctl.errors import FlowctlError, TableError, TransientError
from flowctl.spec.spec import ReadHints
from tests.connectors.reading import describe, table
from tests.services import postgres as servers
from tests.services.postgres import paused_later

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def postgres(postgres: Connector, reader: str) -> Connector:  # noqa: ARG001 - by each reader in turn
    return postgres


@pytest.fixture
def uninterrupted() -> Iterator[None]:
    try:
        yield
    finally:
        waiting.begin()


@pytest.mark.usefixtures("impatient_readers")
@pytest.mark.parametrize(
    "statement",
    ["VACUUM FULL orders", pytest.param("ALTER TABLE orders ALTER COLUMN grp TYPE bigint", marks=pytest.mark.full)],
)
def test_a_read_does_not_wait_behind_those_who_wait_for_it(
    spark: SparkSession,
    database: psycopg.Connection[Any],
    postgres_database: str,
    postgres: Connector,
    statement: str,
) -> None:
    """The holder has ACCESS SHARE, somebody queues for ACCESS EXCLUSIVE behind it, and only then the driver asks for
    the bounds of the parts. On a connection of its own it stood behind them, and they behind the holder."""
    database.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, grp int);"
        "INSERT INTO orders SELECT i, i % 100 FROM generate_series(1, 5000) i; ANALYZE orders"
    )
    relation = table("public", "orders")
    info = describe(postgres.source, relation)
    ended: list[BaseException | int] = []

    def read() -> None:
        try:
            with postgres.source.snapshot(spark, relation, info, ReadHints(splits=2, split_by="grp")) as snapshot:
                _in_background(postgres_database, statement)
                ended.append(snapshot.frame(ReadRequest(info.columns)).count())
        except FlowctlError as error:
            ended.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(60)
    assert ended, "it waits for itself"
    assert ended == [5000] or isinstance(ended[0], TransientError), ended


def test_a_lock_that_is_held_ends_a_query_of_the_plan(
    database: psycopg.Connection[Any],
    postgres_database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flowctl.connectors.postgres import client as clients

    monkeypatch.setitem(clients.SESSION_SETTINGS, "lock_timeout", "200ms")
    database.execute("CREATE TABLE orders (id bigint)")
    with (
        _transaction(postgres_database, "LOCK TABLE orders"),
        pytest.raises(TransientError, match="lock timeout"),
        client({"url": postgres_database}).connect() as connection,
    ):
        connection.execute("SELECT max(id) FROM orders")


@pytest.mark.usefixtures("uninterrupted")
def test_an_interruption_ends_what_waits_for_a_lock(postgres_database: str, database: psycopg.Connection[Any]) -> None:
    database.execute("CREATE TABLE orders (id bigint)")
    with _transaction(postgres_database, "LOCK TABLE orders"):
        error, seconds = _interrupted(client({"url": postgres_database}), "SELECT max(id) FROM orders")
    assert isinstance(error, TableError) and "asked to stop" in error.message
    assert seconds < 12


@pytest.mark.server
@pytest.mark.usefixtures("uninterrupted")
def test_an_interruption_ends_what_waits_for_a_server_that_is_paused() -> None:
    with servers.server() as url, paused_later(url) as pause:
        error, seconds = _interrupted(client({"url": url}), "SELECT pg_sleep(100)", pause)
        assert isinstance(error, TableError) and "asked to stop" in error.message
        assert seconds < 15
        started = time.monotonic()
        with pytest.raises(TransientError), client({"url": url}).connect():
            pass
        assert time.monotonic() - started < timeouts.CONNECT, "what comes after an interruption waits less"


@pytest.mark.full
@pytest.mark.server
def test_a_server_that_stops_answering_ends_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "SILENCE", 1.0)
    monkeypatch.setattr(timeouts, "CONNECT", 2.0)
    with servers.server() as url, paused_later(url) as pause:
        place = client({"url": url})
        with pytest.raises(TransientError, match="does not answer any more"), place.connect() as connection:
            threading.Timer(0.5, pause).start()
            connection.execute("SELECT pg_sleep(100)")


def test_a_server_that_answers_may_take_its_time(monkeypatch: pytest.MonkeyPatch, postgres_database: str) -> None:
    monkeypatch.setattr(timeouts, "SILENCE", 0.4)
    with client({"url": postgres_database}).connect() as connection:
        assert connection.execute("SELECT 1 FROM pg_sleep(3)").fetchone() == (1,)


def test_executors_give_up_a_server_that_sends_nothing(
    spark: SparkSession, database: psycopg.Connection[Any], postgres: Connector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view whose first row takes longer than the bound stands for a server that was paused."""
    monkeypatch.setattr(timeouts, "EXECUTOR_SILENCE", 2.0)
    database.execute("CREATE VIEW slow AS SELECT 1 AS id FROM pg_sleep(20)")
    relation = table("public", "slow")
    info = describe(postgres.source, relation)
    started = time.monotonic()
    with (
        pytest.raises(Exception, match=r"sent nothing for|I/O error"),
        postgres.source.snapshot(spark, relation, info, ReadHints()) as snapshot,
    ):
        snapshot.frame(ReadRequest(info.columns)).collect()
    assert time.monotonic() - started < 18


def test_every_connection_has_its_bounds(postgres_database: str) -> None:
    with client({"url": postgres_database}).connect() as connection:
        for name in ("lock_timeout", "statement_timeout"):
            assert connection.execute(f"SHOW {name}").fetchone() not in (None, ("0",))
    jdbc = client({"url": postgres_database}).jdbc_url()
    assert all(name in jdbc for name in ("connectTimeout=", "loginTimeout=", "socketTimeout=", "tcpKeepAlive="))


def _in_background(url: str, statement: str) -> None:
    """Begins ``statement`` and returns once it waits for a lock."""

    def run() -> None:
        with contextlib.suppress(psycopg.Error), psycopg.connect(url, autocommit=True) as other:
            other.execute("SET lock_timeout = '40s'")
            other.execute(statement.encode())

    threading.Thread(target=run, daemon=True).start()
    with psycopg.connect(url, autocommit=True) as watcher:
        while not watcher.execute("SELECT 1 FROM pg_locks WHERE NOT granted AND relation IS NOT NULL").fetchone():
            time.sleep(0.05)


@contextlib.contextmanager
def _transaction(url: str, statement: str) -> Iterator[None]:
    with psycopg.connect(url) as other:
        other.execute(statement.encode())
        yield
        other.rollback()


def _interrupted(
    place: Client, statement: str, before: Callable[[], None] = lambda: None
) -> tuple[BaseException | None, float]:
    """How a statement that would wait ends once the run is interrupted, and after how many seconds."""
    waits = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with place.connect() as connection:
                waits.set()
                connection.execute(statement.encode())
        except FlowctlError as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert waits.wait(20)
    time.sleep(0.5)
    before()
    started = time.monotonic()
    waiting.interrupt_all()
    thread.join(40)
    return (errors[0] if errors else None), time.monotonic() - started
