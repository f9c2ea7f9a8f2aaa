"""Every kind of Delta table that flowctl makes, read by DuckDB, by deltalake's query engine and by Polars.

A reader sees every value or refuses the table: :data:`COSTS` is the whole list of what costs which reader, and
``docs/schema-changes.md`` has it for users. Nothing is read wrong in silence.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import duckdb_extension_delta
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from flowctl.connectors.delta import features
from flowctl.connectors.delta.table import open_existing
from flowctl.model import types
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column, ObjectName
from flowctl.spec.spec import Layout
from flowctl.storage.buffer import Buffer
from tests.connectors import test_target_history
from tests.connectors.delta import delta_tables
from tests.connectors.target_matrix import delta
from tests.connectors.test_target_types import ALL
from tests.connectors.writing import COLUMNS, SOFT, Writer, gone, row, upserts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long_on_spark


def by_duckdb(path: str) -> pa.Table:
    (extension,) = Path(duckdb_extension_delta.__file__).parent.glob("extensions/*/delta.duckdb_extension")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.load_extension(str(extension))
        return connection.execute("SELECT * FROM delta_scan(?)", [path]).to_arrow_table()


def by_deltalake(path: str) -> pa.Table:
    found = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t").read_all()
    return pa.table(found)


def by_polars(path: str) -> pa.Table:
    return polars.scan_delta(path).collect().to_arrow()


READERS: dict[str, Callable[[str], pa.Table]] = {"duckdb": by_duckdb, "deltalake": by_deltalake, "polars": by_polars}


WITH, WITHOUT = Layout(), Layout(deletion_vectors=False)


def statements(writer: Writer, columns: tuple[Column, ...], layout: Layout) -> list[str]:
    return writer.place.target.create_statements(writer.place.object, columns, layout)


def merged(writer: Writer, layout: Layout = WITH) -> None:
    """Rows that stay, rows that changed, and one that is gone."""
    made = {"layout": layout, "create": statements(writer, COLUMNS, layout)}
    writer.write(upserts(*(row(id, f"a{id % 3}") for id in range(20))), 1, "merge", **made)
    for seq, changed in ((2, row(1, "b")), (3, row(2, None))):
        writer.write([*upserts(changed), {**gone(seq + 10)}], seq, "merge", layout=layout, rows=2)


@dataclass(frozen=True)
class Kind:
    """What ``make`` writes into the table ``name``."""

    make: Callable[[Writer], object]
    name: str = "t"
    needs: str = ""


def everything(writer: Writer) -> None:
    kinds = {**ALL, "byte": (types.INT8, [-128, 127]), "pair": (types.Struct((("a", types.INT32),)), [(1,)])}
    columns = (Column("id", types.INT64), *(Column(name, kind) for name, (kind, _) in kinds.items()))
    depth = max(len(values) for _, values in kinds.values())
    rows = [
        {"id": at, **{name: values[at] if at < len(values) else None for name, (_, values) in kinds.items()}}
        for at in range(depth)
    ]
    writer.write(rows, 1, columns=columns, create=statements(writer, columns, WITH))


def history(writer: Writer) -> None:
    for seq, seen in enumerate((("A", 1), ("B", 3), ("A", 5)), 1):
        test_target_history.write(writer, seq, test_target_history.seen(*seen))


def widened(writer: Writer) -> None:
    before = (COLUMNS[0], Column("c", types.INT32))
    writer.write([{"id": 1, "c": 1}], 1, columns=before, create=statements(writer, before, WITH))
    info = writer.info()
    change = SchemaChange("c", "wider_type", types.INT32, types.INT64, "widen", "")
    made = writer.place.target.alter_statements(info, [change])
    writer.write([{"id": 2, "c": 2**40}], 2, columns=(before[0], Column("c", types.INT64)), alter=made)


def mapped(writer: Writer) -> None:
    """Somebody else's table, taken over."""
    (made,) = statements(writer, COLUMNS, WITH)
    made = made.replace("TBLPROPERTIES (", "TBLPROPERTIES ('delta.columnMapping.mode' = 'name', ")
    writer.spark.sql(made).collect()
    writer.write([row(1), row(2)], 1)


def voided(writer: Writer) -> None:
    writer.write([row(1)], 1)
    writer.void(2)
    writer.write([row(2)], 3)


def truncated(writer: Writer) -> None:
    writer.write([row(1), row(2)], 1, "truncate")
    writer.write([row(3)], 2, "truncate")


def soft(writer: Writer) -> None:
    columns = (*COLUMNS, SOFT)
    made = statements(writer, columns, WITH)
    writer.write(upserts(row(1), row(2)), 1, "merge", columns=columns, soft_deletes=True, create=made)
    writer.write([gone(1)], 2, "merge", columns=columns, soft_deletes=True)


def of_another(writer: Writer) -> None:
    """Type widening that somebody else has turned on."""
    writer.write([row(1), row(2)], 1)
    before = open_existing(delta_tables.location(writer)).protocol
    named = {kind: [*before[kind], features.TYPE_WIDENING] for kind in ("readerFeatures", "writerFeatures")}
    delta_tables.foreign_commit(delta_tables.location(writer), {"protocol": {**before, **named}})


KINDS: dict[str, Kind] = {
    "appended": Kind(lambda writer: writer.write([row(1), row(2)], 1)),
    "merged": Kind(merged),
    "in a folder with a space": Kind(lambda writer: writer.write([row(1)], 1), "t t", "paths with a space"),
    "merged without deletion vectors": Kind(lambda writer: merged(writer, WITHOUT)),
    "partitioned": Kind(lambda writer: merged(writer, Layout(partition_by=("name",)))),
    "partitioned without deletion vectors": Kind(
        lambda writer: merged(writer, replace(WITHOUT, partition_by=("name",)))
    ),
    "clustered": Kind(lambda writer: merged(writer, Layout(cluster_by=("id",))), needs="clustering"),
    "column mapping": Kind(mapped, needs="column mapping"),
    "every type": Kind(everything),
    "history": Kind(history),
    "truncated": Kind(truncated),
    "voided": Kind(voided),
    "soft deletes": Kind(soft),
    "widened": Kind(widened, needs="type widening"),
    "type widening": Kind(of_another),
}
of_every_kind = pytest.mark.parametrize(
    "kind",
    [pytest.param(name, marks=pytest.mark.needs(kind.needs) if kind.needs else ()) for name, kind in KINDS.items()],
)
#: Kind and reader: the reader's own words, as it refuses.
COSTS = {
    ("in a folder with a space", "polars"): "No such file",
    ("column mapping", "polars"): "columnMapping",
    ("widened", "polars"): "typeWidening",
    ("widened", "deltalake"): "TypeWidening",
    ("type widening", "polars"): "typeWidening",
    ("type widening", "deltalake"): "TypeWidening",
}


@of_every_kind
def test_every_kind_of_table_is_read_or_refused(
    kind: str, spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, scratch: Buffer
) -> None:
    of = KINDS[kind]
    with delta(request, tmp_path, scratch) as place:
        writer = Writer(spark, replace(place, object=ObjectName((of.name,))))
        of.make(writer)
        info = writer.info()
        written = rows_of(writer.place.target.scan(spark, writer.place.object, info.columns).toArrow())
    assert written
    for name, read in READERS.items():
        path = f"{place.options['path']}/{of.name}"
        if refusal := COSTS.get((kind, name)):
            with pytest.raises(Exception, match=refusal):
                read(path)
        else:
            assert rows_of(read(path)) == written, name


@pytest.mark.parametrize("layout", [WITH, WITHOUT], ids=["deletion vectors", "without"])
def test_deltalake_appends_and_merges_and_flowctl_goes_on(
    layout: Layout, spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, scratch: Buffer
) -> None:
    with delta(request, tmp_path, scratch) as place:
        writer = Writer(spark, replace(place, object=ObjectName(("t",))))
        merged(writer, layout)
        table = DeltaTable(f"{place.options['path']}/t")
        schema = by_deltalake(table.table_uri).schema
        theirs = pa.Table.from_pylist([{"id": 5, "name": "theirs"}, {"id": 99, "name": "new"}], schema)
        write_deltalake(table, theirs.slice(1), mode="append")
        merge = table.merge(theirs, "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        writer.write(upserts(row(99, "ours")), 4, "merge", layout=layout, rows=1)
        found = {line["id"]: line["name"] for line in by_deltalake(table.table_uri).to_pylist()}
        assert (found[5], found[99], len(found)) == ("theirs", "ours", 19)


def rows_of(table: pa.Table) -> list[list[str]]:
    """Its values as text that tells Python's types apart, in an order of their own."""
    return sorted([repr((name, exact(line[name]))) for name in sorted(line)] for line in table.to_pylist())


def exact(value: Any) -> Any:
    match value:
        case dt.datetime() if value.tzinfo is not None:  # readers call one zone by many names
            return value.astimezone(dt.UTC).isoformat()
        case list():
            return [exact(one) for one in value]
        case _:
            return value
