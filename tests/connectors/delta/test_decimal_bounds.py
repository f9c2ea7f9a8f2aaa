"""Decimals whose statistics other writers have rounded: no file with one of a batch's keys is skipped."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from flowctl.connectors.delta import decimal_bounds
from flowctl.connectors.delta.actions import may_match
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.log import read_live_files
from flowctl.connectors.delta.spark_writer import key_bounds
from flowctl.connectors.target import WriteJob
from flowctl.model import types
from flowctl.model.commit import Commit
from flowctl.model.position import VersionPosition
from flowctl.model.table_info import Column, ObjectName
from flowctl.spec.spec import Layout
from tests.connectors.delta import delta_tables
from tests.connectors.writing import OP_COLUMN, Writer

#: By type: values of a column in each file.
FILES = {
    types.Decimal(20, 0): [
        ["9007199254740995", "9007199254740997"],
        ["9223372036854775808"],
        ["18446744073709551615"],
        ["-18446744073709551615", "-9223372036854775809"],
        ["-1000000000000000003"],
        ["0"],
        ["77"],
    ],
    types.Decimal(38, 0): [["1" * 38], ["9" * 38], ["-" + "9" * 38]],
    types.Decimal(38, 2): [["123456789012345678.91"], ["-123456789012345678.91"], ["0.07"], ["9" * 36 + ".99"]],
    types.Decimal(38, 38): [["0." + "7" * 38], ["0." + "9" * 38], ["-0." + "3" * 38]],
    types.Decimal(18, 4): [["12345678901234.5678"], ["99999999999999.9999"]],
    types.Decimal(15, 2): [["9999999999999.99"], ["9999999999999.98"], ["0.10", "0.30"]],
}
COLUMNS = (Column("id", types.Decimal(20, 0)), Column("name", types.STRING))


def test_a_file_is_found_by_each_of_its_values(tmp_path: Path) -> None:
    for kind, files in FILES.items():
        path = tmp_path / f"{kind.precision}-{kind.scale}"
        arrow = pa.decimal128(kind.precision, kind.scale)
        for values in files:
            write_deltalake(path, pa.table({"v": pa.array(map(Decimal, values), arrow)}), mode="append")
        actions = read_live_files(TableLocation(str(path), {}), len(files) - 1)
        for file, values in zip(actions, files, strict=True):
            for value in map(Decimal, values):
                assert may_match([[("v", ">=", value), ("v", "<=", value)]], file), (kind, value, file["stats"])
                ends = decimal_bounds.around(value, value, kind)
                assert ends is None or overlap(file, *ends), (kind, value, file["stats"])


def overlap(file: dict[str, Any], low: Decimal, high: Decimal) -> bool:
    """As Spark compares them: with the statistics as they are written."""
    written = json.loads(file["stats"], parse_float=Decimal)
    return bool(written["minValues"]["v"] <= high and written["maxValues"]["v"] >= low)


@pytest.mark.parametrize("value", ["9007199254700000", "1000", "-9007199254740995"])
def test_other_files_are_skipped(value: str) -> None:
    file = {"stats": '{"minValues":{"v":9007199254740995},"maxValues":{"v":9007199254740997}}'}
    assert not may_match([[("v", ">=", Decimal(value)), ("v", "<=", Decimal(value))]], file)


@pytest.mark.parametrize("bound", ['"5"', "{}", "null", "1e400"])
def test_bounds_of_another_form_skip_nothing(bound: str) -> None:
    file = {"stats": f'{{"minValues":{{"v":{bound}}},"maxValues":{{"v":{bound}}}}}'}
    assert may_match([[("v", ">=", Decimal(5))]], file)


def test_spark_gets_bounds_that_are_wide_enough() -> None:
    record = Commit("lineage", "t", 1, "intent", "", VersionPosition(1))
    ends = {"id": ("9007199254740995", "18446744073709551615"), "few": ("0.10", "0.30"), "most": ("1", "9" * 38)}
    columns = (COLUMNS[0], Column("few", types.Decimal(15, 2)), Column("most", types.Decimal(38, 0)))
    job = WriteJob(record, ObjectName(("t",)), "merge", columns, key=tuple(ends), key_bounds=ends)
    assert key_bounds(None, job).by_column == {
        "id": ("CAST('9007199254740904' AS DECIMAL(20,0))", "CAST('18446744073709736083' AS DECIMAL(20,0))"),
        "few": ("CAST('0.10' AS DECIMAL(15,2))", "CAST('0.30' AS DECIMAL(15,2))"),
    }


@pytest.mark.long_on_spark
def test_a_key_in_a_file_of_another_writer_stays_one(writer: Writer) -> None:
    kept = ["9007199254740995", "9007199254740997", "18446744073709551615"]
    made = writer.place.target.create_statements(writer.place.object, COLUMNS, Layout(deletion_vectors=False))
    writer.write([], 1, columns=COLUMNS, create=made)
    rows = pa.table({"id": pa.array(map(Decimal, kept), pa.decimal128(20, 0)), "name": ["a", "b", "c"]})
    path = delta_tables.location(writer).url
    for at, id in enumerate(kept):
        write_deltalake(path, rows.slice(at, 1), mode="append")
        writer.write([{"id": Decimal(id), "name": "new", OP_COLUMN: "U"}], at + 2, "merge", columns=COLUMNS)
    assert sorted(writer.place.read(["id", "name"])) == [(Decimal(id), "new") for id in kept]
