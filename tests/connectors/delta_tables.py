"""What tests of Delta's files ask of a writer's table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flowctl.connectors.base import Scratch
from flowctl.connectors.delta import log, replay
from flowctl.connectors.delta.location import TableLocation, location_of
from flowctl.connectors.engine import has_jvm
from tests.connectors.target_matrix import delta
from tests.connectors.writing import Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def writer_on_spark(
    spark: SparkSession, request: pytest.FixtureRequest, folder: Path, scratch: Scratch, why: str
) -> Iterator[Writer]:
    """A writer into an empty lake; skips on Sail, saying ``why``."""
    if not has_jvm(spark):
        pytest.skip(why)
    with delta(request, folder, scratch) as place:
        yield Writer(spark, place)


def location(writer: Writer) -> TableLocation:
    return location_of(writer.place.options["path"], writer.place.object, {})


def files(writer: Writer) -> list[dict[str, Any]]:
    """The ``add`` actions of the table's files."""
    table = log.open_table(location(writer))
    assert table is not None
    return list(replay.replayed(location(writer), table.version()).files)
