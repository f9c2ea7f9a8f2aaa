"""Histories in tables to which somebody else has added columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flowctl.storage.buffer import Buffer
from tests.connectors.target_matrix import FACTORIES
from tests.connectors.test_target_history import COLUMNS, gone, seen, versions, write
from tests.connectors.writing import Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long_on_spark

#: A number of the row's own, a note, and a default.
NOTE = "ALTER TABLE {table} ADD note TEXT DEFAULT 'new' NOT NULL"
ADDED = {
    "duckdb": ["ALTER TABLE {table} ADD sk INTEGER DEFAULT 7", "ALTER TABLE {table} ADD note TEXT DEFAULT 'new'"],
    "postgres": ["ALTER TABLE {table} ADD sk bigserial", NOTE],
    "sqlite": ["ALTER TABLE {table} ADD sk INTEGER DEFAULT 7", NOTE],
}


@pytest.fixture(params=sorted(ADDED))
def writer(spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, scratch: Buffer) -> Iterator[Writer]:
    with FACTORIES[request.param](request, tmp_path, scratch) as place:
        yield Writer(spark, place)


def test_versions_keep_what_others_have_written(writer: Writer) -> None:
    """A version whose end changes was deleted and written anew without it."""
    write(writer, 1, seen("A", 1))
    for statement in ADDED[writer.place.type]:
        writer.place.execute(statement)
    writer.place.execute("UPDATE {table} SET note = 'kept', sk = 1")
    write(writer, 2, seen("C", 5))
    write(writer, 3, seen("B", 3))
    assert versions(writer) == [("A", 1, 3, False), ("B", 3, 5, False), ("C", 5, None, True)]
    assert sorted(writer.place.read(["name", "note"])) == [("A", "kept"), ("B", "new"), ("C", "new")]
    numbers = dict(writer.place.read(["name", "sk"]))
    commit = writer.write([seen("A", 5), gone(8)], 4, "scd2", columns=COLUMNS, compared=("name",))
    assert (commit.counts.inserted, commit.counts.updated, commit.counts.deleted) == (0, 1, 0)
    assert versions(writer) == [("A", 1, 3, False), ("B", 3, 5, False), ("A", 5, 8, False)]
    assert sorted(number for (number,) in writer.place.read(["sk"])) == sorted(numbers.values())
