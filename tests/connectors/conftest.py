"""What the contract suite of targets needs: a buffer, a place for each target, and a hand that writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from flowctl.connectors.base import Connector
from flowctl.connectors.postgres import source as postgres_source
from flowctl.storage.buffer import Buffer
from tests.connectors.reading import opened
from tests.connectors.sail_gaps import GAPS
from tests.connectors.target_matrix import FACTORIES, Place
from tests.connectors.writing import Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: Suites about what becomes of a batch: they run with batches in memory too, in the short form on Sail.
OF_BATCHES = tuple(f"tests.connectors.test_{name}" for name in ("target", "target_history", "quarantine"))
#: What is flowctl's own for engines without a JVM or asks little of one, and what takes long on a JVM though
#: `delta/test_history.py` and the rest of these files ask it there too.
ON_SAIL = tuple(
    f"tests/connectors/{name}"
    for name in (
        "delta/test_adopted.py",
        "delta/test_commit.py",
        "delta/test_maintain.py",
        "delta/test_readers.py",
        "test_history_of_others.py",
        "test_hostile.py::test_values_in_keys_of_a_merge[postgres-partitioned",
        "test_hostile.py::test_values_in_keys_of_a_merge[sqlite-partitioned",
        "test_hostile.py::test_bounds_of_a_batch_of_one_key[postgres",
        "test_hostile.py::test_bounds_of_a_batch_of_one_key[sqlite",
        "test_quarantine.py",
        "postgres/test_sail.py",
        "test_target_history.py::test_a_flag_without_a_newer_event_time",
        "test_target_history.py::test_a_key_that_is_gone",
        "test_target_history.py::test_a_new_column_fills",
        "test_target_history.py::test_a_version_has_the_row",
        "test_target_history.py::test_late_rows_deletions_and_replays_give_the_history_of_all_observations[delta",
        "test_target_history.py::test_the_sidecar_of_an_older_version_gets_its_columns[postgres",
        "test_target.py::test_columns_that_are_not_compared",
        "test_target.py::test_null_and_empty_text_are_different",
        "test_target.py::test_soft_deletes_mark_rows",
        "test_target_types.py::test_what_a_target_cannot_hold_is_refused_by_name_and_anything_else_is_exact[sqlite",
    )
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("FLOWCTL_TEST_SPARK") == "sail":
        _leave_out_what_sail_cannot(items)
        return
    for item in items:  # `make test` runs these on Sail, in half a minute instead of several
        if item.nodeid.startswith(ON_SAIL) or "COPY" in item.nodeid.partition("[")[2].split("-"):
            item.add_marker(pytest.mark.full)


def _leave_out_what_sail_cannot(items: list[pytest.Item]) -> None:
    for item in items:
        name = item.nodeid.removeprefix("tests/connectors/")
        for start, reason in GAPS.items():
            if name.startswith(start):
                item.add_marker(pytest.mark.skip(reason=f"not on Sail: {reason}"))


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
        on_sail = os.environ.get("FLOWCTL_TEST_SPARK") == "sail"
        in_memory = pytest.param(True, marks=() if on_sail else pytest.mark.full)
        metafunc.parametrize("writer", [False, in_memory], indirect=True, ids=["on engine", "in memory"])


@pytest.fixture
def writer(spark: SparkSession, place: Place, request: pytest.FixtureRequest) -> Writer:
    return Writer(spark, place, in_memory=getattr(request, "param", False))


@pytest.fixture
def delta_writer(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, scratch: Buffer
) -> Iterator[Writer]:
    """For what is Delta's alone."""
    with FACTORIES["delta"](request, tmp_path, scratch) as place:
        yield Writer(spark, place)


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


#: An engine without a JVM has no JDBC.
READERS = ["COPY"] if os.environ.get("FLOWCTL_TEST_SPARK") == "sail" else ["jdbc", "COPY"]


@pytest.fixture(params=READERS)
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """PostgreSQL's readers in turn, also on an engine that would choose the other."""
    monkeypatch.setattr(postgres_source, "has_jvm", lambda spark: request.param == "jdbc")
    return str(request.param)


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
