"""Columns that files' paths have, beside those in the files, in every format."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import orc

from flowctl.connectors.files.formats import Format
from flowctl.connectors.files.path_columns import path_texts
from flowctl.errors import TableError
from tests import engines
from tests.connectors.reading import describe, files, spark_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long_on_spark


@pytest.mark.skipif(engines.UNDER_TEST != "connect", reason="any other Spark of the tests has flowctl's readers")
@pytest.mark.parametrize(
    ("form", "more", "what"),
    [
        ("avro", {}, "`format.type` avro"),
        ("parquet", {"partitions": {"day": "date"}}, "`format.partitions`"),
        ("csv", {"source_file": True}, "`format.source_file`"),
    ],
)
def test_what_only_flowctl_reads_is_refused_where_it_is_not(
    spark: SparkSession, inbox: Path, source: Any, form: str, more: dict[str, Any], what: str
) -> None:
    write(inbox / f"day=2026-11-01/1.{form}", 1)
    with pytest.raises(TableError, match=f"{what} can only be read by flowctl itself") as refused:
        spark_rows(spark, source, files(f"**/*.{form}", **more))
    assert "sail" in str(refused.value.hint)


FORMATS = ("csv", "jsonl", "parquet", "orc", "avro")


def write(file: Path, id: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    match file.suffix:
        case ".csv":
            file.write_text(f"id\n{id}\n")
        case ".jsonl":
            file.write_text(json.dumps({"id": str(id)}) + "\n")
        case ".parquet":
            pq.write_table(pa.table({"id": [str(id)]}), file)
        case ".orc":
            orc.write_table(pa.table({"id": [str(id)]}), str(file))
        case _:
            schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "string"}]}
            with file.open("wb") as stream:
                fastavro.writer(stream, schema, [{"id": str(id)}])


@pytest.mark.needs("files that flowctl reads")
@pytest.mark.parametrize("form", FORMATS)
def test_partitions_and_paths(spark: SparkSession, inbox: Path, source: Any, form: str) -> None:
    folders = {
        "day=2026-11-01/a%20name=x%2Fy%3Dz": (dt.date(2026, 11, 1), "x/y=z"),
        "day=0001-01-01/a%20name=": (dt.date(1, 1, 1), ""),
        "more/day=__HIVE_DEFAULT_PARTITION__/deep/a name=__HIVE_DEFAULT_PARTITION__": (None, None),
        "day=2026-11-02/a name=ü 'of\" 100%25\n": (dt.date(2026, 11, 2), "ü 'of\" 100%\n"),
    }
    for at, folder in enumerate(folders):
        write(inbox / folder / f"{at} %41.{form}", at)
    given = {"schema": {"id": "string"}} if form == "jsonl" else {}
    relation = files(f"**/*.{form}", **given, partitions={"a name": "string", "day": "date"}, source_file=True)
    assert [str(column.type) for column in describe(source, relation).columns] == [
        "string", "string", "date32[day]", "string",
    ]  # fmt: skip
    read = sorted(spark_rows(spark, source, relation), key=lambda row: str(row["id"]))
    assert read == [
        {"id": str(at), "a name": name, "day": day, "_source_file": f"{folder}/{at} %41.{form}"}
        for at, (folder, (day, name)) in enumerate(folders.items())
    ]


@pytest.mark.parametrize(
    ("path", "given", "message"),
    [
        ("x/1.csv", {"partitions": {"day": "date"}}, r"x/1\.csv is in no folder day=….*has no folder of that form"),
        ("dya=1/1.csv", {"partitions": {"day": "date"}}, r"is in no folder day=….*has only dya=…"),
        ("day=2026/1.csv", {"partitions": {"day": "date"}}, r"the folder of day has a value that is not exactly date"),
        ("day=/1.csv", {"partitions": {"day": "date"}}, r"the folder of day has a value that is not exactly date"),
        (
            "day=1/hour=2/1.csv",
            {"partitions": {"day": "int"}},
            r"in a folder hour=…, which format\.partitions",
        ),
        ("day=1/day=2/1.csv", {"partitions": {"day": "int"}}, r"is in two folders day=…"),
        ("day=%ff/1.csv", {"partitions": {"day": "string"}}, r"the folder %ff is not encoded as UTF-8"),
        ("ID=1/1.csv", {"partitions": {"ID": "string"}}, r"has a column id, and a folder id=… in its path"),
        ("id=1/1.csv", {"partitions": {"id": "int"}}, r"id=1/1\.csv has a column id, and a folder id=… in its path"),
        (
            "day=1/1.csv",
            {"partitions": {"day": "binary"}},
            r"column day of `format.partitions` is binary, which no text is read as",
        ),
    ],
)
def test_paths_that_do_not_fit(inbox: Path, source: Any, path: str, given: dict[str, Any], message: str) -> None:
    write(inbox / path, 1)
    with pytest.raises(TableError, match=message) as refused:
        describe(source, files("**/*.csv", **given))
    assert refused.value.hint


def test_a_file_with_a_column_of_the_name_for_paths(inbox: Path, source: Any) -> None:
    (inbox / "1.csv").write_text("id,_Source_File\n1,2\n")
    with pytest.raises(TableError, match=r"1\.csv has a column _Source_File, the name that format\.source_file gives"):
        describe(source, files("*.csv", source_file=True))


@given(st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1))
def test_values_are_decoded_as_their_writers_encode_them(value: str) -> None:
    from urllib.parse import quote

    format = Format("csv", {"partitions": {"p": "string"}}, ())
    assert path_texts(format, f"p={quote(value, safe='')}/1.csv") == (value,)


@pytest.mark.needs("files that flowctl reads")
@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_avro_brings_its_types(spark: SparkSession, inbox: Path, source: Any, codec: str) -> None:
    """Exactly: what no type of a table has is text or refused, and never rounded."""
    fields = [
        {"name": "i", "type": ["null", "int"]},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "time", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "u", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "e", "type": {"type": "enum", "name": "e", "symbols": ["A", "B"]}},
        {"name": "l", "type": {"type": "array", "items": ["null", "long"]}},
        {"name": "o", "type": {"type": "record", "name": "o", "fields": [{"name": "x", "type": "double"}]}},
        {"name": "m", "type": {"type": "map", "values": "long"}},
    ]
    row: dict[str, Any] = {
        "i": None,
        "d": Decimal("9" * 28 + "." + "9" * 10),
        "day": dt.date(1, 1, 1),
        "at": dt.datetime(2026, 3, 29, 2, 30, 0, 1000, tzinfo=dt.UTC),
        "local": dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
        "time": dt.time(23, 59, 59, 999999),
        "u": UUID(int=2**128 - 1),
        "e": "B",
        "l": [1, None],
        "o": {"x": 0.1},
        "m": {"k": 2**63 - 1},
    }
    schema = {"type": "record", "name": "r", "fields": fields}
    with (inbox / "1.avro").open("wb") as stream:
        fastavro.writer(stream, schema, [row] * 3, codec=codec, sync_interval=1)
    read = spark_rows(spark, source, files("*.avro"))
    wanted = {**row, "time": "23:59:59.999999", "u": str(row["u"]), "m": json.dumps(row["m"])}
    assert len(read) == 3 and read[0].pop("at").astimezone(dt.UTC) == wanted.pop("at")
    assert read[0] == wanted


@pytest.mark.needs("files that flowctl reads")
def test_avro_files_come_together_by_name(spark: SparkSession, inbox: Path, source: Any) -> None:
    def put(name: str, fields: dict[str, str], *rows: dict[str, Any]) -> None:
        made = [{"name": field, "type": kind} for field, kind in fields.items()]
        with (inbox / name).open("wb") as stream:
            fastavro.writer(stream, {"type": "record", "name": "r", "fields": made}, rows)

    put("1.avro", {"id": "int", "v": "string"}, {"id": 1, "v": "one"})
    put("2.avro", {"v": "string", "id": "long", "new": "double"}, {"v": "two", "id": 2**40, "new": 0.5})
    put("3.avro", {"id": "int"})
    relation = files("*.avro")
    read = sorted(spark_rows(spark, source, relation), key=lambda row: row["id"])
    assert read == [{"id": 1, "v": "one", "new": None}, {"id": 2**40, "v": "two", "new": 0.5}]
    put("4.avro", {"id": "string"}, {"id": "x"})
    with pytest.raises(TableError, match=r"column id is .* and string in 4\.avro"):
        describe(source, relation)
    (inbox / "4.avro").write_bytes((inbox / "2.avro").read_bytes()[:-1])
    with pytest.raises(TableError, match=r"4\.avro cannot be read as avro"):
        spark_rows(spark, source, relation)
