"""One snapshot of a source as Spark frames, whichever way the source is read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from flowctl.connectors.base import (
    Capture,
    DirectSource,
    LandedSource,
    ReadRequest,
    Relation,
    Scratch,
    Snapshot,
    Source,
)
from flowctl.model.table_info import TableInfo
from flowctl.run.spark_types import named
from flowctl.spec.spec import ReadHints, SqlSource
from flowctl.sql.dialects import schema_ddl
from flowctl.sql.refs import with_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def open_snapshot(
    source: Source, spark: SparkSession, relation: Relation, info: TableInfo, hints: ReadHints, scratch: Scratch
) -> Iterator[Snapshot]:
    """The source's own snapshot, or landed captures read back by Spark. Open until the write is done."""
    capabilities = source.capabilities.source
    if capabilities is None:
        raise TypeError("only a source can be read")
    if capabilities.kind == "direct":
        with cast(DirectSource, source).snapshot(spark, relation, info, hints) as snapshot:
            yield snapshot
    else:
        with cast(LandedSource, source).capture(relation, info) as capture:
            yield LandedSnapshot(spark, capture, scratch)


@dataclass
class LandedSnapshot:
    """Each frame is captured into the buffer first, all from the capture's one moment."""

    spark: SparkSession
    capture: Capture
    scratch: Scratch

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1)

    def frame(self, request: ReadRequest) -> DataFrame:
        from flowctl.connectors.arrow import arrow_schema

        folder = self.scratch.folder(f"landed-{next(self._numbers)}")
        with folder.sink(arrow_schema(request.columns)) as sink:
            rows = self.capture.read(request, sink)
        schema = schema_ddl(request.columns)
        if rows == 0:
            return self.spark.createDataFrame([], schema)
        return self.spark.read.schema(schema).parquet(folder.url)

    def is_empty(self, request: ReadRequest) -> bool:
        return self.capture.is_empty(request)


@dataclass(frozen=True)
class SqlSnapshot:
    """Spark SQL over committed tables of the flow; ``relations`` maps ids to the views that stand for them."""

    spark: SparkSession
    source: SqlSource
    relations: Mapping[str, str]
    where: str | None = None

    def frame(self, request: ReadRequest) -> DataFrame:
        frame = self.whole()
        return frame.select(*[named(column.name) for column in request.columns]) if request.columns else frame

    def is_empty(self, request: ReadRequest) -> bool:
        return bool(self.whole().isEmpty())

    def whole(self) -> DataFrame:
        frame = self.spark.sql(with_names(self.source.sql, self.relations))
        return frame.where(self.where) if self.where else frame
