"""CSV as a source: text until a schema says more, whole lines wherever a file is cut, values by their file's header."""

from __future__ import annotations

import gzip
import re
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from flowctl.connectors.files.listing import matching
from flowctl.connectors.source import Relation
from flowctl.engine import cost
from flowctl.engine.session import has_jvm, has_own_workers
from flowctl.errors import TableError
from tests.connectors.reading import describe, files, spark_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long_on_spark


def test_csv_is_text_until_a_schema_says_more(spark: SparkSession, inbox: Path, source: Any) -> None:
    (inbox / "t.csv").write_text('id;name;empty\n007;"a ""b"";ü 🦆";\n8; x ;""\n', encoding="utf-8")
    assert spark_rows(spark, source, files("t.csv", delimiter=";")) == [
        {"id": "007", "name": 'a "b";ü 🦆', "empty": None},
        {"id": "8", "name": " x ", "empty": ""},
    ]


@pytest.mark.parametrize("sign", [";", "\t", "|"])
def test_one_column_with_the_sign_of_another_delimiter(inbox: Path, source: Any, sign: str) -> None:
    (inbox / "t.csv").write_text(f"id{sign}name\n1{sign}x\n")
    with pytest.raises(TableError, match=r"t\.csv has one column, 'id.*name': its delimiter seems to be") as stopped:
        source.describe([files("t.csv")])
    told = re.findall(r"`(.*?)`", stopped.value.hint)
    columns = []
    for way in told:
        relation = files("t.csv", **yaml.safe_load(way)["format"])
        info = describe(source, relation)
        columns.append([column.name for column in info.columns])
    assert columns == [["id", "name"], [f"id{sign}name"]]


def test_a_file_with_another_delimiter_than_the_others_is_the_one_to_change(inbox: Path, source: Any) -> None:
    (inbox / "a.csv").write_text("id;name\n1;x\n")
    for name in ("b", "c"):
        (inbox / f"{name}.csv").write_text("id,name\n1,x\n")
    for schema in ({}, {"schema": {"id": "int"}}):
        with pytest.raises(TableError, match=r"^a\.csv has one column, 'id;name': its delimiter seems") as stopped:
            source.describe([files("*.csv", **schema)])
        assert stopped.value.hint == (
            "Write it with ',' as b.csv is, or leave it out of the pattern in `from`; "
            'set `format: {delimiter: ","}` if it is one column'
        )
    relation = files("*.csv", delimiter=",")
    assert [column.name for column in describe(source, relation).columns] == ["id;name", "id", "name"]
    (inbox / "a.csv").write_text("id,name\n1,x\n")
    relation = files("*.csv")
    assert [column.name for column in describe(source, relation).columns] == ["id", "name"]


def test_what_pyarrow_reads_in_another_way_is_read_by_spark(spark: SparkSession, inbox: Path, source: Any) -> None:
    (inbox / "t.csv").write_text('a||b\n1||"x \\"y\\""\n')
    relation = files("t.csv", delimiter="||", escape="\\", schema={"a": "int"})
    if has_jvm(spark):
        assert spark_rows(spark, source, relation) == [{"a": 1, "b": 'x "y"'}]
    else:
        with pytest.raises(TableError, match="delimiter of more than one character"):
            spark_rows(spark, source, relation)


def test_types_of_the_spec(spark: SparkSession, inbox: Path, source: Any) -> None:
    (inbox / "t.csv").write_text("a,b,c\n1,007,x\n,,y\n")
    kinds = {"a": "string", "b": "decimal(5,1)"}
    read = spark_rows(spark, source, files("t.csv", schema={"a": "int"}), kinds=kinds)
    assert read == [{"a": "1", "b": Decimal("7.0"), "c": "x"}, {"a": None, "b": None, "c": "y"}]
    (inbox / "t.csv").write_text("a,b,c\n1,many,x\n")
    with pytest.raises(TableError, match="column b holds a value that is not exactly"):
        spark_rows(spark, source, files("t.csv"), kinds={"b": "int"})


def test_a_large_file_is_read_in_pieces(
    spark: SparkSession, inbox: Path, source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "_MOST_FILE_BYTES", 1000)
    monkeypatch.setattr(cost, "FILE_OPENING_BYTES", 10)
    for name in ("1.csv", "2.csv"):
        (inbox / name).write_text("id,v\n" + "".join(f"{id},{'x' * (id % 50)}\n" for id in range(300)))
    read = spark_rows(spark, source, files("*.csv", schema={"id": "int"}))
    assert sorted(row["id"] for row in read) == sorted([*range(300), *range(300)])


def test_line_breaks_in_quotes(spark: SparkSession, inbox: Path, source: Any) -> None:
    (inbox / "t.csv").write_text('a,b\n1,"x\ny"\n')
    assert spark_rows(spark, source, files("t.csv", multiline=True)) == [{"a": "1", "b": "x\ny"}]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("options", [{}, {"escape": "\\"}], ids=["usual", "escape"])
def test_line_breaks_in_quotes_stay_as_they_are(
    spark: SparkSession, inbox: Path, source: Any, options: dict[str, str], end: str
) -> None:
    """Spark's own reader would put line feeds in place of those that its file has between rows."""
    value = "x\r\ny\nz\r"
    (inbox / "t.csv").write_bytes(end.join(["a,b", f'"{value}",2', "3,4", ""]).encode())
    relation = files("t.csv", multiline=True, **options)
    if has_own_workers(spark) and not options:
        assert [row["a"] for row in spark_rows(spark, source, relation)] == [value, "3"]
    elif not has_jvm(spark):
        with pytest.raises(TableError, match="Sail reads no CSV with an escape"):
            spark_rows(spark, source, relation)
    elif end == "\n":
        assert spark_rows(spark, source, relation) == [{"a": value, "b": "2"}, {"a": "3", "b": "4"}]
    else:
        with pytest.raises(TableError, match="lines that end in a carriage return"):
            spark_rows(spark, source, relation)


#: The usual reader, and the one of Spark itself, for what pyarrow does not read.
READERS = ({}, pytest.param({"escape": "\\"}, marks=pytest.mark.needs("CSV with an escape")))


@pytest.mark.parametrize("given", READERS)
def test_values_are_told_by_the_header_of_their_file(
    spark: SparkSession, inbox: Path, source: Any, given: dict[str, Any]
) -> None:
    (inbox / "1.csv").write_text("a,b\n1,one\n")
    (inbox / "2.csv").write_text("b,a\ntwo,2\n")
    (inbox / "3.csv").write_text("a,new,b\n3,x,three\n")
    (inbox / "4.csv").write_text("a\n4\n")
    relation = files("*.csv", schema={"a": "int"}, **given)
    assert sorted(spark_rows(spark, source, relation), key=lambda row: row["a"]) == [
        {"a": 1, "b": "one", "new": None},
        {"a": 2, "b": "two", "new": None},
        {"a": 3, "b": "three", "new": "x"},
        {"a": 4, "b": None, "new": None},
    ]
    by_place = Relation(relation.object, where="new IS NULL AND b > 'p'", format=relation.format)
    assert spark_rows(spark, source, by_place) == [{"a": 2, "b": "two", "new": None}]


@pytest.mark.parametrize("given", READERS)
def test_a_byte_order_mark_before_a_quoted_name_is_no_part_of_it(
    spark: SparkSession, inbox: Path, source: Any, given: dict[str, Any]
) -> None:
    (inbox / "1.csv").write_text('\ufeff"id","v"\n1,one\n', encoding="utf-8")
    (inbox / "2.csv").write_text('"v","id"\ntwo,2\n', encoding="utf-8")
    relation = files("*.csv", schema={"id": "int"}, **given)
    assert [column.name for column in describe(source, relation).columns] == ["id", "v"]
    assert sorted(row["id"] for row in spark_rows(spark, source, relation)) == [1, 2]


@pytest.mark.long_on_spark
@pytest.mark.parametrize(
    ("encoding", "written"), [("utf-16", "utf-16-be"), ("utf-16-le", "utf-16-le"), ("utf-32", "utf-32-le")]
)
def test_a_byte_order_mark_of_other_encodings(
    spark: SparkSession, inbox: Path, source: Any, encoding: str, written: str
) -> None:
    (inbox / "t.csv").write_text('\ufeff"i\nd","ü"\n1,"x\ny"\n', encoding=written)
    relation = files("t.csv", encoding=encoding, multiline=True)
    assert spark_rows(spark, source, relation) == [{"i\nd": "1", "ü": "x\ny"}]


def test_columns_that_only_files_without_another_have(inbox: Path, source: Any) -> None:
    for at, header in enumerate(("id,email", "id", "e_mail,id", "id,email,note", "id,note")):
        (inbox / f"{at}.csv").write_text(f"{header}\n")
    relation = files("*.csv")
    assert describe(source, relation).only_without == {
        "email": ("e_mail",),
        "e_mail": ("email", "note"),
        "note": ("e_mail",),
    }


@pytest.mark.parametrize(("encoding", "shown"), [("utf-16", "utf-16"), ("utf-32", "utf-32"), ("utf-16-be", "")])
def test_a_file_of_another_encoding_says_which_if_it_has_its_mark(
    inbox: Path, source: Any, encoding: str, shown: str
) -> None:
    (inbox / "t.csv").write_text("ä,ö\n1,2\n", encoding=encoding)
    with pytest.raises(TableError, match=r"t\.csv is not UTF-8 text") as refused:
        source.describe([files("t.csv")])
    wanted = f"Set `format.encoding: {shown}`" if shown else "set its encoding with `format.encoding`"
    assert wanted in refused.value.hint


def test_columns_that_a_new_file_lacks(inbox: Path, source: Any) -> None:
    for at, header in enumerate(("id,name", "name,id", "id", "id,name,more", "name")):
        (inbox / f"{at}.csv").write_text(f"{header}\n")
    relation = files("*.csv")
    assert describe(source, relation).lacking == {"id": "4.csv", "name": "2.csv", "more": "0.csv"}
    read = {stamp.path: stamp for stamp in matching(source.root, "*.csv") if stamp.path < "3"}
    assert source.describe_files(relation, read)[0].lacking == {"id": "4.csv", "more": "4.csv"}


def test_large_files_of_other_headers_are_read_in_pieces(
    spark: SparkSession, inbox: Path, source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "_MOST_FILE_BYTES", 1000)
    monkeypatch.setattr(cost, "FILE_OPENING_BYTES", 10)
    (inbox / "1.csv").write_text("id,v\n" + "".join(f"{id},{'x' * (id % 50)}\n" for id in range(300)))
    (inbox / "2.csv").write_text("w,v,id\n" + "".join(f"w,{'x' * (id % 50)},{id}\n" for id in range(300, 600)))
    read = spark_rows(spark, source, files("*.csv", schema={"id": "int"}))
    assert sorted((row["id"], row["w"]) for row in read) == [(id, None if id < 300 else "w") for id in range(600)]


def test_where_is_sparks_sql(spark: SparkSession, inbox: Path, source: Any) -> None:
    (inbox / "t.csv").write_text("id,country\n1,NL\n2,DE\n")
    read = spark_rows(spark, source, files("t.csv", "country = 'NL'", schema={"id": "int"}))
    assert read == [{"id": 1, "country": "NL"}]


def test_compressed_text(spark: SparkSession, inbox: Path, source: Any) -> None:
    (inbox / "t.csv.gz").write_bytes(gzip.compress(b"id\n1\n"))
    assert spark_rows(spark, source, files("*.csv.gz")) == [{"id": "1"}]
