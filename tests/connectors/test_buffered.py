"""The engine writes and reads exactly the buffer's folders, whatever the path of state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from flowctl.connectors.buffered import buffered, put, read_folder
from flowctl.storage.buffer import Buffer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

THREE = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.mark.parametrize("name", ["a[1]", "a{b}", "a*b?", "a%20b", "a b", "é", "a\\b"])
def test_rows_of_a_folder_with_any_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    buffer = Buffer(str(tmp_path / name / "shop"), "run-1", {})
    folder = buffer.folder("by this process")
    put(folder, THREE)
    assert read_folder(spark, "id bigint", folder).count() == 3
    written = buffer.folder("by the engine")
    assert buffered(spark.range(3), written).count() == 3
    assert written.rows() == 3, "it was written to another place"


def test_a_read_that_misses_the_rows_of_a_folder_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    folder = Buffer(str(tmp_path / "shop"), "run-1", {}).folder("rows")
    put(folder, THREE)
    folder.url += "-elsewhere"
    with pytest.raises(Exception, match=r"does not find the rows|PATH_NOT_FOUND"):
        read_folder(spark, "id bigint", folder).collect()  # a client of a server does not look before
