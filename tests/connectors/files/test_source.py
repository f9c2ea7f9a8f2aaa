"""Files as a source: each once, every value exactly what the file says, or an error that names the file or column."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession as ClassicSession

from flowctl.connectors.source import Relation, WatermarkRequest
from flowctl.errors import FlowctlError, TableError
from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import FilesPosition
from flowctl.spec.spec import ReadHints
from tests.connectors.reading import describe, files, opened, spark_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def position(source: Any, relation: Relation) -> FilesPosition:
    info = describe(source, relation)
    found = source.high_watermarks({"t": WatermarkRequest(relation, info)})["t"].position
    assert isinstance(found, FilesPosition)
    return found


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.csv", ["a.csv", "b [1]{2}.csv"]),
        ("?.csv", ["a.csv"]),
        ("2026/*.csv", ["2026/c.csv"]),
        ("**/*.csv", ["2026/01/d.csv", "2026/c.csv", "a.csv", "b [1]{2}.csv"]),
        ("*.parquet", []),
    ],
)
def test_globs(inbox: Path, source: Any, pattern: str, found: list[str]) -> None:
    for path in (
        "a.csv",
        "b [1]{2}.csv",
        "2026/c.csv",
        "2026/01/d.csv",
        "_unfinished.csv",
        ".hidden.csv",
        "_tmp/e.csv",
    ):
        file = inbox / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("id\n1\n")
    assert [object.parts[0] for object in source.discover((pattern,))] == found


def test_odd_file_names_are_read_as_they_are(spark: SparkSession, inbox: Path, source: Any) -> None:
    for at, name in enumerate(["a b.csv", "b[1].csv", "c{x,y}.csv", "d%20e.csv", "f'\"ü.csv", "b1.csv"]):
        (inbox / name).write_text(f"id\n{at}\n")
    read = spark_rows(spark, source, files("*.csv"))
    assert sorted(row["id"] for row in read) == ["0", "1", "2", "3", "4", "5"]


#: To Hadoop a colon before the first slash of a part of a pattern ends a URL's scheme.
ODD = ("${env:HOME} {a", "b:[1]*?", "c\\d%20e#f", "g", "h {i}[1]", "06:30", "06:31")


@pytest.mark.parametrize(
    "form", [pytest.param("csv", marks=pytest.mark.needs("CSV with an escape")), "jsonl", "parquet", "orc"]
)
def test_odd_file_names_in_every_format(spark: SparkSession, inbox: Path, source: Any, form: str) -> None:
    """Read by Spark itself: CSV with an escape of its own, which Arrow does not know."""
    paths = [f"in {{b,c}}{sign}/{name}.{form}" for sign in (":", "") for name in ODD]
    if not isinstance(spark, ClassicSession):  # which has no way to say that a path is no pattern
        paths = [path for path in paths if ":" not in path or not set(path) & set("{[")]
        paths += [f"plain/{name}.{form}" for name in ODD if not set(name) & set("{[")]
    for at, path in enumerate(paths):
        file = inbox / path
        file.parent.mkdir(exist_ok=True)
        match form:
            case "csv":
                file.write_text(f"id\n{at}\n")
            case "jsonl":
                file.write_text(json.dumps({"id": at}) + "\n")
            case "parquet":
                pq.write_table(pa.table({"id": [at]}), file)
            case _:
                orc.write_table(pa.table({"id": [at]}), file)
    given: dict[str, Any] = {"csv": {"escape": "\\"}, "jsonl": {"schema": {"id": "bigint"}}}.get(form, {})
    read = spark_rows(spark, source, files(f"*/*.{form}", **given))
    assert sorted(int(row["id"]) for row in read) == list(range(len(paths)))


def test_parquet_of_several_types_and_odd_names(spark: SparkSession, inbox: Path, source: Any) -> None:
    """Sail's own reader takes one type for all files."""
    for at, name in enumerate(("a b", "a?", "ü%20", "plain")):
        pq.write_table(pa.table({"id": pa.array([at], pa.int32())}), inbox / f"{name}.parquet")
    pq.write_table(pa.table({"id": pa.array([2**40])}), inbox / "wide.parquet")
    read = spark_rows(spark, source, files("*.parquet"))
    assert sorted(row["id"] for row in read) == [0, 1, 2, 3, 2**40]


@pytest.mark.parametrize("name", ["in [1]", "in {b}", "in%20box"])
def test_parquet_below_a_folder_with_an_odd_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Sail's own reader, too, must take the path of the root literally."""
    (tmp_path / name).mkdir()
    for at, file in enumerate(("a.parquet", "a b.parquet")):
        pq.write_table(pa.table({"id": [at]}), tmp_path / name / file)
    with opened("files", base_dir=str(tmp_path / name), path=".") as connector:
        read = spark_rows(spark, connector.source, files("*.parquet"))
    assert sorted(row["id"] for row in read) == [0, 1]


_WIDE = "9" * 28 + "." + "9" * 10

#: Type, texts in the file, and the values that arrive.
FITTING: list[tuple[str, list[str], list[Any]]] = [
    ("bigint", ["-9223372036854775808", "7"], [-(2**63), 7]),
    ("smallint", ["32767"], [32767]),
    ("decimal(38,10)", ["1.5000000000", _WIDE], [Decimal("1.5000000000"), Decimal(_WIDE)]),
    ("double", ["0.1", "1e-300", "-Infinity"], [0.1, 1e-300, float("-inf")]),
    ("boolean", ["true", "FALSE", "1"], [True, False, True]),
    ("date", ["0001-01-01", "1582-10-10"], [dt.date(1, 1, 1), dt.date(1582, 10, 10)]),
    (
        "timestamp_ntz",
        ["2026-03-29 02:30:00", "9999-12-31T23:59:59.999999"],
        [dt.datetime(2026, 3, 29, 2, 30), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)],
    ),
]

MISFITS: list[tuple[str, str]] = [
    ("bigint", "1.0"),
    ("bigint", "9223372036854775808"),
    ("int", "many"),
    ("decimal(5,2)", "1.239"),
    ("decimal(5,2)", "12345"),
    ("decimal(5,2)", "1e2"),
    ("bigint", "0x1F"),
    ("double", "1.5d"),
    ("double", "1e999"),
    ("boolean", "maybe"),
    ("date", "2026-02-30"),
    ("date", "2026-01-01 BC"),
    ("timestamp_ntz", "2026-01-01 00:00:00+02:00"),
    ("timestamp_ntz", "2026-01-01 00:00:00.1234567"),
    ("timestamp", "tomorrow"),
]


def _write(inbox: Path, form: str, texts: list[str]) -> Relation:
    if form == "csv":
        (inbox / "t.csv").write_text("v\n" + "".join(f"{text}\n" for text in texts))
        return files("t.csv")
    (inbox / "t.jsonl").write_text("".join(json.dumps({"v": text}) + "\n" for text in texts))
    return files("t.jsonl")


@pytest.mark.parametrize(("kind", "texts", "values"), FITTING, ids=[kind for kind, _, _ in FITTING])
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_texts_become_the_declared_type(
    spark: SparkSession, inbox: Path, source: Any, form: str, kind: str, texts: list[str], values: list[Any]
) -> None:
    relation = _write(inbox, form, texts)
    read = spark_rows(spark, source, Relation(relation.object, format={"schema": {"v": kind}}))
    assert [row["v"] for row in read] == values


@pytest.mark.parametrize(("kind", "text"), MISFITS)
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_text_that_is_not_exactly_that_is_refused(
    spark: SparkSession, inbox: Path, source: Any, form: str, kind: str, text: str
) -> None:
    relation = _write(inbox, form, [text])
    with pytest.raises(TableError, match="column v holds a value that is not exactly") as refused:
        spark_rows(spark, source, Relation(relation.object, format={"schema": {"v": kind}}))
    assert text not in str(refused.value)
    assert refused.value.hint.endswith("with --full-refresh and `format: {schema: {v: string}}`")


def test_json_numbers_keep_their_digits(spark: SparkSession, inbox: Path, source: Any) -> None:
    (inbox / "t.jsonl").write_text(
        '{"d": 0.1234567890123456789, "s": "x", "n": null, "l": [1, null], "o": {"p": 1.10}}\n\n{"d": 1, "more": 2}\n'
    )
    nested = {"l": "array<bigint>", "o": "struct<p: decimal128(5, 2)>"}
    schema = {"d": "decimal(38,19)", "s": "string", "n": "int", **nested}
    assert spark_rows(spark, source, files("*.jsonl", schema=schema)) == [
        {"d": Decimal("0.1234567890123456789"), "s": "x", "n": None, "l": [1, None], "o": {"p": Decimal("1.10")}},
        {"d": Decimal("1.0000000000000000000"), "s": None, "n": None, "l": None, "o": None},
    ]


@pytest.mark.parametrize(
    ("content", "format"),
    [
        ("a,b\n1,2\n3\n", {}),
        ("a,b\n1,2,3\n", {}),
        ('a,b\n1,"x\ny"\n', {}),
    ],
)
def test_a_malformed_row_is_an_error_that_names_the_file(
    spark: SparkSession, inbox: Path, source: Any, content: str, format: Mapping[str, Any]
) -> None:
    (inbox / "bad.csv").write_text(content)
    with pytest.raises(TableError, match=r"bad\.csv( line \d)? holds a row that does not fit"):
        spark_rows(spark, source, files("bad.csv", **format))


@pytest.mark.long_on_spark
def test_a_line_that_is_not_one_object_is_an_error_that_names_the_file(
    spark: SparkSession, inbox: Path, source: Any
) -> None:
    """Spark's own parser takes the first value of a line and leaves out the rest."""
    relation = files("*.jsonl", schema={"a": "int"})
    file = inbox / "bad.jsonl"
    file.write_text('{"a": 1}\n \t{"a": 2, "b": "}]"} \r\n\n{}\n')
    assert [row["a"] for row in spark_rows(spark, source, relation)] == [1, 2, None]
    others = ('{"a": 2', '{"a": 2}{"a": 3}', '{"a": 2} {"a": 3}', '{"a": 2}, {"a": 3}', '{"a": 2} more', '{"a": 2}]')
    values = ("[]", '[{"a": 2}]', "5", '"x"', "null", "true", ",", "]", '{"a": 2},', '{"a": 2}] more')
    for line in (*others, *values):
        file.write_text(f'{{"a": 1}}\n{line}\n')
        with pytest.raises(
            TableError, match=r"bad\.jsonl (line 2|holds a line that) is not one JSON object"
        ) as refused:
            spark_rows(spark, source, relation)
        assert "`from`" in refused.value.hint, line


@pytest.mark.parametrize(
    ("content", "format", "message"),
    [
        ("a,b,a\n1,2,3\n", {}, "the header names column a twice"),
        ("a,,b\n1,2,3\n", {}, "the header has no name for column 2"),
        ("", {}, "has no header: its first line is empty"),
        ("\n1,2\n", {}, "has no header: its first line is empty"),
        ("1,2\n", {"header": False}, r"set format\.schema|no header"),
        ("a\n1\n", {"schema": {"b": "int"}}, "has no column b"),
        ("a\n1\n", {"type": "jsonl"}, "do not say which columns"),
        ("a\n1\n", {"type": "avro"}, r"t\.csv cannot be read as avro"),
    ],
)
def test_what_a_plan_says_of_files_it_cannot_understand(
    inbox: Path, source: Any, content: str, format: Mapping[str, Any], message: str
) -> None:
    (inbox / "t.csv").write_text(content)
    relation = files("t.csv", **format)
    with pytest.raises(TableError, match=message):
        source.describe([relation])


@pytest.mark.long_on_spark
@pytest.mark.parametrize(
    ("form", "kind", "text"),
    [
        ("jsonl", "array<struct<a: bigint>>", '[{"a":1}]'),
        ("jsonl", "array<array<string>>", '[["x"]]'),
        ("jsonl", "struct<a: array<binary>>", '{"a":["YQ=="]}'),
        ("csv", "array<string>", '["x"]'),
        ("csv", "binary", "YQ=="),
    ],
)
def test_a_type_that_no_text_is_read_as_stops_the_plan(
    spark: SparkSession, inbox: Path, source: Any, form: str, kind: str, text: str
) -> None:
    doubled = text.replace('"', '""')
    (inbox / f"t.{form}").write_text(f'{{"v": {text}}}\n' if form == "jsonl" else f'v,w\n"{doubled}",x\n')
    with pytest.raises(TableError, match=r"column v of `format\.schema` is .*, which no text is read as") as refused:
        source.describe([files(f"t.{form}", schema={"v": kind})])
    assert refused.value.hint.startswith("Set v to string")
    (read,) = spark_rows(spark, source, files(f"t.{form}", schema={"v": "string"}))
    assert read["v"] == text


def test_parquet_brings_its_types(spark: SparkSession, inbox: Path, source: Any) -> None:
    data = pa.table(
        {
            "i": pa.array([1, None], pa.int32()),
            "u": pa.array([2**32 - 1, 0], pa.uint32()),
            "d": pa.array([Decimal("1.10"), None], pa.decimal128(12, 2)),
            "n": pa.array([dt.datetime(1582, 10, 10, 1, 2, 3, 4), None], pa.timestamp("us")),
            "t": pa.array([dt.datetime(2026, 3, 29, 2, 30, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
            "day": pa.array([dt.date(1, 1, 1), None]),
            "l": pa.array([["a", None], []], pa.list_(pa.string())),
            "s": pa.array([{"x": 1}, None], pa.struct([("x", pa.int64())])),
        }
    )
    pq.write_table(data, inbox / "t.parquet")
    info = describe(source, files("t.parquet"))
    assert [str(column.type) for column in info.columns] == [
        "int32", "int64", "decimal128(12, 2)", "timestamp[us]", "timestamp[us, tz=UTC]", "date32[day]",
        "list<item: string>", "struct<x: int64>",
    ]  # fmt: skip
    read = spark_rows(spark, source, files("t.parquet"))
    assert read[0]["n"] == dt.datetime(1582, 10, 10, 1, 2, 3, 4)
    assert {name: read[0][name] for name in "iudls"} == {name: data[name][0].as_py() for name in "iudls"}


def test_columns_of_all_files_come_together(spark: SparkSession, inbox: Path, source: Any) -> None:
    """A column may be wider or missing in some Parquet files; any other difference is an error."""
    pq.write_table(pa.table({"id": pa.array([1], pa.int32())}), inbox / "1.parquet")
    pq.write_table(pa.table({"id": pa.array([2**40]), "extra": ["x"]}), inbox / "2.parquet")
    relation = files("*.parquet")
    info = describe(source, relation)
    assert [(column.name, column.type) for column in info.columns] == [("id", types.INT64), ("extra", types.STRING)]
    read = sorted(spark_rows(spark, source, relation), key=lambda row: row["id"])
    assert read == [{"id": 1, "extra": None}, {"id": 2**40, "extra": "x"}]
    pq.write_table(pa.table({"id": ["three"]}), inbox / "3.parquet")
    with pytest.raises(TableError, match=r"column id is bigint in 2\.parquet and string in 3\.parquet"):
        source.describe([relation])


def test_of_files_with_different_types_the_one_that_has_the_type_is_named(inbox: Path, source: Any) -> None:
    kinds = (pa.decimal128(5, 2), pa.decimal128(10, 4), pa.decimal128(7, 2), pa.int32())
    for at, kind in enumerate(kinds, 1):
        pq.write_table(pa.table({"d": pa.array([None], kind)}), inbox / f"{at}.parquet")
    with pytest.raises(TableError, match=r"d is decimal\(10,4\) in 2\.parquet and int in 4\.parquet"):
        source.describe([files("*.parquet")])


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_columns_are_told_by_name(spark: SparkSession, inbox: Path, source: Any, form: str) -> None:
    rows: list[dict[str, Any]] = [{"id": 1, "v": "one"}, {"v": "two", "id": 2}, {"id": 3, "new": "x", "v": "three"}]
    for at, row in enumerate(rows):
        if form == "jsonl":
            (inbox / f"{at}.jsonl").write_text(json.dumps(row) + "\n")
        else:
            pq.write_table(pa.Table.from_pylist([row]), inbox / f"{at}.parquet")
    given = {"schema": {"id": "bigint", "v": "string", "new": "string"}} if form == "jsonl" else {}
    read = sorted(spark_rows(spark, source, files(f"*.{form}", **given)), key=lambda row: row["id"])
    assert read == [{"id": 1, "v": "one", "new": None}, {"id": 2, "v": "two", "new": None}, rows[2]]


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.time64("us"), pa.map_(pa.string(), pa.int64())], ids=str)
def test_a_type_that_cannot_be_carried_is_refused(inbox: Path, source: Any, kind: pa.DataType) -> None:
    pq.write_table(pa.table({"v": pa.array([None], kind)}), inbox / "t.parquet")
    with pytest.raises(TableError, match=r"t\.parquet: column v has type"):
        source.describe([files("t.parquet")])


def test_each_file_is_read_once(spark: SparkSession, inbox: Path, source: Any) -> None:
    relation = files("*.parquet")
    pq.write_table(pa.table({"id": ["1"]}), inbox / "1.parquet")
    first = position(source, relation)
    pq.write_table(pa.table({"id": ["2"]}), inbox / "2.parquet")
    second = position(source, relation)
    pq.write_table(pa.table({"id": ["3"]}), inbox / "3.parquet")

    def ids(interval: Interval | None) -> list[str]:
        return sorted(row["id"] for row in spark_rows(spark, source, relation, interval=interval))

    assert ids(Interval(None, second)) == ["1", "2"]
    assert ids(Interval(first, second)) == ["2"]
    assert ids(Interval(second, second)) == []
    assert ids(None) == ["1", "2", "3"]


@pytest.mark.parametrize("change", ["rewritten", "touched", "gone"])
def test_a_file_that_changed_since_the_plan_is_refused(
    spark: SparkSession, inbox: Path, source: Any, change: str
) -> None:
    file = inbox / "1.csv"
    file.write_text("id\n1\n")
    planned = position(source, files("*.csv"))
    match change:
        case "rewritten":
            file.write_text("id\n12\n")
        case "touched":
            os.utime(file, ns=(1, 1))
        case _:
            file.rename(inbox / "2.csv")
    with pytest.raises(TableError, match=r"gone or were changed since, first 1\.csv"):
        spark_rows(spark, source, files("*.csv"), interval=Interval(None, planned))


def test_a_file_that_changes_while_it_is_read_is_refused(spark: SparkSession, inbox: Path, source: Any) -> None:
    (inbox / "1.csv").write_text("id\n1\n")
    relation = files("*.csv")
    info = describe(source, relation)
    interval = Interval(None, position(source, relation))
    with source.snapshot(spark, relation, info, ReadHints()) as snapshot:
        snapshot.confirm(interval)
        (inbox / "2.csv").write_text("id\n2\n")  # which is the next run's business
        snapshot.confirm(interval)
        (inbox / "1.csv").write_text("id\n1\n3")
        with pytest.raises(TableError, match=r"gone or were changed since, first 1\.csv"):
            snapshot.confirm(interval)


def test_nothing_there(source: Any) -> None:
    relation = files("*.csv")
    assert source.describe([relation]) == {relation: None}
    with pytest.raises(FlowctlError, match="named by a path"):
        source.describe([Relation(None, "SELECT 1")])
