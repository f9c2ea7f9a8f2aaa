"""Reads files with Spark, each value converted exactly to the type of its column.

Text formats are read as text first, because Spark's own parsers round decimals and turn what they cannot parse into
null. JSON goes through VARIANT, which keeps a number's digits; Spark's JSON reader turns them into doubles.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, assert_never

from flowctl.connectors.exact import exactly
from flowctl.connectors.files.formats import Format
from flowctl.connectors.refusal import PREFIX, file_hint
from flowctl.connectors.source import PLACE_COLUMN
from flowctl.engine.paths import readers
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, Decimal, Scalar, Struct
from flowctl.sql.dialects import quoted, schema_ddl

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

#: What Spark's CSV reader returns for a quoted empty value, which would otherwise be null, like one without quotes.
_QUOTED_EMPTY = "\x00quoted empty\x00"
_JSON = "_flowctl_json"
#: Appended to a line of JSON while it is parsed.
_END = "_flowctl_end"
_NO_OBJECT = (
    " holds a line that is not one JSON object"
    " | Write one object in each line, or leave the file out of the pattern in `from`"
)


def typed_rows(
    spark: SparkSession, format: Format, paths: Sequence[str], columns: Sequence[Column], *, has_places: bool
) -> DataFrame:
    """All rows of ``paths`` with exactly ``columns`` and, with ``has_places``, their positions. A row that does not fit
    fails the read."""
    if not paths:
        place = [Column(PLACE_COLUMN, types.INT64)] if has_places else []
        return spark.createDataFrame([], schema_ddl([*columns, *place]))
    frames = [_rows(reader, format, some, columns, has_places) for reader, some in readers(spark, paths)]
    return reduce(lambda one, other: one.unionAll(other), frames)


def _rows(
    reader: DataFrameReader, format: Format, paths: list[str], columns: Sequence[Column], has_places: bool
) -> DataFrame:
    match format.name:
        case "csv":
            return _csv(reader, format, paths, columns, has_places)
        case "jsonl":
            return _json_lines(reader, format, paths, columns, has_places)
        case "parquet" | "orc":
            read = reader.schema(schema_ddl(columns)).format(format.name).load(paths)
            return read.select("*", _place(read)) if has_places else read
        case "avro":
            raise ValueError("flowctl reads Avro files itself")
        case _:
            assert_never(format.name)


def _place(read: DataFrame) -> Expression:
    """The position of each row of a frame that reads files: the file's path, the start of the part that its task reads,
    and a number that grows from row to row within that. Paths are compared as listed, not as Spark encodes them."""
    from pyspark.sql import functions as f

    file = read.metadataColumn("_metadata")
    path = file.getField("file_path")
    decoded = f.try_url_decode(f.replace(path, f.lit("+"), f.lit("%2B")))
    start = file.getField("file_block_start")
    return f.struct(f.coalesce(decoded, path), start, f.monotonically_increasing_id()).alias(PLACE_COLUMN)


def _csv(
    reader: DataFrameReader, format: Format, paths: list[str], columns: Sequence[Column], has_places: bool
) -> DataFrame:
    """A quoted empty value is the empty text in text columns and null in all others."""
    from pyspark.sql import functions as f

    texts = [Column(column.name, types.STRING) for column in columns]
    read = reader.schema(schema_ddl(texts)).options(**_csv_options(format)).csv(paths)

    def value(text: Column, column: Column) -> Expression:
        raw = f.col(quoted(text.name, "spark"))
        empty = f.lit("" if column.type == types.STRING else None)
        return exactly(f.when(raw == _QUOTED_EMPTY, empty).otherwise(raw), text, column, file_hint(column.name)).alias(
            column.name
        )

    values = [value(text, column) for text, column in zip(texts, columns, strict=True)]
    return read.select(*values, *([_place(read)] if has_places else []))


def _csv_options(format: Format) -> dict[str, str]:
    """FAILFAST: a row with too many or too few values is an error, never nulls."""
    given = format.csv
    return {
        "mode": "FAILFAST",
        "columnPruning": "false",  # otherwise rows with too few values would pass
        "enforceSchema": "false",  # compares each file's header with the columns
        "header": str(given.header),
        "sep": given.delimiter,
        "quote": given.quote,
        "escape": given.escape,
        "nullValue": given.null_value,
        "emptyValue": _QUOTED_EMPTY,
        "encoding": given.encoding,
        "multiLine": str(given.multiline),
        "maxCharsPerColumn": "-1",
    }


def _json_lines(
    reader: DataFrameReader, format: Format, paths: list[str], columns: Sequence[Column], has_places: bool
) -> DataFrame:
    """One object per line; names that are not in `format.schema` are ignored."""
    from pyspark.sql import functions as f

    if str(format.options.get("encoding", "UTF-8")).upper() != "UTF-8":
        raise TableError("JSON lines are UTF-8", hint="Remove format.encoding")
    read = reader.text(paths)
    place = [_place(read)] if has_places else []
    lines = read.where(f.trim("value") != "")
    # Spark ignores what follows the first value: only in a list can it be detected.
    parsed = f.try_parse_json(f.concat(f.lit("["), f.col("value"), f.lit(f',"{_END}"]')))
    is_object = (f.variant_get(parsed, "$[1]", "string") == _END) & f.col("value").rlike(r"^[ \t\r\n]*\{")
    message = f.concat(f.lit(PREFIX), f.col("_metadata.file_path"), f.lit(_NO_OBJECT))
    objects = lines.select(
        f.when(is_object, parsed).otherwise(f.raise_error(message).cast("variant")).alias(_JSON), *place
    )
    values = [_json_value("$[0]", column).alias(column.name) for column in columns]
    return objects.select(*values, *([PLACE_COLUMN] if has_places else []))


def _json_value(parent: str, column: Column) -> Expression:
    from pyspark.sql import functions as f

    escaped_name = column.name.replace("\\", "\\\\").replace('"', '\\"')
    path = f'{parent}["{escaped_name}"]'
    text = Column(column.name, types.STRING)
    match column.type:
        case Array(Scalar() | Decimal() as item):
            of_item = Column(column.name, item)
            texts = f.variant_get(_JSON, path, "array<string>")
            return f.transform(texts, lambda element: exactly(element, text, of_item))
        case Struct(fields):
            inner = [_json_value(path, Column(name, kind)).alias(name) for name, kind in fields]
            return f.when(f.variant_get(_JSON, path, "variant").isNotNull(), f.struct(*inner))
        case Scalar() | Decimal():
            hint = file_hint(column.name) if parent == "$[0]" else ""
            return exactly(f.variant_get(_JSON, path, "string"), text, column, hint)
        case _:
            what = f"column {column.name} is {types.short(column.type)}, which Spark itself does not read from JSON"
            raise TableError(what, hint="Run this flow with spark.url local[*] or sail")
