"""For what is Delta's alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flowctl.storage.buffer import Buffer
from tests.connectors.target_matrix import delta
from tests.connectors.writing import Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def writer(spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, scratch: Buffer) -> Iterator[Writer]:
    """Into an empty lake."""
    with delta(request, tmp_path, scratch) as place:
        yield Writer(spark, place)
