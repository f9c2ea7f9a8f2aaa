"""Writes new rows as Parquet files that no reader sees until a commit references them: by this process, by Spark or by
Sail.

A file that is never committed is what Delta calls unreferenced: VACUUM removes it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from flowctl.connectors.buffered import NO_MARKER
from flowctl.connectors.delta import actions, commit, log
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.statements import CODEC
from flowctl.connectors.delta.statistics import indexed_columns, statistics
from flowctl.connectors.delta.types import Action, columns_of

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import DataFrame

#: Codecs with the same name in Delta and pyarrow.
_CODECS = ("snappy", "zstd", "gzip", "brotli")
#: In files without this key, Spark reads days before 1582 as its configuration says; with it, as they are.
_VERSION = b"org.apache.spark.version"
#: In a file of many columns each has few rows, so a large dictionary is filled and then discarded, and hundreds of them
#: do not fit into any cache. With 500 columns: 54 s instead of 74, files of the same size.
_WIDE_COLUMNS, _WIDE_DICTIONARY = 100, 8 << 10
_DICTIONARY = "parquet.dictionary.page.size"


def can_write(metadata: Mapping[str, Any]) -> bool:
    """Whether this process can write the files of such a table."""
    return not metadata["partitionColumns"] and _codec(metadata) in _CODECS


def _codec(metadata: Mapping[str, Any]) -> str:
    return str(metadata["configuration"].get(CODEC, _CODECS[0])).lower()


def write_groups(
    location: TableLocation,
    metadata: Mapping[str, Any],
    schema: pa.Schema,
    groups: Iterable[pa.Table],
    folder: str = "",
) -> Action | None:
    """Writes one file of these row groups with pyarrow. Returns its ``add`` action, without partition values, or None
    if there are no rows. ``folder`` is relative to the table's, encoded as in the log. For a small batch an engine's
    own write takes several times as long."""
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
        store_decimal_as_integer=True,  # as Spark does: vectorized readers need it
        store_schema=False,
        metadata_collector=footers,
    ) as writer:
        for group in groups:
            writer.write_table(group.replace_schema_metadata(schema.metadata))
    if not footers[0].num_rows:
        return None
    content = file.getvalue()
    name = f"{folder}/part-00000-{uuid.uuid4()}.parquet".lstrip("/")
    location.write_file(unquote(name), content.to_pybytes())
    return add_action(name, content.size, footers[0], indexed_columns(metadata))


def add_action(path: str, size: int, footer: pq.FileMetaData, indexed: list[str]) -> Action:
    """The ``add`` action of a file without partition values."""
    return {
        "path": path,
        "partitionValues": {},
        "size": size,
        "modificationTime": actions.now(),
        "dataChange": True,
        "stats": statistics(footer, indexed),
    }


def write_by_spark(location: TableLocation, metadata: Mapping[str, Any], frame: DataFrame) -> list[Action]:
    """Writes ``frame``, which has the columns of ``metadata``, without Delta. Returns the ``add`` actions for
    ``location``, a table without partitions. Delta's own write first computes the table's state with a query or two:
    for a small batch this takes several times as long as writing its file."""
    folder = actions.new_folder()
    writer = frame.write.option(NO_MARKER, "false")
    if codec := metadata["configuration"].get(CODEC):
        writer = writer.option("compression", codec)
    is_wide = len(columns_of(metadata["schemaString"])) > _WIDE_COLUMNS
    if is_wide and f"spark.hadoop.{_DICTIONARY}" not in frame.sparkSession.conf.getAll:
        writer = writer.option(_DICTIONARY, _WIDE_DICTIONARY)
    writer.parquet(f"{location.spark_path}/{folder}")
    return list(_adds_in(location, folder, indexed_columns(metadata)))


def _adds_in(location: TableLocation, folder: str, indexed: list[str]) -> Iterator[Action]:
    import pyarrow.parquet as pq

    system = location.file_system()
    for entry in sorted(system.ls(f"{location.url}/{folder}", detail=True), key=lambda entry: str(entry["name"])):
        name = str(entry["name"]).rpartition("/")[2]
        if not name.endswith(".parquet") or name.startswith((".", "_")):
            continue
        with system.open(entry["name"], "rb") as file:
            footer = pq.read_metadata(file)
        if footer.num_rows:
            yield add_action(f"{folder}/{quote(name)}", int(entry["size"]), footer, indexed)


def write_by_sail(location: TableLocation, metadata: Mapping[str, Any], frame: DataFrame) -> list[Action]:
    """As :func:`write_by_spark`, with partitions: Sail's own Delta writer writes a table in a subfolder of the real
    one.

    Sail's Parquet writer gets partitions wrong: in a folder's name a null becomes 0, 1970-01-01 or nothing, and it
    refuses timestamps and decimals. Its Delta writer writes files, statistics and partitions correctly."""
    folder = actions.new_folder()
    hidden = TableLocation(f"{location.url}/{folder}", location.storage)
    kept = {name: value for name, value in metadata["configuration"].items() if name in _OF_FILES}
    hidden_metadata = {**metadata, "id": str(uuid.uuid4()), "configuration": kept}
    commit.publish(hidden, 0, [_SAIL_PROTOCOL, {"metaData": hidden_metadata}])
    frame.write.format("delta").mode("append").save(hidden.spark_path)
    entries = [entry for _, entry in log.read_back_from(hidden, 1)]  # Sail commits nothing if there are no rows
    added = [action["add"] for entry in entries for action in entry if "add" in action]
    hidden.file_system().rm(f"{hidden.url}/{log.FOLDER}", recursive=True)  # only data files stay
    return [{**add, "path": f"{folder}/{add['path']}"} for add in added if actions.row_count(add)]


#: Properties that control how files are written.
_OF_FILES = ("delta.dataSkippingStatsColumns", "delta.dataSkippingNumIndexedCols", CODEC)
_SAIL_PROTOCOL = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["timestampNtz"],
        "writerFeatures": ["timestampNtz", "appendOnly", "invariants"],
    }
}
