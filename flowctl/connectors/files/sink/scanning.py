"""Reads a table that was written as files, by its manifest, with the readers of the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flowctl.connectors.files.listing import matching
from flowctl.connectors.files.reading import FilesSnapshot
from flowctl.connectors.files.sink.folder import TableFolder
from flowctl.connectors.files.sink.manifest import Manifest
from flowctl.connectors.source import ReadRequest, Relation
from flowctl.engine.spark_types import named
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import FilesPosition, FileStamp
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.sql.dialects import schema_ddl

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame, SparkSession


def scan(spark: SparkSession, folder: TableFolder, columns: Sequence[Column]) -> DataFrame:
    """The rows of the newest manifest; a file that lacks a column has null."""
    manifest = folder.newest()
    if not manifest.files:
        return spark.createDataFrame([], schema_ddl(columns))
    read, stored = [_readable(column, manifest) for column in columns], tuple(_readable_of(manifest))
    relation = Relation(ObjectName(("*",)), format=_options(manifest, stored))
    info = TableInfo(ObjectName(("*",)), stored, manifest.id)
    position = FilesPosition(_stamps(folder, manifest))
    request = ReadRequest(tuple(read), Interval(None, position, files=position.files))
    rows = FilesSnapshot(spark, folder.root, relation, info).frame(request)
    return rows.select(*(_value(column, one) for column, one in zip(columns, read, strict=True)))


def _stamps(folder: TableFolder, manifest: Manifest) -> tuple[FileStamp, ...]:
    here = {stamp.path: stamp for stamp in matching(folder.root, "*")}
    if lost := next((file.path for file in manifest.files if file.path not in here), None):
        raise TableError(f"{folder.root.url} has lost {lost}", hint="Put the file back, or run with --full-refresh")
    return tuple(here[file.path] for file in manifest.files)


def _readable_of(manifest: Manifest) -> list[Column]:
    return [_readable(column, manifest) for column in manifest.columns]


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
    options: dict[str, Any] = {"type": dialect.format}
    if dialect.format == "csv":
        options |= {
            "header": dialect.header,
            "delimiter": dialect.delimiter,
            "quote": dialect.quote,
            "null_value": dialect.null_value,
            "multiline": True,
        }
    if dialect.format == "jsonl" or not dialect.header:
        options["schema"] = {column.name: str(column.type) for column in columns}
    return options
