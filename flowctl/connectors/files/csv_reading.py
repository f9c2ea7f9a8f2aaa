"""CSV as a frame without Java: blocks of whole lines, read and parsed by Python on the executors.

Spark's own reader produces rows of text, whose values are then matched against regular expressions: half as fast. It is
still used where executors may lack fsspec (Spark Connect), and for CSV that pyarrow reads differently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from flowctl.connectors.arrow import arrow_type
from flowctl.connectors.exact import require_possible, text_shape
from flowctl.connectors.files.formats import Format
from flowctl.connectors.files.listing import FileRoot
from flowctl.connectors.refusal import PREFIX, file_hint, refusal
from flowctl.connectors.source import PLACE_COLUMN
from flowctl.engine import cost
from flowctl.engine.session import has_jvm, most_at_once
from flowctl.model import types
from flowctl.model.position import FileStamp
from flowctl.model.table_info import Column
from flowctl.sql.dialects import schema_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from flowctl.connectors.csv_text import Field
    from flowctl.connectors.files.csv_parts import Part


def csv_frame(
    spark: SparkSession,
    root: FileRoot,
    format: Format,
    stamps: Sequence[FileStamp],
    headers: Mapping[str, Sequence[str]],
    columns: Sequence[Column],
    *,
    has_places: bool,
) -> DataFrame:
    """All rows of the files with exactly ``columns``, null where a file's header does not name one, and, with
    ``has_places``, their positions. ``headers`` are by path."""
    from pyspark import cloudpickle

    from flowctl.connectors import csv_text
    from flowctl.connectors.files import csv_parts

    given = format.csv
    reader = csv_parts.CsvReader(
        url=root.url,
        options=root.options,
        text=csv_text.CsvText(
            tuple(field_of(column) for column in columns),
            given.delimiter,
            given.quote,
            given.null_value,
            given.multiline,
        ),
        has_header=given.header,
        encoding=given.encoding,
        has_places=has_places,
    )
    at_most = None if has_jvm(spark) else most_at_once()
    tasks = list(_tasks(list(_parts(format, stamps, headers, columns)), at_most))
    for module in (csv_text, csv_parts):
        cloudpickle.register_pickle_by_value(module)
    made = [*columns, *([Column(PLACE_COLUMN, types.INT64)] if has_places else [])]
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(reader.reader_of(tasks), schema_ddl(made))


def _parts(
    format: Format, stamps: Sequence[FileStamp], headers: Mapping[str, Sequence[str]], columns: Sequence[Column]
) -> Iterator[tuple[Part, int]]:
    """Each file in parts, with their sizes in bytes; whole if a part could not find where its lines begin."""
    from flowctl.connectors.files.csv_parts import Part, is_compressed, is_utf8

    is_whole = format.csv.multiline or not is_utf8(format.csv.encoding)
    size = cost.piece_bytes(sum(stamp.size for stamp in stamps))
    places = {column.name: at for at, column in enumerate(columns)}
    usual = tuple(places)
    others: dict[tuple[str, ...], tuple[int, ...]] = {}  # one object for all files with a header, pickled once
    for number, stamp in enumerate(stamps):
        names = tuple(headers[stamp.path])
        header = None if names == usual else others.setdefault(names, tuple(places[name] for name in names))
        if is_whole or is_compressed(stamp.path) or stamp.size <= size:
            yield Part(stamp.path, 0, None, number, header), stamp.size
        else:
            for start in range(0, stamp.size, size):
                end = min(start + size, stamp.size)
                yield Part(stamp.path, start, end, number, header), end - start


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
    from flowctl.connectors.csv_text import Field

    require_possible(Column(column.name, types.STRING), column)
    message = refusal(column.name, column.native, column.type, hint=file_hint(column.name)).removeprefix(PREFIX)
    shape = "" if column.type == types.STRING else text_shape(column.type)
    return Field(column.name, arrow_type(column.type), shape, f": {message}")
