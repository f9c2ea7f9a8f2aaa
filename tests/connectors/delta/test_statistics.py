"""Which columns of a Delta table have the range of their values in the log, for readers and merges to skip files by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flowctl.connectors.delta.statements import table_properties
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.spec.spec import Layout
from tests.connectors.writing import COLUMNS, Writer

LISTED, COUNTED = "delta.dataSkippingStatsColumns", "delta.dataSkippingNumIndexedCols"


def ranges(writer: Writer) -> list[dict[str, Any]]:
    """The least values that the log has of each file."""
    log = Path(writer.place.options["path"], *writer.place.object.parts, "_delta_log")
    lines = [json.loads(line) for file in sorted(log.glob("*.json")) for line in file.read_text().splitlines()]
    stats = [json.loads(line["add"]["stats"]) for line in lines if "add" in line]
    assert all(one["numRecords"] > 0 for one in stats)
    return [one.get("minValues", {}) for one in stats]


@pytest.mark.parametrize("wanted, kept", [(("id",), {"id"}), ((), set()), (None, {"id", "name", "amount"})])
def test_only_the_columns_asked_for(writer: Writer, wanted: tuple[str, ...] | None, kept: set[str]) -> None:
    statements = writer.place.target.create_statements(writer.place.object, COLUMNS, Layout(statistics=wanted))
    writer.write([{"id": 1, "name": "a", "amount": None}], 1, create=statements, layout=Layout(statistics=wanted))
    assert all(set(low) <= kept for low in ranges(writer))
    assert {name for low in ranges(writer) for name in low} == kept - {"amount"}  # which has no value


def test_a_table_made_by_a_void_has_the_properties_of_the_ddl(writer: Writer) -> None:
    layout = Layout(statistics=("id",))
    writer.void(1, layout=layout)
    made = writer.info()
    assert made.extra["properties"] == table_properties(COLUMNS, layout)


@pytest.mark.needs("clustering")
def test_a_clustered_table_with_columns_of_names_that_need_quotes(writer: Writer) -> None:
    columns = (Column("it's.a-name", types.INT64), Column("id", types.INT64))
    layout = Layout(cluster_by=("id",), statistics=("it's.a-name", "id"))
    statements = writer.place.target.create_statements(writer.place.object, columns, layout)
    writer.write([{"it's.a-name": 1, "id": 2}], 1, columns=columns, create=statements, layout=layout)
    assert {name for low in ranges(writer) for name in low} == {"it's.a-name", "id"}


def test_columns_that_can_have_none_are_left_out() -> None:
    kinds = [*types.SCALARS, types.Decimal(38, 10), types.Array(types.STRING), types.Struct((("a", types.INT32),))]
    columns = [Column(f"c{at}", kind) for at, kind in enumerate(kinds)] + [Column("day", types.DATE)]
    names = tuple(column.name for column in columns)
    listed = table_properties(columns, Layout(partition_by=("day",), statistics=(*names, "gone")))[LISTED].split(",")
    refused = {types.BOOL, types.BINARY, *kinds[-2:]}
    assert listed == [column.name for column in columns[:-1] if column.type not in refused]
    assert table_properties(columns, Layout(partition_by=("day",), statistics=("day",)))[COUNTED] == "0"
