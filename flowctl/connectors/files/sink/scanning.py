"""Reads a table that was written as files, by its manifest, with the readers of the source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.buffered import Overflowing, frame_of
from flowctl.connectors.files.formats import Format
from flowctl.connectors.files.listing import listed
from flowctl.connectors.files.reading import FilesSnapshot
from flowctl.connectors.files.sink.folder import TableFolder
from flowctl.connectors.files.sink.manifest import Manifest
from flowctl.connectors.files.sink.writing import fitted
from flowctl.connectors.files.spark_reading import typed_rows
from flowctl.connectors.source import ReadRequest, Relation
from flowctl.engine.spark_types import named
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import FilesPosition, FileStamp
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.sql.dialects import schema_ddl
from flowctl.storage.buffer import BufferFolder

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame, SparkSession


def scan(
    spark: SparkSession, folder: TableFolder, columns: Sequence[Column], make_place: Callable[[], BufferFolder]
) -> DataFrame:
    """The rows of the newest manifest; a file that lacks a column has null. What this process reads, because engines do
    not, goes through a new folder of the buffer."""
    manifest = folder.newest()
    if not manifest.files:
        return spark.createDataFrame([], schema_ddl(columns))
    read = [_readable(column, manifest) for column in columns]
    match manifest.dialect.format:
        case "csv" | "jsonl":
            rows = _of_text(spark, folder, manifest, read)
        case "orc":
            rows = _of_orc(spark, folder, manifest, read, make_place)
        case "parquet":
            paths = [folder.root.spark_path(file.path) for file in manifest.files]
            rows = typed_rows(spark, Format("parquet", {}, ()), paths, read, has_places=False)
    return rows.select(*(_value(column, one) for column, one in zip(columns, read, strict=True)))


def _of_text(spark: SparkSession, folder: TableFolder, manifest: Manifest, columns: Sequence[Column]) -> DataFrame:
    names = {column.name for column in columns}
    is_json = manifest.dialect.format == "jsonl"  # others need not be read: a guard counts rows by one column
    needed = [column for column in manifest.columns if column.name in names or not is_json]
    stored = tuple(_readable(column, manifest) for column in needed)
    relation = Relation(ObjectName(("*",)), format=_options(manifest, stored))
    info = TableInfo(ObjectName(("*",)), stored, manifest.id)
    position = FilesPosition(_stamps(folder, manifest))
    request = ReadRequest(tuple(columns), Interval(None, position, files=position.files))
    return FilesSnapshot(spark, folder.root, relation, info).frame(request)


def _of_orc(
    spark: SparkSession,
    folder: TableFolder,
    manifest: Manifest,
    columns: Sequence[Column],
    make_place: Callable[[], BufferFolder],
) -> DataFrame:
    """Spark takes a timestamp of ORC for one with a zone, and Sail reads none."""
    import pyarrow as pa
    from pyarrow import orc

    ddl = schema_ddl(columns)
    with Overflowing(arrow_schema(columns), make_place) as sink:
        for file in manifest.files:
            try:
                with folder.own_errors(), folder.file_system.open(folder.full(file.path), "rb") as opened:
                    rows = orc.ORCFile(opened).read()
            except pa.ArrowInvalid as error:
                raise TableError(f"{folder.root.url}/{file.path}: {error}", hint="Write parquet") from error
            for batch in fitted(rows.to_batches(), columns):
                sink.write(batch)
    return frame_of(sink.batch(spark, ddl), spark, make_place)


def _stamps(folder: TableFolder, manifest: Manifest) -> tuple[FileStamp, ...]:
    here = {stamp.path: stamp for stamp in listed(folder.root, "*")}
    if lost := next((file.path for file in manifest.files if file.path not in here), None):
        raise TableError(f"{folder.root.url} has lost {lost}", hint="Put the file back, or run with --full-refresh")
    return tuple(here[file.path] for file in manifest.files)


def _readable(column: Column, manifest: Manifest) -> Column:
    """In text, bytes are base64."""
    is_text = manifest.dialect.format in ("csv", "jsonl")
    return replace(column, type=types.STRING) if is_text and column.type == types.BINARY else column


def _value(wanted: Column, read: Column) -> Expression:
    from pyspark.sql import functions as f

    value = named(read.name)
    return f.unbase64(value).alias(wanted.name) if wanted.type != read.type else value


def _options(manifest: Manifest, columns: Sequence[Column]) -> Mapping[str, Any]:
    """As a spec would describe the files."""
    dialect = manifest.dialect
    declared = {"schema": {column.name: str(column.type) for column in columns}}
    if dialect.format == "jsonl":
        return {"type": "jsonl", **declared}
    return {
        "type": "csv",
        "header": dialect.header,
        "delimiter": dialect.delimiter,
        "quote": dialect.quote,
        "null_value": dialect.null_value,
        "multiline": True,
        **({} if dialect.header else declared),
    }
