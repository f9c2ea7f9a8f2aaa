"""Files as a direct source: each is read once, with a schema that was checked against every one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowctl.connectors.base import Capabilities, Head, HeadRequest, Relation, Snapshot
from flowctl.connectors.files.formats import format_of
from flowctl.connectors.files.listing import FileRoot, matching, pattern_of
from flowctl.connectors.files.reading import FilesSnapshot, named
from flowctl.connectors.files.schema import columns_of, merged
from flowctl.model.position import FilesPosition
from flowctl.model.table_info import ObjectName, RowEstimate, TableInfo
from flowctl.spec.spec import ReadHints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: How many files, the last by name, say what the columns are when a plan is made. A read looks at all of its files.
_DESCRIBED_FILES = 100


@dataclass(frozen=True)
class FilesSource:
    """A :class:`flowctl.connectors.base.DirectSource` below one root. ``where`` is Spark SQL here."""

    root: FileRoot
    capabilities: Capabilities

    def discover(self, pattern: tuple[str, ...]) -> list[ObjectName]:
        """Each file that matches, as an object of its own."""
        return [ObjectName((stamp.path,)) for stamp in matching(self.root, pattern[-1])]

    def describe(self, relations: Sequence[Relation]) -> Mapping[Relation, TableInfo | None]:
        """None when no file is there; the identity is the root."""
        return {relation: self._describe(relation) for relation in relations}

    def heads(self, requests: Mapping[str, HeadRequest]) -> Mapping[str, Head]:
        """Every file there now; what is new among them is decided by the plan."""
        return {name: self._head(request.relation) for name, request in requests.items()}

    @contextmanager
    def snapshot(
        self, spark: SparkSession, relation: Relation, info: TableInfo, hints: ReadHints
    ) -> Iterator[Snapshot]:
        with named(relation):
            yield FilesSnapshot(spark, self.root, relation, info)

    def _describe(self, relation: Relation) -> TableInfo | None:
        pattern = pattern_of(relation)
        stamps = matching(self.root, pattern)
        if not stamps:
            return None
        format = format_of(pattern, relation.format)
        found = columns_of(self.root, format, stamps[-_DESCRIBED_FILES:])
        return TableInfo(
            object=ObjectName((pattern,)),
            columns=merged(found),
            identity=f"files:{self.root.url}",
            rows=RowEstimate(bytes=sum(stamp.size for stamp in stamps)),
        )

    def _head(self, relation: Relation) -> Head:
        stamps = matching(self.root, pattern_of(relation))
        rows = RowEstimate(bytes=sum(stamp.size for stamp in stamps))
        return Head(FilesPosition(stamps) if stamps else None, rows)
