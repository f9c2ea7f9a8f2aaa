"""Names and values that mean something to a layer below arrive as they are, on every target and engine."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from flowctl.model import types
from flowctl.model.position import CursorPosition
from flowctl.model.table_info import Column
from flowctl.model.value import TypedValue
from flowctl.spec.spec import Layout
from tests.connectors.hostile import TEXTS, VALUES
from tests.connectors.target_matrix import FACTORIES
from tests.connectors.writing import COLUMNS, Writer, upserts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT_KEYED = (Column("id", types.STRING), Column("part", types.STRING), Column("amount", types.Decimal(12, 2)))


def test_sql_text_is_taken_as_it_is(spark: SparkSession) -> None:
    """On every engine: no variable is filled in, and an escape is one."""
    assert spark.sql("SELECT '${spark.app.name}${x}' AS v").first()["v"] == "${spark.app.name}${x}"
    assert spark.sql(r"SELECT 'a\\b' AS v").first()["v"] == "a\\b"


PARTITIONED = Layout(partition_by=("part",))


@pytest.mark.long_on_spark("postgres")
@pytest.mark.modes("merge")
@pytest.mark.parametrize(
    ("place", "layout"),
    [
        *(pytest.param(name, Layout(), id=name) for name in sorted(FACTORIES)),
        pytest.param("delta", PARTITIONED, id="delta-partitioned", marks=pytest.mark.long_on_spark),
    ],
    indirect=["place"],
)
def test_values_in_keys_of_a_merge(writer: Writer, layout: Layout) -> None:
    values = [value for value in VALUES.values() if "\x00" not in value or writer.place.type == "delta"]
    made = writer.place.target.create_statements(writer.place.object, list(TEXT_KEYED), layout)

    def rows(amount: str) -> list[dict[str, object]]:
        return upserts(*({"id": value, "part": "p", "amount": Decimal(amount)} for value in values))

    writer.write(rows("1"), 1, "merge", columns=TEXT_KEYED, create=made, layout=layout, compared=("part", "amount"))
    for seq, amount in ((2, "2"), (3, "3")):
        writer.write(rows(amount), seq, "merge", columns=TEXT_KEYED, layout=layout, compared=("part", "amount"))
    expected = sorted((value, "p", Decimal(3)) for value in values)
    assert (
        sorted((key, part, Decimal(amount)) for key, part, amount in writer.place.read(["id", "part", "amount"]))
        == expected
    )


@pytest.mark.modes("merge")
@pytest.mark.long_on_spark
@pytest.mark.parametrize("value", ["${x}zz", "it's \\n", "\\"])
def test_bounds_of_a_batch_of_one_key(writer: Writer, value: str) -> None:
    """The literal bounds of its keys are this one value."""
    layout = PARTITIONED if writer.place.type == "delta" else Layout()
    made = writer.place.target.create_statements(writer.place.object, list(TEXT_KEYED), layout)
    row = {"id": value, "part": "p", "amount": Decimal(1)}
    options = {"columns": TEXT_KEYED, "layout": layout, "compared": ("part", "amount")}
    writer.write(upserts(row), 1, "merge", create=made, **options)
    writer.write(upserts({**row, "amount": Decimal(2)}), 2, "merge", **options)
    assert [(key, Decimal(amount)) for key, amount in writer.place.read(["id", "amount"])] == [(value, Decimal(2))]


@pytest.mark.modes("merge")
def test_the_record_of_a_commit(writer: Writer) -> None:
    """A position may hold any text: a cursor of text is one. Delta's statements are given it as a setting of the
    session, and Spark fills in variables of settings too."""
    layout = Layout(partition_by=("name",)) if writer.place.type == "delta" else Layout()
    made = writer.place.target.create_statements(writer.place.object, list(COLUMNS), layout)
    position = CursorPosition(TypedValue(types.STRING, "|".join(TEXTS.values())))
    job = writer.job(1, "merge", create=made, layout=layout)
    job = replace(job, record=replace(job.record, position=position))
    rows = upserts({"id": 1, "name": "a", "amount": Decimal(1)})
    assert writer.place.target.write(writer.spark, writer.batch(rows, job.columns), job).position == position
    found = writer.committed()
    assert found is not None and found.position == position
