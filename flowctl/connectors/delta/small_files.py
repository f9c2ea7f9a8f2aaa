"""Few new rows as one file that this process writes: an engine computes them, and hands them over.

Spark's own write is a job with a committer and, on a local disk, a process for each file and folder; Sail's needs a
table of its own (:mod:`flowctl.connectors.delta.shadow`). Either takes several times as long as the file.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.parquet_files import CODEC, added, indexed_columns
from flowctl.connectors.delta.replay import Action

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: What Delta and pyarrow call the same.
_CODECS = ("snappy", "zstd", "gzip", "brotli")
#: Spark reads days before 1582 in files without it as its configuration says; with it, as they are.
_VERSION = b"org.apache.spark.version"


def can_write(metadata: Mapping[str, Any]) -> bool:
    """Whether a file of such a table is one of its kind without an engine."""
    return not metadata["partitionColumns"] and _codec(metadata) in _CODECS


def _codec(metadata: Mapping[str, Any]) -> str:
    return str(metadata["configuration"].get(CODEC, _CODECS[0])).lower()


def written(location: TableLocation, metadata: Mapping[str, Any], frame: DataFrame) -> list[Action]:
    """As :func:`flowctl.connectors.delta.parquet_files.written`, for as many rows as this process may hold."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import pyspark

    rows = frame.toArrow()
    if not rows.num_rows:
        return []
    rows = rows.replace_schema_metadata({_VERSION: pyspark.__version__.encode()})
    file = pa.BufferOutputStream()
    footers: list[pq.FileMetaData] = []
    pq.write_table(
        rows,
        file,
        compression=_codec(metadata),
        store_decimal_as_integer=True,  # as Spark does: readers with vectors want it
        store_schema=False,
        metadata_collector=footers,
    )
    content = file.getvalue()
    name = f"part-00000-{uuid.uuid4()}.parquet"
    location.write_file(name, content.to_pybytes())
    return [added(name, content.size, footers[0], indexed_columns(metadata))]
