"""Tables that somebody else has a hand in: their columns, their rows, their NOT NULL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flowctl.connectors.base import Scratch
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.spec.spec import Layout
from tests.connectors.target_matrix import delta
from tests.connectors.writing import COLUMNS, Row, Writer, gone, upserts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

THEIRS = Column("theirs", types.STRING)
LAYOUTS = {"deletion vectors": Layout(), "without": Layout(deletion_vectors=False)}


@pytest.fixture
def writer(spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, scratch: Scratch) -> Iterator[Writer]:
    with delta(request, tmp_path, scratch) as place:
        yield Writer(spark, place)


def row(id: int, name: str | None = "a") -> Row:
    return {"id": id, "name": name, "amount": None}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("rows", [2, None], ids=["counted", "uncounted"])
def test_rows_of_one_key_stay_as_many_and_keep_what_others_have_written(
    writer: Writer, layout: Layout, rows: int | None
) -> None:
    """What append has written twice is merged by a key that is none: 2 rows became 4, then 16."""
    columns = (*COLUMNS, THEIRS)
    made = writer.place.target.create_statements(writer.place.object, columns, layout)
    there = [(row(1), "x"), (row(1, "b"), "y"), (row(2), "z"), (row(3), "w")]
    writer.write([{**one, "theirs": theirs} for one, theirs in there], 1, columns=columns, statements=made)

    def after(seq: int, *batch: Row) -> list[tuple[Any, ...]]:
        writer.write(batch, seq, "merge", layout=layout, rows=rows)
        return sorted(writer.place.read(["id", "name", "theirs"]), key=str)

    merged = after(2, *upserts(row(1, "b"), row(4)))
    assert merged == [(1, "b", "x"), (1, "b", "y"), (2, "a", "z"), (3, "a", "w"), (4, "a", None)]
    merged = after(3, *upserts(row(1, "c")), gone(2))
    assert merged == [(1, "c", "x"), (1, "c", "y"), (3, "a", "w"), (4, "a", None)]
    assert after(4, gone(1), *upserts(row(3, "d"))) == [(3, "d", "w"), (4, "a", None)]
