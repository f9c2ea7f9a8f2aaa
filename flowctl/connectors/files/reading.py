"""Frames of files, by Spark's readers or in Python, with the columns checked against every file that is read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from flowctl.connectors.exact import exactly
from flowctl.connectors.files.compressed import is_compressed
from flowctl.connectors.files.formats import Format, FormatName, format_of, own_only
from flowctl.connectors.files.listing import FileRoot, listed, matching, pattern_of
from flowctl.connectors.files.own_reading import own_frame
from flowctl.connectors.files.path_columns import path_columns
from flowctl.connectors.files.schema import columns_of, merged, require_line_feeds
from flowctl.connectors.files.spark_reading import typed_rows
from flowctl.connectors.letters import BAD_ROW_COLUMNS, REASON_COLUMN
from flowctl.connectors.refusal import refused
from flowctl.connectors.source import PLACE_COLUMN, ReadRequest, Relation, Snapshot
from flowctl.engine.session import has_jvm, has_own_workers
from flowctl.engine.spark_types import named
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
        return replace(self, has_places=True)

    def frame(self, request: ReadRequest) -> DataFrame:
        """With :data:`BAD_ROW_COLUMNS` if they are requested; otherwise without bad rows."""
        stamps = self._files(request.interval)
        format = format_of(pattern_of(self.relation), self.relation.format)
        found = columns_of(self.root, format, stamps)
        known = {column.name: column for column in self.info.columns}
        for path, columns in found.items():
            _require_known(path, columns, known)
        asked = merged(found) if found else self.info.columns
        if found and self._reads_itself(format, found, asked):
            if format.is_text and not self.relation.where:  # converted directly unless `where` needs it
                asked = tuple(_wanted(column, request.columns) for column in asked)
            whole = self._by_workers(format, stamps, found, asked)
        else:
            _require_readable(self.spark, format, asked)
            if format.name == "csv" and format.csv.multiline:
                require_line_feeds(self.root, format, list(found))
            whole = self._by_spark(format, found, asked)
        rows = whole.where(self.relation.where) if self.relation.where else whole
        here = {column.name: column for column in (*asked, *(BAD_ROW_COLUMNS if REASON_COLUMN in rows.columns else ()))}
        if REASON_COLUMN in here and REASON_COLUMN not in (column.name for column in request.columns):
            rows = rows.where(named(REASON_COLUMN).isNull())
        place = [PLACE_COLUMN] if self.has_places else []
        return rows.select(*[_delivered(column, here.get(column.name)) for column in request.columns], *place)

    def _reads_itself(self, format: Format, found: Mapping[str, Sequence[Column]], asked: Sequence[Column]) -> bool:
        """Whether Python reads the files: where this environment's own code can run, all that the engine's readers
        cannot do exactly, or not as fast."""
        if not has_own_workers(self.spark):
            return False
        if format.name in ("csv", "jsonl", "avro"):
            return format.name != "csv" or format.is_common_csv
        if path_columns(format) or _needs_own_orc(format, asked):
            return True
        on_sail = format.name == "parquet" and not self.has_places and _is_plain(found, asked)
        return not (has_jvm(self.spark) or on_sail)

    def _by_workers(
        self,
        format: Format,
        stamps: Sequence[FileStamp],
        found: Mapping[str, Sequence[Column]],
        asked: Sequence[Column],
    ) -> DataFrame:
        of_paths = {column.name for column in path_columns(format)}
        headers = {
            path: [column.name for column in columns if column.name not in of_paths] for path, columns in found.items()
        }
        return own_frame(
            self.spark,
            self.root,
            format,
            stamps,
            headers,
            asked,
            has_places=self.has_places,
            rejects=format.keeps_bad_rows,
        )

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
        pattern = pattern_of(self.relation)
        if interval is None:
            return matching(self.root, pattern)
        wanted = interval.files_read
        if wanted is None:
            raise TableError("the interval does not say which files it reads", hint="Plan again")
        here = listed(self.root, pattern)  # a name that is no text is of a file that came since
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


def _is_plain(found: Mapping[str, Sequence[Column]], asked: Sequence[Column]) -> bool:
    """Whether Sail's own reader reads all files exactly. It takes the types of Arrow that a file records, and fails for
    :data:`_UNREAD_BY_SAIL`."""
    types_of = {column.name: column.type for column in asked}
    return all(
        column.type == types_of[column.name] and not _UNREAD_BY_SAIL.search(column.native)
        for columns in found.values()
        for column in columns
    )


#: At any depth. Polars writes all its lists like this.
_UNREAD_BY_SAIL = re.compile(r"\b(large_list<|date64\b)")


def _needs_own_orc(format: Format, columns: Sequence[Column]) -> bool:
    """Spark truncates nanoseconds, and takes ORC's timestamps without a zone for moments of its session's zone."""
    return format.name == "orc" and any(
        types.is_or_holds(column.type, types.TIMESTAMP, types.TIMESTAMP_NTZ) for column in columns
    )


def _require_readable(spark: SparkSession, format: Format, columns: Sequence[Column]) -> None:
    """Raises ``TableError`` for what the engine's own readers do not read."""
    if not has_jvm(spark) and format.name == "csv" and not format.is_common_csv:
        what = "Sail reads no CSV with an escape, or a delimiter of more than one character"
        raise TableError(what, hint="Run this flow with spark.url local[*]")
    if key := own_only(format) or ("timestamps in ORC" if _needs_own_orc(format, columns) else ""):
        raise TableError(
            f"{key} can only be read by flowctl itself, which a Spark that runs elsewhere does not have",
            hint="Run this flow with spark.url local[*] or sail",
        )


def error_of_read(text: str, pattern: str, format: FormatName) -> TableError | None:
    """What a Spark error means, from its text: names the file but omits the quoted row. None for other errors."""
    if own := refused(text):
        return own
    hint = _HINTS.get(format, "Replace the file, or leave it out of the pattern in `from`")
    if "CSV header does not conform" in text:
        return TableError(f"a file of {pattern} has a different header from the others", hint=hint)
    if "MALFORMED_RECORD" in text or "FAILED_READ_FILE" in text:
        file = re.search(r"file:?\s*((?:file|s3a?|gs|abfss?)://?\S+?)[.,]?(?:\s|$)", text)
        where = file[1] if file else pattern
        codec = "is not compressed as its name indicates, or is incomplete, or " if is_compressed(where) else ""
        return TableError(f"{where} {codec}holds a row that does not fit its columns", hint=hint)
    return None


_HINTS: Mapping[FormatName, str] = {
    "csv": "Fix the file, or set format: delimiter, quote, escape, header or multiline",
    "jsonl": "Fix the file, or change the types in format.schema",
}
