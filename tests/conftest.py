"""The servers and the Spark that tests share, each started when the first test asks for it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from flowctl.run.session import Engine, open_engine
from flowctl.spec.spec import SparkSettings
from tests.services import postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count(1)

#: Small enough that several fit beside each other on two cores.
TEST_SPARK_CONF = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
TEST_JARS = ("delta", "postgresql", "s3a")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The libpq URL of a superuser on a PostgreSQL of our own. Use ``postgres_database`` for tables."""
    with postgres.server() as url:
        yield url


@pytest.fixture
def postgres_database(postgres_server: str) -> Iterator[str]:
    """The libpq URL of an empty database of this test alone."""
    with postgres.database(postgres_server, f"test_{os.getpid()}_{next(_numbers)}") as url:
        yield url


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """A shared Spark: ``local[2]``."""
    with open_engine(SparkSettings("local[2]", TEST_SPARK_CONF), TEST_JARS, {}, "small") as started:
        yield started


@pytest.fixture(scope="session")
def spark(engine: Engine) -> SparkSession:
    """A session of the shared Spark, with Delta, the PostgreSQL driver and S3A."""
    return engine.spark
