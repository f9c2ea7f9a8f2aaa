"""What source tests share: a connection by its type, and everything of one relation as Python rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from flowctl.connectors import registry
from flowctl.connectors.base import Connector, OpenContext
from flowctl.connectors.buffered import frame_of
from flowctl.connectors.source import ReadRequest, Relation
from flowctl.diagnostics import Mark
from flowctl.engine.batch import InMemory
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.run.reading import rows_of
from flowctl.spec.spec import Connection, ReadHints
from flowctl.storage.buffer import Buffer

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def opened(type: str, base_dir: str = ".", **options: Any) -> Iterator[Connector]:
    connection = Connection("source", type, options, Mark("flow.yaml", 1))
    with registry.open(connection, OpenContext(base_dir=base_dir)) as connector:
        yield connector


def describe(place: Any, table: Relation | ObjectName) -> TableInfo:
    """Of a table that is there."""
    (info,) = place.describe([table]).values()
    assert info is not None
    return info


def table(*parts: str, **rest: Any) -> Relation:
    return Relation(ObjectName(parts), **rest)


def typed(columns: Sequence[Column], kinds: Mapping[str, str]) -> tuple[Column, ...]:
    """The columns with some of their types as a spec's ``columns.types`` asks for them."""
    return tuple(
        Column(column.name, types.parse(kinds.get(column.name, str(column.type))), native=column.native)
        for column in columns
    )


def files(pattern: str, where: str | None = None, **format: Any) -> Relation:
    return Relation(ObjectName((pattern,)), None, where, format)


@dataclass
class Collected:
    """A segment sink that keeps its rows."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    batches: int = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.to_pylist()
        self.batches += 1


def captured_rows(
    source: Any,
    relation: Relation,
    kinds: Mapping[str, str] | None = None,
    interval: Interval | None = None,
    *,
    above: bool = False,
) -> list[dict[str, Any]]:
    """All rows of a landed source."""
    info = describe(source, relation)
    sink = Collected()
    with source.capture(relation, info) as capture:
        assert capture.read(ReadRequest(typed(info.columns, kinds or {}), interval, above), sink) == len(sink.rows)
    return sink.rows


_DEFAULTS = ReadHints()


def spark_rows(
    spark: SparkSession,
    source: Any,
    relation: Relation,
    *,
    kinds: Mapping[str, str] | None = None,
    interval: Interval | None = None,
    hints: ReadHints = _DEFAULTS,
) -> list[dict[str, Any]]:
    """All rows of a direct source, collected; the test's tables are small. The engine reads them; where the source can
    be asked to, this process does too, for the same rows or the same error."""
    info = describe(source, relation)
    request = ReadRequest(typed(info.columns, kinds or {}), interval)

    def read_here() -> list[dict[str, Any]] | None:
        with (
            TemporaryDirectory() as folder,
            Buffer(folder, "run", {}) as buffer,
            source.snapshot(spark, relation, info, hints) as snapshot,
        ):
            rows = rows_of(snapshot, request)
            if not isinstance(rows, InMemory):
                return None
            return _collected(frame_of(rows, spark, lambda: buffer.folder("read")))

    try:
        with source.snapshot(spark, relation, info, hints) as snapshot:
            rows = _collected(snapshot.frame(request))
    except TableError as error:
        try:
            assert read_here() is None
        except TableError as refused:
            assert refused.message == error.message
        raise
    here = read_here()
    assert here is None or sorted(map(repr, here)) == sorted(map(repr, rows))
    return rows


def _collected(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]
