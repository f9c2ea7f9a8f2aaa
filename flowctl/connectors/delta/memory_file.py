"""Rows that this process holds, or passes on, as one file that it writes itself.

For a small batch Spark's own write is a job with a committer and, on a local disk, a process for each file and folder;
Sail's needs a table of its own (:mod:`flowctl.connectors.delta.sail_files`). Either takes several times as long as the
file.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.replay import Action
from flowctl.connectors.delta.spark_files import CODEC, add_action, indexed_columns

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

#: What Delta and pyarrow call the same.
_CODECS = ("snappy", "zstd", "gzip", "brotli")
#: Spark reads days before 1582 in files without it as its configuration says; with it, as they are.
_VERSION = b"org.apache.spark.version"


def can_write(metadata: Mapping[str, Any]) -> bool:
    """Whether a file of such a table is one of its kind without an engine."""
    return not metadata["partitionColumns"] and _codec(metadata) in _CODECS


def _codec(metadata: Mapping[str, Any]) -> str:
    return str(metadata["configuration"].get(CODEC, _CODECS[0])).lower()


def write_groups(
    location: TableLocation, metadata: Mapping[str, Any], schema: pa.Schema, groups: Iterable[pa.Table]
) -> Action | None:
    """The ``add`` action of one new file of these row groups, without partition values; None where there are no
    rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import pyspark

    file = pa.BufferOutputStream()
    footers: list[pq.FileMetaData] = []
    codec = _codec(metadata)
    schema = schema.with_metadata({_VERSION: pyspark.__version__.encode()})
    with pq.ParquetWriter(
        file,
        schema,
        compression=codec if codec in _CODECS else _CODECS[0],
        store_decimal_as_integer=True,  # as Spark does: readers with vectors want it
        store_schema=False,
        metadata_collector=footers,
    ) as writer:
        for group in groups:
            writer.write_table(group.replace_schema_metadata(schema.metadata))
    if not footers[0].num_rows:
        return None
    content = file.getvalue()
    name = f"part-00000-{uuid.uuid4()}.parquet"
    location.write_file(name, content.to_pybytes())
    return add_action(name, content.size, footers[0], indexed_columns(metadata))
