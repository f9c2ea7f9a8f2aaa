"""A table's schema in Delta's JSON, changed as a plan says, without an engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from flowctl.connectors.delta.statements import statistics_without
from flowctl.connectors.delta.types import Action, columns_of, schema_json
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column


def with_columns(metadata: Mapping[str, Any], columns: Sequence[Column], *, replaces: bool) -> Action:
    """``metadata`` of a table that has ``columns`` afterwards; unchanged when it has them already.

    New columns come last. What was NOT NULL may be null where ``columns`` says so, as the plan does. Another type is
    possible only where all content is replaced: files of the old type would need the engine to widen what it reads.
    There, columns that are not listed go.
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
