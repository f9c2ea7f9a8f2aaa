"""A catalog of Iceberg tables in a folder, a table in it, and a connection to it as a source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.connectors.iceberg.foreign_tables import (
    NAMESPACE,
    catalog_in,
    connection,
)
from tests.connectors.iceberg.source_reading import SCHEMA
from tests.connectors.reading import opened


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = catalog_in(tmp_path)
    yield made
    made.close()


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Any]:
    with opened("iceberg", base_dir=str(tmp_path), **connection(tmp_path)) as connector:
        yield connector.source


@pytest.fixture
def orders(catalog: SqlCatalog) -> Table:
    return catalog.create_table(f"{NAMESPACE}.orders", schema=SCHEMA, properties={"format-version": "2"})
