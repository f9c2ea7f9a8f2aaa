"""What executors on other machines must have installed, asked of one of them: jars come to them by themselves, Python
modules do not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from flowctl.connectors import registry
from flowctl.engine.conf import is_local, is_sail
from flowctl.spec.spec import Spec, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def needed_modules(spec: Spec, tables: Iterable[TableSpec]) -> list[str]:
    """Import names that the targets need where Spark is not on this machine."""
    if is_local(spec.spark.url) or is_sail(spec.spark.url):
        return []
    types = {spec.connections[table.target.connection].type for table in tables}
    return sorted({name for kind in types for name in registry.capabilities(kind).on_executors})


def missing_modules(spark: SparkSession, names: Sequence[str]) -> list[str]:
    """Those that an executor cannot import. Without pyarrow it cannot even be asked: the job fails then."""
    found = spark.range(1).coalesce(1).mapInArrow(_importer(list(names)), "name STRING").collect()
    return [row["name"] for row in found]


def _importer(names: list[str]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Pickled by value: executors may have no flowctl."""

    def missing(batches: Iterator[Any]) -> Iterator[Any]:
        import importlib.util

        import pyarrow as pa

        for _ in batches:
            absent = [name for name in names if importlib.util.find_spec(name) is None]
            yield pa.RecordBatch.from_pydict({"name": pa.array(absent, pa.string())})

    return missing
