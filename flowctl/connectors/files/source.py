"""Files as a direct source: each is read once, with a schema that was checked against all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flowctl.connectors import refusal
from flowctl.connectors.base import Capabilities
from flowctl.connectors.files.formats import format_of, require_types
from flowctl.connectors.files.listing import FileRoot, listed, matching, pattern_of, require_text, why_nothing
from flowctl.connectors.files.reading import FilesSnapshot, error_of_read
from flowctl.connectors.files.schema import columns_where_open, lacking, merged, only_without, with_recorded
from flowctl.connectors.source import DirectSource, HighWatermark, Missing, Relation, Snapshot, WatermarkRequest
from flowctl.connectors.survey import Survey, Wanted
from flowctl.model.position import FilesPosition, FileStamp
from flowctl.model.table_info import Column, ObjectName, RowEstimate, TableInfo
from flowctl.spec.spec import ReadHints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: How many files that were already read, the last by name, still count for the columns.
_READ_FILES = 100


@dataclass(frozen=True)
class FilesSource(DirectSource):
    """The files below one root. ``where`` is Spark SQL here."""

    root: FileRoot
    capabilities: Capabilities

    def discover(self, pattern: tuple[str, ...]) -> list[ObjectName]:
        """Each matching file, as an object of its own, also one that several paths lead to."""
        paths = [stamp.path for stamp in listed(self.root, pattern[-1])]
        for path in paths:
            require_text(path)
        return [ObjectName((path,)) for path in paths]

    def survey(self, wanted: Wanted) -> Survey:
        """Files that belong together are one table. ``wanted`` is asked about each file."""
        from flowctl.connectors.files.survey import survey_files

        return survey_files(self, wanted)

    def describe(self, relations: Sequence[Relation]) -> Mapping[Relation, TableInfo | None]:
        """None if no file matches; the identity is the root."""
        return {relation: self.describe_files(relation, {})[0] for relation in relations}

    def high_watermarks(self, requests: Mapping[str, WatermarkRequest]) -> Mapping[str, HighWatermark]:
        """All files that exist now; the plan decides which of them are new."""
        return {
            name: _watermark(matching(self.root, pattern_of(request.relation))) for name, request in requests.items()
        }

    def why_missing(self, relation: Relation) -> Missing:
        return why_nothing(self.root, pattern_of(relation), relation.format.get("type"))

    def describe_files(
        self, relation: Relation, read: Mapping[str, FileStamp], recorded: Sequence[Column] = ()
    ) -> tuple[TableInfo | None, HighWatermark]:
        """Lists once, and opens each file that was not read, and the last ones, which may be archived by now."""
        pattern = pattern_of(relation)
        stamps = matching(self.root, pattern, read)
        if not stamps:
            return None, _watermark(stamps)
        format = format_of(pattern, relation.format)
        require_types(format)
        unread = [stamp for stamp in stamps if read.get(stamp.path) != stamp]
        wanted = sorted({*unread, *stamps[-_READ_FILES:]}, key=lambda one: one.path)
        opened, closed = columns_where_open(self.root, format, wanted, {*wanted}.difference(unread))
        found = with_recorded(opened, recorded) if closed else opened
        if not found:
            raise next(iter(closed.values()))
        watermark, columns = replace(_watermark(stamps), closed=tuple(closed)), merged(found)
        info = TableInfo(
            object=ObjectName((pattern,)),
            columns=columns,
            identity=self.root.identity,
            rows=watermark.rows,
            only_without=only_without(found),
            lacking=lacking({stamp.path: found[stamp.path] for stamp in unread}, columns),
            reads_whole_rows=True,
        )
        return info, watermark

    @contextmanager
    def snapshot(
        self, spark: SparkSession, relation: Relation, info: TableInfo, hints: ReadHints
    ) -> Iterator[Snapshot]:
        pattern = pattern_of(relation)
        format = format_of(pattern, relation.format).name
        with refusal.named(lambda text: error_of_read(text, pattern, format)):
            yield FilesSnapshot(spark, self.root, relation, info)


def _watermark(stamps: Sequence[FileStamp]) -> HighWatermark:
    rows = RowEstimate(bytes=sum(stamp.size for stamp in stamps))
    return HighWatermark(FilesPosition(tuple(stamps)) if stamps else None, rows)
