"""Features of a table's protocol: no more than its columns need, and turned on as the plan says."""

from __future__ import annotations

import datetime as dt

import pytest
from deltalake import DeltaTable, Schema

from flowctl.connectors.delta import features
from flowctl.connectors.delta.spark_writer import SparkWriter
from flowctl.connectors.delta.table import open_existing, open_table
from flowctl.connectors.delta.types import schema_json
from flowctl.connectors.lake.history import side_job
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column
from flowctl.spec.spec import Layout
from flowctl.storage.buffer import Buffer
from tests.connectors.delta import delta_tables
from tests.connectors.writing import COLUMNS, Writer, row

PLAIN = Layout()


def create(writer: Writer, columns: tuple[Column, ...], layout: Layout = PLAIN) -> list[str]:
    return writer.place.target.create_statements(writer.place.object, columns, layout)


def protocol(writer: Writer) -> tuple[int, int, set[str]]:
    found = writer.info().extra
    return found["reader_version"], found["writer_version"], set(found["features"])


@pytest.mark.parametrize(
    "kinds, layout, expected",
    [
        ([types.STRING], Layout(deletion_vectors=False), (1, 2, set())),
        ([types.STRING], Layout(), (3, 7, {"deletionVectors", "appendOnly", "invariants"})),
        ([types.TIMESTAMP_NTZ], Layout(deletion_vectors=False), (3, 7, {"timestampNtz", "appendOnly", "invariants"})),
        (
            [types.Struct((("at", types.Array(types.TIMESTAMP_NTZ)),))],
            Layout(),
            (3, 7, {"timestampNtz", "deletionVectors", "appendOnly", "invariants"}),
        ),
    ],
    ids=["nothing", "marks", "local", "nested"],
)
def test_features_of_new_tables(
    writer: Writer, kinds: list[types.DataType], layout: Layout, expected: tuple[int, int, set[str]]
) -> None:
    columns = tuple(Column(f"c{at}", kind) for at, kind in enumerate(kinds))
    writer.void(1, columns=columns, layout=layout)
    assert protocol(writer) == expected


WIDER: list[tuple[types.DataType, types.DataType]] = [
    (types.INT8, types.INT16), (types.INT16, types.INT32), (types.INT8, types.INT64), (types.INT32, types.INT64),
    (types.FLOAT, types.DOUBLE), (types.Decimal(10, 2), types.Decimal(14, 4)), (types.DATE, types.TIMESTAMP_NTZ),
]  # fmt: skip


@pytest.mark.needs("type widening")
def test_columns_widen_in_place(writer: Writer) -> None:
    assert writer.place.capabilities.target is not None
    assert all(writer.place.capabilities.target.widens(old, new) for old, new in WIDER)
    before = (*COLUMNS, *(Column(f"c{at}", old) for at, (old, _) in enumerate(WIDER)))
    after = (*COLUMNS, *(Column(f"c{at}", new) for at, (_, new) in enumerate(WIDER)))
    writer.write([], 1, columns=before, create=create(writer, before))
    changes = [
        SchemaChange(f"c{at}", "wider_type", old, new, "widen", "on_schema_change.wider_type: widen")
        for at, (old, new) in enumerate(WIDER)
    ]
    widening, local, *made = writer.place.target.alter_statements(writer.info(), changes)
    assert [(one.action, one.column) for one in (widening, local)] == [
        ("enable", "typeWidening"),
        ("enable", "timestampNtz"),
    ]
    assert "deltalake, Polars" in widening.note
    writer.write([], 2, columns=after, alter=[widening, local, *made, made[0]])
    assert [(column.name, column.type) for column in writer.info().columns] == [(c.name, c.type) for c in after]
    assert writer.committed().seq == 2
    assert writer.place.target.alter_statements(writer.info(), changes) == made


@pytest.mark.parametrize(
    "kind",
    [types.TIMESTAMP_NTZ, pytest.param(types.Array(types.TIMESTAMP_NTZ), marks=pytest.mark.full)],
    ids=str,
)
def test_a_column_that_needs_a_feature_brings_it_into_a_table_of_an_old_protocol(
    writer: Writer, kind: types.DataType
) -> None:
    """Made by somebody else's writer, with the lowest versions: the commit would leave a table that nothing opens."""
    location = delta_tables.location(writer)
    DeltaTable.create(location.url, Schema.from_json(schema_json(COLUMNS)))
    assert (writer.info().extra["reader_version"], writer.info().extra["writer_version"]) == (1, 2)
    after = (*COLUMNS, Column("at", kind))
    change = SchemaChange("at", "new_column", None, kind, "add", "on_schema_change.new_column: add")
    feature, made = writer.place.target.alter_statements(writer.info(), [change])
    assert feature.column == "timestampNtz" and "raises the reader version from 1 to 3" in feature.note
    moment = dt.datetime(2026, 1, 2, 3)
    value = [moment] if kind != types.TIMESTAMP_NTZ else moment
    writer.write([{**row(1), "at": value}], 1, columns=after, alter=[feature, made])
    assert writer.place.read(["id", "at"]) == [(1, value)]
    assert {"timestampNtz", "appendOnly", "invariants"} <= set(writer.info().extra["features"])
    assert DeltaTable(location.url).to_pyarrow_table().num_rows == 1


@pytest.mark.needs("Delta's own statements")
def test_a_sidecar_takes_what_its_table_takes(writer: Writer, scratch: Buffer) -> None:
    """A key that became wider, and kept values of a type that needs a feature: each run of a history would fail."""
    location = delta_tables.location(writer).sidecar("__observed")
    narrow = (Column("id", types.INT32), Column("name", types.STRING))
    wide = (Column("id", types.INT64), narrow[1], Column("at", types.TIMESTAMP_NTZ))
    own = SparkWriter(writer.spark, scratch)
    for columns in (narrow, wide, wide):
        own.prepare_sidecar(location, open_table(location), side_job(writer.job(1, "append", columns=columns), columns))
    made = open_existing(location).info(writer.place.object)
    assert {column.name: column.type for column in made.columns} == {column.name: column.type for column in wide}


@pytest.mark.parametrize("version", [3, 4, 5, 6])
def test_a_writer_version_without_names_is_not_raised_by_guessing(version: int) -> None:
    """It stands for features of which the table may use some; only Spark can tell which to name."""
    before = {"minReaderVersion": 1, "minWriterVersion": version}
    assert features.raised(before, COLUMNS) == before
    with pytest.raises(TableError, match=f"writer version {version} does not name its features"):
        features.raised(before, (*COLUMNS, Column("at", types.TIMESTAMP_NTZ)))


def test_a_protocol_that_has_the_feature_stays() -> None:
    named = features.protocol([features.TIMESTAMP_NTZ])
    assert features.raised(named, [Column("at", types.TIMESTAMP_NTZ)]) == named
    raised = features.raised(features.protocol([features.DELETION_VECTORS]), [Column("at", types.TIMESTAMP_NTZ)])
    assert raised["readerFeatures"] == ["deletionVectors", "timestampNtz"]
    assert set(raised["writerFeatures"]) == {"deletionVectors", "timestampNtz", "appendOnly", "invariants"}
