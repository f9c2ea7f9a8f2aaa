"""A database of a real server, as somebody else works in it, and as a connection of a flow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flowctl.connectors.base import Connector
from flowctl.storage.buffer import Buffer
from tests.connectors.reading import opened
from tests.connectors.target_matrix import FACTORIES, Place
from tests.e2e.flows import mysql_rows
from tests.services import mariadb

#: Runs statements and returns the rows of the last one.
Script = Callable[[str], list[Any]]


@pytest.fixture
def script(mysql_database: str) -> Script:
    return lambda statements: mysql_rows(mysql_database, statements)


@pytest.fixture
def connector(mysql_database: str) -> Iterator[Connector]:
    with opened("mysql", url=mysql_database) as connector:
        yield connector


@pytest.fixture
def source(connector: Connector) -> Any:
    return connector.source


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, scratch: Buffer) -> Iterator[Place]:
    with FACTORIES["mysql"](request, tmp_path, scratch) as opened:
        yield opened


@pytest.fixture
def takes_no_files(mariadb_server: mariadb.Server) -> Iterator[None]:
    mariadb_server.administer("SET GLOBAL local_infile = OFF")
    yield
    mariadb_server.administer("SET GLOBAL local_infile = ON")
