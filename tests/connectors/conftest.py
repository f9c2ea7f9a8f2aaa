"""What the contract suite of targets needs: a buffer, a place for each target, and a hand that writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flowctl.connectors.base import Scratch
from flowctl.state.buffer import Buffer
from tests.connectors.target_matrix import FACTORIES, Place
from tests.connectors.writing import Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Scratch]:
    with Buffer(str(tmp_path / "state" / "flow"), "run-1", {}) as buffer:
        yield buffer


@pytest.fixture(params=sorted(FACTORIES))
def place(request: pytest.FixtureRequest, tmp_path: Path, scratch: Scratch) -> Iterator[Place]:
    """A table that is not there yet, on each target in turn."""
    with FACTORIES[request.param](request, tmp_path, scratch) as opened:
        yield opened


@pytest.fixture
def writer(spark: SparkSession, place: Place) -> Writer:
    return Writer(spark, place)
