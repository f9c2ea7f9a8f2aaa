"""Frames of files, by Spark's readers or in Python, with the columns checked against every file that is read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from flowctl.connectors.exact import exactly
from flowctl.connectors.files.csv_reading import csv_frame
from flowctl.connectors.files.formats import Format, format_of
from flowctl.connectors.files.listing import FileRoot, matching, pattern_of
from flowctl.connectors.files.schema import columns_of, merged, require_line_feeds
from flowctl.connectors.files.spark_reading import typed_rows
from flowctl.connectors.refusal import refused
from flowctl.connectors.source import PLACE_COLUMN, ReadRequest, Relation, Snapshot
from flowctl.engine.session import has_jvm, has_own_workers, reachable
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import FileStamp
from flowctl.model.table_info import Column, TableInfo
from flowctl.sql.dialects import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class FilesSnapshot(Snapshot):
    """Files must not change: one that did is refused. In order, rows are sorted by the path of their file, then as in
    the file."""

    spark: SparkSession
    root: FileRoot
    relation: Relation
    info: TableInfo
    has_places: bool = False

    def in_order(self) -> FilesSnapshot:
        """Sail does not report the positions of its own readers."""
        format = format_of(pattern_of(self.relation), self.relation.format)
        return replace(self, has_places=has_jvm(self.spark) or format.is_common_csv)

    @property
    def hides_order(self) -> bool:
        return not self.has_places

    def frame(self, request: ReadRequest) -> DataFrame:
        stamps = self._files(request.interval)
        format = format_of(pattern_of(self.relation), self.relation.format)
        found = columns_of(self.root, format, stamps)
        known = {column.name: column for column in self.info.columns}
        for path, columns in found.items():
            _require_known(path, columns, known)
        asked = merged(found) if found else self.info.columns
        if found and format.is_common_csv and has_own_workers(self.spark):
            headers = {path: [column.name for column in columns] for path, columns in found.items()}
            if not self.relation.where:  # text is converted directly unless `where` needs it
                asked = tuple(_wanted(column, request.columns) for column in asked)
            whole = csv_frame(self.spark, self.root, format, stamps, headers, asked, has_places=self.has_places)
        else:
            if not has_jvm(self.spark):
                _require_plain(format, found, asked)
            if format.name == "csv" and format.csv.multiline:
                require_line_feeds(self.root, format, list(found))
            whole = self._by_spark(format, found, asked)
        rows = whole.where(self.relation.where) if self.relation.where else whole
        here = {column.name: column for column in asked}
        place = [PLACE_COLUMN] if self.has_places else []
        return rows.select(*[_delivered(column, here.get(column.name)) for column in request.columns], *place)

    def _by_spark(self, format: Format, found: Mapping[str, Sequence[Column]], asked: Sequence[Column]) -> DataFrame:
        """Spark finds columns by name, but values of CSV by position: one read for all files with the same header."""
        usual = tuple(column.name for column in asked)
        by_header: dict[tuple[str, ...], list[str]] = {}
        for path, columns in found.items():
            header = tuple(column.name for column in columns) if format.name == "csv" else usual
            by_header.setdefault(header, []).append(self.root.spark_path(path))
        kinds = {column.name: column for column in asked}
        frames = []
        for header, paths in (by_header or {usual: []}).items():
            rows = typed_rows(self.spark, format, paths, [kinds[name] for name in header], has_places=self.has_places)
            frames.append(rows if header == usual else rows.select(*self._arranged(asked, header)))
        return reduce(lambda one, other: one.unionAll(other), frames)

    def _arranged(self, asked: Sequence[Column], header: Sequence[str]) -> list[Expression | str]:
        values = [_delivered(column, column if column.name in header else None) for column in asked]
        return [*values, *([PLACE_COLUMN] if self.has_places else [])]

    def is_empty(self, request: ReadRequest) -> bool:
        return bool(self.frame(replace(request, columns=request.columns[:1])).isEmpty())

    def confirm(self, interval: Interval) -> None:
        """A file that is still being written would be read only in part."""
        self._files(interval)

    def _files(self, interval: Interval | None) -> tuple[FileStamp, ...]:
        """The files of the interval, unchanged since the plan; without an interval, all that exist now."""
        here = matching(self.root, pattern_of(self.relation))
        if interval is None:
            return here
        wanted = interval.files_read
        if wanted is None:
            raise TableError("the interval does not say which files it reads", hint="Plan again")
        gone = sorted(stamp.path for stamp in set(wanted) - set(here))
        if gone:
            raise TableError(
                f"{len(gone)} of the planned files are gone or were changed since, first {gone[0]}",
                hint="Put the file back, or plan again",
            )
        return tuple(sorted(wanted, key=lambda stamp: stamp.path))


def _wanted(found: Column, requested: Sequence[Column]) -> Column:
    kinds = {column.name: column.type for column in requested}
    return replace(found, type=kinds.get(found.name, found.type)) if found.type == types.STRING else found


def _delivered(wanted: Column, found: Column | None) -> Expression:
    """Null if no file of the interval has the column."""
    from pyspark.sql import functions as f

    if found is None:
        return f.lit(None).cast(types.spark_ddl(wanted.type)).alias(wanted.name)
    return exactly(f.col(quoted(found.name, "spark")), found, wanted).alias(wanted.name)


def _require_known(path: str, columns: Sequence[Column], known: Mapping[str, Column]) -> None:
    new = [column.name for column in columns if column.name not in known]
    if new:
        raise TableError(f"{path} has a column {new[0]} that the plan did not know", hint="Plan again")


def _require_plain(format: Format, found: Mapping[str, Sequence[Column]], asked: Sequence[Column]) -> None:
    """For Sail: it would not find a path that it encodes or takes for a pattern, and would silently skip the file."""
    if format.name == "csv":
        raise TableError(
            "Sail reads no CSV with an escape, or a delimiter of more than one character", hint=_SPARK_HINT
        )
    if format.name != "parquet":
        raise TableError(f"Sail does not read {format.name} as exactly as flowctl promises", hint=_SPARK_HINT)
    types_of = {column.name: column.type for column in asked}
    for path, columns in found.items():
        if not reachable(path):
            raise TableError(f"Sail cannot reach {path}: it encodes some of its characters", hint=_SPARK_HINT)
        narrower = [column.name for column in columns if column.type != types_of[column.name]]
        if narrower:
            raise TableError(
                f"{path} has another type of {narrower[0]} than other files, which Sail does not read", hint=_SPARK_HINT
            )


_SPARK_HINT = "Run this flow with spark.url local[*]"


def error_of_read(text: str, pattern: str) -> TableError | None:
    """What a Spark error means, from its text: names the file but omits the quoted row. None for other errors."""
    if own := refused(text):
        return own
    if "CSV header does not conform" in text:
        return TableError(f"a file of {pattern} has a different header from the others", hint=_MALFORMED_HINT)
    if "MALFORMED_RECORD" in text or "FAILED_READ_FILE" in text:
        from flowctl.connectors.files.csv_parts import is_compressed

        file = re.search(r"file:?\s*((?:file|s3a?|gs|abfss?)://?\S+?)[.,]?(?:\s|$)", text)
        where = file[1] if file else pattern
        codec = "is not compressed as its name indicates, or is incomplete, or " if is_compressed(where) else ""
        return TableError(f"{where} {codec}holds a row that does not fit its columns", hint=_MALFORMED_HINT)
    return None


_MALFORMED_HINT = "Fix the file, or set format: delimiter, quote, escape, header or multiline"
