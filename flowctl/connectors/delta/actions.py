"""The Delta log actions that flowctl writes itself (Delta protocol, *Actions*)."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from flowctl import __version__
from flowctl.connectors.delta import decimal_bounds, features
from flowctl.connectors.delta.statements import DELETION_VECTORS, statistics_without, table_properties
from flowctl.connectors.delta.types import Action, columns_of, schema_json
from flowctl.connectors.lake import conditions
from flowctl.connectors.lake.conditions import Condition
from flowctl.connectors.target import WriteJob
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column

#: Metrics of a commit that writes nothing.
EMPTY = {"numFiles": "0", "numOutputRows": "0", "numOutputBytes": "0"}

_ELSEWHERE = re.compile(r"/|[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def is_elsewhere(path: str) -> bool:
    """Whether a file's path is absolute or a URL: it belongs to another table, as in a shallow clone."""
    return _ELSEWHERE.match(path) is not None


def commit_info(
    user_metadata: str, operation: str, parameters: Mapping[str, str | None], metrics: Mapping[str, str]
) -> Action:
    """``metrics`` are Delta's operation metrics by name, with values as text."""
    info = {
        "timestamp": now(),
        "operation": operation,
        "operationParameters": dict(parameters),
        "isBlindAppend": parameters.get("mode") == "Append",
        "operationMetrics": dict(metrics),
        **({"userMetadata": user_metadata} if user_metadata else {}),
        "engineInfo": f"flowctl/{__version__}",
    }
    return {"commitInfo": info}


def now() -> int:
    """Milliseconds since 1970, as Delta writes times."""
    return int(time.time() * 1000)


def transaction(app_id: str, seq: int) -> Action:
    """The action with which Delta keeps an application's newest number (Delta protocol, *Transaction Identifiers*)."""
    return {"txn": {"appId": app_id, "version": seq, "lastUpdated": now()}}


def protocol(job: WriteJob) -> Action:
    """The protocol of a new table, with the same features that Spark gives it."""
    needed = features.of_columns(job.columns)
    if table_properties(job.columns, job.layout)[DELETION_VECTORS] == "true":
        needed.append(features.DELETION_VECTORS)
    return {"protocol": features.protocol(needed, ["clustering", "domainMetadata"] if job.layout.cluster_by else [])}


def clustering(job: WriteJob) -> list[Action]:
    """The clustering columns of a new table (Delta protocol, *Clustered Table*); empty if it is not clustered."""
    if not job.layout.cluster_by:
        return []
    columns = {"clusteringColumns": [[name] for name in job.layout.cluster_by], "domainName": "delta.clustering"}
    domain = {"domain": "delta.clustering", "configuration": json.dumps(columns), "removed": False}
    return [{"domainMetadata": domain}]


def metadata(job: WriteJob, target_id: str) -> Action:
    return {
        "metaData": {
            "id": target_id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema_json(job.columns),
            "partitionColumns": list(job.layout.partition_by),
            "configuration": table_properties(job.columns, job.layout),
            "createdTime": now(),
        }
    }


def with_columns(metadata: Mapping[str, Any], columns: Sequence[Column], *, replaces: bool) -> Action:
    """``metadata`` with its schema changed to ``columns``; unchanged if it has them already.

    New columns come last. A NOT NULL column becomes nullable if ``columns`` has it nullable, as in the plan. With
    ``replaces``, all content is replaced: types may change, and columns that are not listed are dropped. Otherwise a
    changed type is a :class:`TableError`, because the engine would have to widen values in files of the old type.
    """
    have = {column.name: column for column in columns_of(metadata["schemaString"])}
    other = [column for column in columns if column.name in have and have[column.name].type != column.type]
    if other and not replaces:
        one = other[0]
        raise TableError(
            f'"{one.name}" cannot become {types.short(one.type)} without Spark',
            hint="Run this table once with spark.url local[*], or with --full-refresh",
        )
    if other or (replaces and not {*have} <= {column.name for column in columns}):
        properties = metadata.get("configuration", {})
        changed = statistics_without(properties, columns)
        return {
            **metadata,
            "schemaString": schema_json(tuple(columns)),
            **({"configuration": {**properties, **changed}} if changed else {}),
        }
    schema = json.loads(metadata["schemaString"])
    added = json.loads(schema_json(tuple(column for column in columns if column.name not in have)))["fields"]
    relaxed = {column.name for column in columns if column.nullable}
    fields = [{**field, "nullable": True} if field["name"] in relaxed else field for field in schema["fields"]]
    if not added and fields == schema["fields"]:
        return dict(metadata)
    return {**metadata, "schemaString": json.dumps({**schema, "fields": [*fields, *added]})}


def remove(file: Mapping[str, Any]) -> Action:
    """The ``remove`` action for the file of an ``add``."""
    kept = {name: file[name] for name in ("path", "partitionValues", "size", "deletionVector", "stats") if name in file}
    return {"remove": {**kept, "deletionTimestamp": now(), "dataChange": True, "extendedFileMetadata": True}}


def row_count(file: Mapping[str, Any]) -> int:
    """Rows in the file of an ``add``, including those that a deletion vector hides."""
    return int(json.loads(file["stats"])["numRecords"])


def known_rows(file: Action) -> int | None:
    """Rows in the file of an ``add``, including hidden ones; None if its statistics do not have the number."""
    count = json.loads(file.get("stats") or "{}").get("numRecords")
    return int(count) if count is not None else None


def hidden_rows(file: Mapping[str, Any]) -> int:
    """Rows in the file of an ``add`` that its deletion vector hides."""
    vector = file.get("deletionVector")
    return int(vector["cardinality"]) if vector else 0


def new_folder() -> str:
    """The name of a new folder within the table's, for files that no commit references yet."""
    return f"flowctl-{uuid.uuid4().hex}"


def may_match(condition: Condition, file: Action) -> bool:
    """Whether a row of ``file`` may meet the condition, according to the file's statistics."""
    stats = json.loads(file.get("stats") or "{}", parse_float=Decimal)
    lows, highs = stats.get("minValues", {}), stats.get("maxValues", {})
    decimals = {name for part in condition for name, _, value in part if isinstance(value, Decimal)}
    lows = {**lows, **{name: decimal_bounds.below(lows.get(name)) for name in decimals}}
    highs = {**highs, **{name: decimal_bounds.above(highs.get(name)) for name in decimals}}
    return conditions.may_match(condition, lows, highs)
