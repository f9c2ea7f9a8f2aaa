"""What source tests share: a connection by its type, and everything of one relation as Python rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flowctl.connectors import registry
from flowctl.connectors.base import Connector, OpenContext, ReadRequest, Relation
from flowctl.diagnostics import Mark
from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.table_info import Column, ObjectName
from flowctl.spec.spec import Connection, ReadHints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def opened(type: str, base_dir: str = ".", **options: Any) -> Iterator[Connector]:
    connection = Connection("source", type, options, Mark("flow.yaml", 1))
    with registry.open(connection, OpenContext(base_dir=base_dir)) as connector:
        yield connector


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
    """All rows of a direct source, collected; the test's tables are small."""
    info = source.describe([relation])[relation]
    assert info is not None
    request = ReadRequest(typed(info.columns, kinds or {}), interval)
    with source.snapshot(spark, relation, info, hints) as snapshot:
        return [row.asDict(recursive=True) for row in snapshot.frame(request).collect()]
