"""What the contract suite of targets needs: a buffer, a place for each target, and a hand that writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from flowctl.connectors.base import Connector
from flowctl.connectors.postgres import snapshot
from flowctl.connectors.postgres import source as postgres_source
from flowctl.connectors.sql import timeouts
from flowctl.storage.buffer import Buffer
from tests.connectors.pairs import pairs
from tests.connectors.reading import opened
from tests.connectors.target_matrix import FACTORIES, Place
from tests.connectors.writing import Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: Suites about what becomes of a batch: they run with batches in memory too, in the short form on Sail.
OF_BATCHES = tuple(
    f"tests.connectors.test_{name}" for name in ("target", "target_history", "target_order", "quarantine")
)


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Buffer]:
    with Buffer(str(tmp_path / "state" / "flow"), "run-1", {}) as buffer:
        yield buffer


@pytest.fixture(params=sorted(FACTORIES))
def place(request: pytest.FixtureRequest, tmp_path: Path, scratch: Buffer) -> Iterator[Place]:
    """A table that is not there yet, on each target in turn."""
    with FACTORIES[request.param](request, tmp_path, scratch) as opened:
        yield opened


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "writer" in metafunc.fixturenames and metafunc.module.__name__ in OF_BATCHES:
        in_memory = pytest.param(True, marks=pytest.mark.long_on_spark)
        metafunc.parametrize("writer", [False, in_memory], indirect=True, ids=["on engine", "in memory"])


@pytest.fixture
def writer(spark: SparkSession, place: Place, request: pytest.FixtureRequest) -> Writer:
    return Writer(spark, place, in_memory=getattr(request, "param", False))


@pytest.fixture
def database(postgres_database: str) -> Iterator[psycopg.Connection[Any]]:
    """This test's database, as somebody else works in it."""
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def postgres(postgres_database: str) -> Iterator[Connector]:
    """The same as a connection of a flow."""
    with opened("postgres", url=postgres_database) as connector:
        yield connector


@pytest.fixture(
    params=[
        pytest.param("jdbc", marks=pytest.mark.needs("JDBC")),
        pytest.param("COPY", marks=pytest.mark.long_on_spark),
    ]
)
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """PostgreSQL's readers in turn, also on an engine that would choose the other."""
    monkeypatch.setattr(postgres_source, "has_jvm", lambda spark: request.param == "jdbc")
    return str(request.param)


@pytest.fixture
def impatient_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL's: behind somebody who waits for the snapshot's own lock."""
    monkeypatch.setattr(timeouts, "READER_LOCK", 1.0)
    monkeypatch.setitem(snapshot.READER_SETTINGS, "lock_timeout", "1000ms")


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    folder = tmp_path / "in box"
    folder.mkdir()
    return folder


@pytest.fixture
def source(inbox: Path) -> Iterator[Any]:
    """The folder as a source of files."""
    with opened("files", base_dir=str(inbox.parent), path=inbox.name) as connector:
        yield connector.source


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the table of sources and targets after the long matrix."""
    passed, gaps, failed = (terminalreporter.stats.get(name, []) for name in ("passed", "xfailed", "failed"))
    lines = [*pairs((one for one in [*passed, *gaps] if one.when == "call"), failed)]
    if len(lines) > 3:
        terminalreporter.section("sources and targets")
        terminalreporter.write_line("\n".join(lines))
