"""Rows to which a foreign key of somebody else refers: the next step works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flowctl.errors import TableError
from flowctl.storage.buffer import Buffer
from tests.connectors.target_matrix import FACTORIES, Place
from tests.connectors.writing import Writer, gone, row, upserts

pytestmark = pytest.mark.long_on_spark


@pytest.fixture(params=["mysql", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path, scratch: Buffer) -> Iterator[Place]:
    with FACTORIES[request.param](request, tmp_path, scratch) as opened:
        yield opened


def test_rows_that_others_refer_to(writer: Writer) -> None:
    writer.write(upserts(row(1), row(2)), 1, "merge")
    for statement in (
        "ALTER TABLE {table} ADD PRIMARY KEY (id)",
        "CREATE TABLE child (id BIGINT, FOREIGN KEY (id) REFERENCES {table} (id))",
        "INSERT INTO child VALUES (2)",
    ):
        writer.place.execute(statement)
    with pytest.raises(TableError, match="foreign key constraint") as refused:
        writer.write([gone(2)], 2, "merge")
    assert "Delete the rows that refer to them" in refused.value.hint
    writer.place.execute("DELETE FROM child")
    writer.write([gone(2)], 2, "merge")
    assert writer.place.read(["id"]) == [(1,)]
