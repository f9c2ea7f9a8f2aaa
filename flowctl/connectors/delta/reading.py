"""The rows of some of a table's files, for rewriting just these.

Sail has no column that says which file a row is from, and no way to name files of a Delta table. What can be named:
Parquet files that need no log to be read right, and partitions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.replay import Action, LogSnapshot
from flowctl.connectors.delta.statements import quoted
from flowctl.connectors.delta.types import columns_of
from flowctl.model import types

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame, SparkSession

#: More partitions than these are not worth a condition.
_MOST_PARTITIONS = 200


def rows_of(
    spark: SparkSession, location: TableLocation, snapshot: LogSnapshot, files: Sequence[Action]
) -> tuple[DataFrame, tuple[Action, ...]]:
    """The rows of ``files``, and of as few others as can be; with them, the files whose rows these are, all of them."""
    whole = spark.read.format("delta").load(location.spark_path)
    if len(files) == len(snapshot.files):
        return whole, snapshot.files
    if not files:
        return whole.limit(0), ()
    if snapshot.metadata["partitionColumns"]:
        return _in_partitions(whole, snapshot, files)
    if any("deletionVector" in file for file in files) or "delta.typeChanges" in snapshot.metadata["schemaString"]:
        return whole, snapshot.files
    columns = columns_of(snapshot.metadata["schemaString"])
    schema = ", ".join(f"{quoted(column.name)} {types.spark_ddl(column.type)}" for column in columns)
    paths = [f"{location.spark_path}/{unquote(file['path'])}" for file in files]
    return spark.read.schema(schema).parquet(*paths), tuple(files)


def _in_partitions(
    whole: DataFrame, snapshot: LogSnapshot, files: Sequence[Action]
) -> tuple[DataFrame, tuple[Action, ...]]:
    wanted = {_partition(file): file["partitionValues"] for file in files}
    if len(wanted) > _MOST_PARTITIONS:
        return whole, snapshot.files
    kinds = {column.name: column.type for column in columns_of(snapshot.metadata["schemaString"])}
    conditions = [_is_partition(values, kinds) for values in wanted.values()]
    return whole.where(reduce(or_, conditions)), tuple(file for file in snapshot.files if _partition(file) in wanted)


def _partition(file: Action) -> str:
    return json.dumps(file["partitionValues"], sort_keys=True)


def _is_partition(values: dict[str, Any], kinds: dict[str, types.DataType]) -> Expression:
    from pyspark.sql import functions as f

    return reduce(
        and_,
        (
            f.col(quoted(name)).eqNullSafe(f.lit(text).cast(types.spark_ddl(kinds[name])))
            for name, text in values.items()
        ),
    )
