"""Tables that somebody else has a hand in: their columns, their rows, their NOT NULL."""

from __future__ import annotations

from typing import Any

import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import ArrayType, PrimitiveType, StructType

from flowctl.connectors.delta.features import NESTED_NOT_NULL, demanding_features
from flowctl.model import types
from flowctl.model.mode import Mode
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column, TableInfo
from flowctl.spec.spec import Layout
from tests.connectors.delta import delta_tables
from tests.connectors.writing import COLUMNS, Row, Writer, gone, row, upserts

pytestmark = pytest.mark.long_on_spark

THEIRS = Column("theirs", types.STRING)
LAYOUTS = {"deletion vectors": Layout(), "without": Layout(deletion_vectors=False)}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("rows", [2, None], ids=["counted", "uncounted"])
def test_rows_of_one_key_stay_as_many_and_keep_what_others_have_written(
    writer: Writer, layout: Layout, rows: int | None
) -> None:
    """What append has written twice is merged by a key that is none: 2 rows became 4, then 16."""
    columns = (*COLUMNS, THEIRS)
    made = writer.place.target.create_statements(writer.place.object, columns, layout)
    there = [(row(1), "x"), (row(1, "b"), "y"), (row(2), "z"), (row(3), "w")]
    writer.write([{**one, "theirs": theirs} for one, theirs in there], 1, columns=columns, create=made)

    def after(seq: int, *batch: Row) -> list[tuple[Any, ...]]:
        writer.write(batch, seq, "merge", layout=layout, rows=rows)
        return sorted(writer.place.read(["id", "name", "theirs"]), key=str)

    merged = after(2, *upserts(row(1, "b"), row(4)))
    assert merged == [(1, "b", "x"), (1, "b", "y"), (2, "a", "z"), (3, "a", "w"), (4, "a", None)]
    merged = after(3, *upserts(row(1, "c")), gone(2))
    assert merged == [(1, "c", "x"), (1, "c", "y"), (3, "a", "w"), (4, "a", None)]
    assert after(4, gone(1), *upserts(row(3, "d"))) == [(3, "d", "w"), (4, "a", None)]


def theirs(writer: Writer, *fields: Field) -> TableInfo:
    """A table that somebody else has made."""
    DeltaTable.create(delta_tables.location(writer).url, Schema([*fields]))
    return writer.info()


NOT_NULL = (Column("id", types.INT64, nullable=False), *COLUMNS[1:])


def adopted(writer: Writer) -> None:
    theirs(
        writer,
        Field("id", PrimitiveType("long"), nullable=False),
        Field("name", PrimitiveType("string")),
        Field("amount", PrimitiveType("decimal(12,2)")),
    )


@pytest.mark.parametrize("mode", ["append", "merge", "truncate"])
def test_not_null_stays_unless_the_plan_says_otherwise(writer: Writer, mode: Mode) -> None:
    adopted(writer)
    batch = upserts if mode == "merge" else lambda *rows: list(rows)
    writer.write(batch(row(1)), 1, mode, columns=NOT_NULL)
    writer.write(batch(row(2)), 2, mode, columns=NOT_NULL)
    assert not writer.info().column("id").nullable
    change = SchemaChange("id", "nullable", types.INT64, types.INT64, "relax", "on_schema_change.nullable: relax")
    (made,) = writer.place.target.alter_statements(writer.info(), [change])
    writer.write(batch(row(3)), 3, mode, alter=[made])
    assert writer.info().column("id").nullable


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_null_where_the_target_takes_none_commits_nothing(writer: Writer, in_memory: bool) -> None:
    adopted(writer)
    with pytest.raises(Exception, match=r"column id is NOT NULL|NOT NULL constraint violated for column: id"):
        writer.write([row(1), {**row(1), "id": None}], 1, columns=NOT_NULL, in_memory=in_memory)
    assert writer.committed() is None
    assert not writer.info().column("id").nullable


def test_not_null_within_a_column_is_left_to_delta(writer: Writer) -> None:
    parts = StructType([Field("a", PrimitiveType("integer"), nullable=False)])
    found = theirs(writer, Field("id", PrimitiveType("long")), Field("pair", ArrayType(parts, True)))
    assert demanding_features(found.extra["features"], {}) == [NESTED_NOT_NULL]
