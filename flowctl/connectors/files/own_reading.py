"""Files as a frame without Java: read by Python on the executors, which knows the file, the line and the order of each
row.

Spark's own reader of CSV produces rows of text, whose values are then matched against regular expressions: half as
fast. It is still used where executors may lack fsspec (Spark Connect), and for CSV that pyarrow reads differently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from flowctl.connectors.arrow import arrow_type
from flowctl.connectors.exact import require_possible, text_shape
from flowctl.connectors.files.compressed import is_compressed
from flowctl.connectors.files.formats import Format
from flowctl.connectors.files.listing import FileRoot
from flowctl.connectors.files.path_columns import path_columns, path_texts
from flowctl.connectors.letters import BAD_ROW_COLUMNS
from flowctl.connectors.refusal import PREFIX, file_hint, refusal
from flowctl.connectors.source import PLACE_COLUMN
from flowctl.engine import cost
from flowctl.engine.session import has_jvm, most_at_once
from flowctl.model import types
from flowctl.model.position import FileStamp
from flowctl.model.table_info import Column
from flowctl.model.types import Array, Struct
from flowctl.sql.dialects import schema_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from flowctl.connectors.csv_text import Field
    from flowctl.connectors.files.parts import Part, PartReader


def own_frame(
    spark: SparkSession,
    root: FileRoot,
    format: Format,
    stamps: Sequence[FileStamp],
    headers: Mapping[str, Sequence[str]],
    columns: Sequence[Column],
    *,
    has_places: bool,
    rejects: bool = False,
) -> DataFrame:
    """All rows of the files with exactly ``columns``, null where a file does not have one; with ``has_places`` their
    positions, and with ``rejects`` the columns of bad rows, which otherwise fail the read. ``headers`` has the files'
    own columns by path; those that paths have are among ``columns``, too."""
    from pyspark import cloudpickle

    reader = _reader(root, format, columns, has_places=has_places, rejects=rejects)
    at_most = None if has_jvm(spark) else most_at_once()
    names = [field.name for field in reader.fields]
    tasks = list(_tasks(list(_parts(format, stamps, headers, names, rejects=rejects)), at_most))
    for module in _shipped():
        cloudpickle.register_pickle_by_value(module)
    places = [Column(PLACE_COLUMN, types.INT64)] if has_places else []
    made = [*columns, *places, *(BAD_ROW_COLUMNS if rejects else ())]
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(reader.reader_of(tasks), schema_ddl(made))


def _shipped() -> tuple[ModuleType, ...]:
    """What executors run."""
    from flowctl.connectors import csv_text, decimal_text
    from flowctl.connectors.files import compressed, csv_parts, json_parts, parts, text_parts, whole_parts

    return csv_text, decimal_text, compressed, csv_parts, json_parts, parts, text_parts, whole_parts


def _reader(
    root: FileRoot, format: Format, columns: Sequence[Column], *, has_places: bool, rejects: bool
) -> PartReader:
    from flowctl.connectors.csv_text import CsvText
    from flowctl.connectors.files.csv_parts import CsvReader
    from flowctl.connectors.files.json_parts import JsonReader
    from flowctl.connectors.files.whole_parts import WholeReader

    of_paths = {column.name for column in path_columns(format)}
    given = tuple(field_of(column) for column in path_columns(format))
    own = [column for column in columns if column.name not in of_paths]
    shared: dict[str, Any] = {
        "url": root.url,
        "options": root.options,
        "given": given,
        "order": tuple(column.name for column in columns),
        "has_places": has_places,
        "rejects": rejects,
    }
    dialect = format.csv
    match format.name:
        case "csv":
            signs = (dialect.delimiter, dialect.quote, dialect.null_value, dialect.multiline)
            text = CsvText(tuple(map(field_of, own)), *signs)
            return CsvReader(text=text, has_header=dialect.header, encoding=dialect.encoding, **shared)
        case "jsonl":
            return JsonReader(columns=tuple(map(nested_field, own)), encoding=dialect.encoding, **shared)
        case name:
            return WholeReader(format=name, columns=tuple(map(typed_field, own)), **shared)


def _parts(
    format: Format,
    stamps: Sequence[FileStamp],
    headers: Mapping[str, Sequence[str]],
    columns: Sequence[str],
    *,
    rejects: bool,
) -> Iterator[tuple[Part, int]]:
    """Each file in parts, with their sizes in bytes; whole if a part could not find where its lines begin, or which
    number they have."""
    from flowctl.connectors.files.parts import Part
    from flowctl.connectors.files.text_parts import is_utf8

    is_whole = not format.is_text or format.csv.multiline or rejects or not is_utf8(format.csv.encoding)
    size = cost.piece_bytes(sum(stamp.size for stamp in stamps))
    places = {name: at for at, name in enumerate(columns)}
    usual = tuple(places)
    others: dict[tuple[str, ...], tuple[int, ...]] = {}  # one object for all files with a header, pickled once
    for number, stamp in enumerate(stamps):
        names, given = tuple(headers[stamp.path]), path_texts(format, stamp.path)
        header = None if names == usual else others.setdefault(names, tuple(places[name] for name in names))
        if is_whole or is_compressed(stamp.path) or stamp.size <= size:
            yield Part(stamp.path, 0, None, number, header, given), stamp.size
        else:
            for start in range(0, stamp.size, size):
                end = min(start + size, stamp.size)
                yield Part(stamp.path, start, end, number, header, given), end - start


def _tasks(parts: Sequence[tuple[Part, int]], at_most: int | None) -> Iterator[list[Part]]:
    """Groups neighbouring parts while they are small."""
    total = sum(size for _, size in parts)
    limit = max(cost.piece_bytes(total), -(-total // at_most) if at_most else 0)
    task: list[Part] = []
    held = 0
    for part, size in parts:
        if task and held + size + cost.FILE_OPENING_BYTES > limit:
            yield task
            task, held = [], 0
        task.append(part)
        held += size + cost.FILE_OPENING_BYTES
    if task:
        yield task


def field_of(column: Column) -> Field:
    """A column whose values are text."""
    from flowctl.connectors.csv_text import Field

    require_possible(Column(column.name, types.STRING), column)
    message = refusal(column.name, column.native, column.type, hint=file_hint(column.name)).removeprefix(PREFIX)
    shape = "" if column.type == types.STRING else text_shape(column.type)
    return Field(column.name, arrow_type(column.type), shape, f": {message}")


def nested_field(column: Column) -> Field:
    """A column whose values are text, or lists and objects of text."""
    match column.type:
        case Array(item):
            return typed_field(column, (nested_field(Column(column.name, item)),))
        case Struct(fields):
            return typed_field(column, tuple(nested_field(Column(name, kind)) for name, kind in fields))
        case _:
            return field_of(column)


def typed_field(column: Column, parts: tuple[Field, ...] = ()) -> Field:
    """A column whose values have types."""
    from flowctl.connectors.csv_text import Field

    message = refusal(column.name, column.native, column.type, hint=file_hint(column.name)).removeprefix(PREFIX)
    return Field(column.name, arrow_type(column.type), "", f": {message}", parts)
