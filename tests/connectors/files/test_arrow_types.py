"""Parquet whose recorded types of Arrow not every engine reads, and what is said of a file that none reads."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowctl.connectors.files.formats import FormatName
from flowctl.connectors.files.reading import error_of_read
from tests.connectors.reading import files, spark_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.large_list(pa.int64()), [1, 2]),
        (pa.date64(), dt.date(2024, 1, 2)),
        (pa.list_(pa.date64()), [dt.date(2024, 1, 2)]),
        (pa.large_list(pa.struct([("at", pa.large_list(pa.date64()))])), [{"at": [dt.date(2024, 1, 2)]}]),
    ],
    ids=str,
)
def test_types_of_arrow_that_not_every_engine_reads(
    spark: SparkSession, inbox: Path, source: Any, kind: pa.DataType, value: Any
) -> None:
    """Polars writes all lists as large ones."""
    pq.write_table(pa.table({"id": [1, 2], "v": pa.array([value, None], kind)}), inbox / "t.parquet")
    found = sorted((row["id"], row["v"]) for row in spark_rows(spark, source, files("t.parquet")))
    assert found == [(1, value), (2, None)]


@pytest.mark.parametrize(("format", "hint"), [("csv", "delimiter"), ("jsonl", "schema"), ("parquet", "Replace")])
def test_what_to_do_about_a_malformed_row_fits_the_format(format: FormatName, hint: str) -> None:
    found = error_of_read("[FAILED_READ_FILE] no", f"*.{format}", format)
    assert found is not None and hint in (found.hint or "") and ("delimiter" in (found.hint or "")) == (format == "csv")
