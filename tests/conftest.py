"""The servers and the Spark that tests share, each started when the first test asks for it."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest

from flowctl.connectors import registry
from flowctl.engine.base import Engine
from flowctl.engine.start import open_engine
from flowctl.model.mode import Mode
from flowctl.spec.schema import connector_types, target_modes
from flowctl.spec.spec import SparkSettings
from flowctl.storage.blobs import BlobStore
from tests import engines
from tests.services import azurite, gcs, iceberg_rest, kafka, mariadb, postgres, s3, schemas
from tests.services import spark as spark_servers
from tests.services.s3_proxy import S3Proxy
from tests.storage.stores import Bucket, StoreAddress, address_on, new_bucket

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count(1)

#: A test that uses one of these starts a database, an object store or an engine: `make test-unit` leaves it out.
SERVER_FIXTURES = {
    "postgres_server",
    "mariadb_server",
    "databases",
    "kafka_broker",
    "schema_registry",
    "s3_server",
    "moto",
    "versitygw",
    "azure_server",
    "gcs_server",
    "rest_catalog",
    "engine",
    "connect_server",
    "cluster",
}

#: Of those, servers that take long to install: their tests are `full`.
LONG_SERVERS = {"azure_server", "gcs_server", "rest_catalog"}

#: Small enough that several fit beside each other on two cores.
TEST_SPARK_CONF = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
TEST_JARS = ("delta", "postgresql", "s3a")

#: Each is one empty, real store: the contract suites of state and leases run on them. VersityGW and
#: Google's take a build of minutes.
STORES = [
    "disk",
    "memory",
    pytest.param("s3-moto", marks=pytest.mark.server),
    pytest.param("azure", marks=[pytest.mark.server, pytest.mark.full]),
    pytest.param("s3-versitygw", marks=[pytest.mark.server, pytest.mark.full]),
    pytest.param("gcs", marks=[pytest.mark.server, pytest.mark.full]),
]
#: The server of each kind of object store: whole flows run on each.
OBJECT_STORES = [
    pytest.param("s3_server", id="s3", marks=pytest.mark.server),
    pytest.param("azure_server", id="azure", marks=[pytest.mark.server, pytest.mark.full]),
    pytest.param("gcs_server", id="gcs", marks=[pytest.mark.server, pytest.mark.full]),
]

#: Targets that this process writes alone, whatever the engine: their tests run on Sail, and on Spark those marked
#: `smoke`, which are `full` there.
EMBEDDED = ("duckdb", "files", "iceberg", "mysql", "sqlite")
#: Of those, databases whose suite is long on Sail too, but for the tests marked `smoke`: SQLite's is that of DuckDB.
LONG = ("duckdb", "mysql")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests that need a server or the engine, by their fixtures. Tests that start one otherwise carry the mark
    themselves."""
    for item in items:
        if isinstance(item, pytest.Function) and not SERVER_FIXTURES.isdisjoint(item.fixturenames):
            item.add_marker(pytest.mark.server)
            if "engine" in item.fixturenames:
                item.add_marker(pytest.mark.engine)
        if isinstance(item, pytest.Function) and not LONG_SERVERS.isdisjoint(item.fixturenames):
            item.add_marker(pytest.mark.full)
        if item.get_closest_marker("engine"):
            _mark_for_engine(item)
        _skip_modes(item)


def _skip_modes(item: pytest.Item) -> None:
    """Skips a test that writes with a mode which its target cannot take."""
    given = item.callspec.params if hasattr(item, "callspec") else {}
    place = given.get("place", given.get("kind"))
    if place not in connector_types():
        return
    able = target_modes(place)
    modes = {mode for marker in item.iter_markers("modes") for mode in marker.args}
    if unable := sorted((modes | {given.get("mode", able[0])}) & set(get_args(Mode)) - set(able)):
        item.add_marker(pytest.mark.skip(reason=f"{place} cannot take mode {', '.join(unable)}"))


def _mark_for_engine(item: pytest.Item) -> None:
    """What the engine lacks of what a test `needs`; `long_on_spark`, with some targets or with all, is `full` there."""
    for marker in item.iter_markers("needs"):
        for made in engines.marks(marker.args):
            item.add_marker(made)
    given = item.callspec.params if hasattr(item, "callspec") else {}
    place = given.get("place")
    are_long = [not marker.args or place in marker.args for marker in item.iter_markers("long_on_spark")]
    if place in LONG and not item.get_closest_marker("smoke"):
        item.add_marker(pytest.mark.full)
    if place in EMBEDDED and given.get("writer"):  # in memory, where rows of the engine come, too
        item.add_marker(pytest.mark.full)
    if engines.UNDER_TEST != "sail" and (any(are_long) or place in EMBEDDED):
        item.add_marker(pytest.mark.full)
    if engines.UNDER_TEST != "sail" and place in EMBEDDED and not item.get_closest_marker("smoke"):
        item.add_marker(pytest.mark.skip(reason=f"{place} gets the same rows as from Sail"))


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
def mariadb_server() -> Iterator[mariadb.Server]:
    """A MariaDB of our own. Use ``mysql_database`` for tables."""
    with mariadb.server() as started:
        yield started


@pytest.fixture
def mysql_database(mariadb_server: mariadb.Server) -> Iterator[str]:
    """The URL of an empty database of this test alone."""
    with mariadb.database(mariadb_server, f"test_{os.getpid()}_{next(_numbers)}") as url:
        yield url


@pytest.fixture
def databases(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Gives an empty database by the name of its fixture; its server starts when it is needed."""
    return lambda fixture: str(request.getfixturevalue(fixture))


@pytest.fixture(scope="session")
def s3_server() -> Iterator[s3.S3Server]:
    """S3 with nothing in it."""
    with s3.chosen() as server:
        yield server


@pytest.fixture
def s3_bucket(s3_server: s3.S3Server) -> str:
    """The name of an empty bucket of this test alone."""
    name = f"test-{os.getpid()}-{next(_numbers)}"
    s3_server.client().create_bucket(Bucket=name)
    return name


@pytest.fixture(params=OBJECT_STORES)
def bucket(request: pytest.FixtureRequest) -> Bucket:
    """Of each kind of object store."""
    return new_bucket(request.getfixturevalue(request.param))


@pytest.fixture(params=STORES)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> StoreAddress:
    match request.param:
        case "disk":
            return StoreAddress(str(tmp_path / "state" / "shop"))
        case "memory":
            return StoreAddress(f"memory://{uuid.uuid4().hex}/shop")
        case "s3-moto":
            return address_on(request.getfixturevalue("moto"))
        case "s3-versitygw":
            return address_on(request.getfixturevalue("versitygw"))
        case "azure":
            return address_on(request.getfixturevalue("azure_server"))
        case "gcs":
            return address_on(request.getfixturevalue("gcs_server"))
        case unknown:
            raise AssertionError(unknown)


@pytest.fixture
def blobs(address: StoreAddress) -> BlobStore:
    return address.client()


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[str]:
    """The address of a broker."""
    with kafka.broker() as made, made.started() as address:
        yield address


@pytest.fixture(scope="session")
def schema_registry() -> Iterator[str]:
    """The URL of a registry."""
    with schemas.registry() as made, made.started() as url:
        yield url


@pytest.fixture
def topic() -> str:
    """A name that no other test has. The topic does not exist."""
    return f"clicks-{os.getpid()}-{next(_numbers)}"


@pytest.fixture(scope="session")
def moto() -> Iterator[s3.S3Server]:
    with s3.moto() as server:
        yield server


@pytest.fixture(scope="session")
def versitygw() -> Iterator[s3.S3Server]:
    with s3.versitygw() as server:
        yield server


@pytest.fixture(scope="session")
def azure_server() -> Iterator[azurite.AzureServer]:
    with azurite.azurite() as server:
        yield server


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[gcs.GoogleServer]:
    with gcs.fake_gcs() as server:
        yield server


@pytest.fixture(scope="session")
def rest_catalog() -> Iterator[iceberg_rest.Server]:
    """An Iceberg REST catalog."""
    with iceberg_rest.server() as started:
        yield started


@pytest.fixture
def proxy(moto: s3.S3Server) -> Iterator[S3Proxy]:
    with S3Proxy(moto.endpoint) as between:
        yield between


@pytest.fixture(scope="session")
def spark_url(request: pytest.FixtureRequest) -> str:
    """Where the shared Spark is: ``local[2]``; with ``FLOWCTL_TEST_SPARK`` a Spark Connect server (``connect``) or Sail
    (``sail``). One process has one kind only: pyspark's functions ask a variable of the process which kind of column to
    make."""
    match engines.UNDER_TEST:
        case "sail":
            return "sail"
        case "connect":
            return str(request.getfixturevalue("connect_server"))
        case _:
            return "local[2]"


@pytest.fixture(scope="session")
def engine(spark_url: str) -> Iterator[Engine]:
    """The shared Spark."""
    settings = SparkSettings(spark_url, TEST_SPARK_CONF if spark_url.startswith("local") else {})
    size = os.environ.get("FLOWCTL_TEST_SIZE", "small")
    with open_engine(settings, TEST_JARS, {}, size, extensions=registry.extensions()) as started:
        yield started


@pytest.fixture(scope="session")
def spark(engine: Engine) -> SparkSession:
    """A session of the shared Spark, with Delta, the PostgreSQL driver and S3A."""
    return engine.spark


@pytest.fixture(scope="session")
def connect_server() -> Iterator[str]:
    """The ``sc://`` URL of a Spark Connect server that has the jars."""
    with spark_servers.connect_server() as url:
        yield url


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """The ``spark://`` URL of a standalone cluster with two workers."""
    with spark_servers.cluster() as url:
        yield url
