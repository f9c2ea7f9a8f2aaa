"""Table features: those that a table's columns need (Delta protocol, *Table Features*), and what turning one on costs.

A reader that does not know one feature of a table reads none of it, so a table has a feature only once something in it
needs one. Deletion vectors are the exception: ``layout.deletion_vectors`` says whether a table is created with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from flowctl.connectors.delta.types import Action
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column, TableInfo
from flowctl.model.types import Array, DataType, Struct

DELETION_VECTORS = "deletionVectors"
TIMESTAMP_NTZ = "timestampNtz"
TYPE_WIDENING = "typeWidening"
#: No feature of Delta's: what writers have to mind in arrays and structs.
NESTED_NOT_NULL = "NOT NULL within a column"

#: Who cannot read a table with it, as far as tests/connectors/delta/test_readers.py has tried.
_COST = {
    TIMESTAMP_NTZ: "readers that do not know it refuse the table from then on",
    TYPE_WIDENING: "deltalake, Polars and all that read through deltalake refuse the table from then on",
}
#: From this writer version of a protocol on its features are named; up to the other all are known.
_WRITER, _WRITER_OF_ALL = 7, 2
#: Under these a commit may add and remove files without doing more than that.
_PLAIN = frozenset(
    {"appendOnly", "invariants", "deletionVectors", "timestampNtz", "typeWidening", "vacuumProtocolCheck"}
)
_DEMANDING = ("delta.appendOnly", "delta.enableChangeDataFeed")

#: From this version on a protocol names its features, and a reader must know each.
_READER = 3
#: Features that the writer version below has without naming them.
_IMPLIED, _IMPLIED_BY = ("appendOnly", "invariants"), 2


def demanding_features(features: Sequence[str], properties: Mapping[str, str]) -> list[str]:
    """What of a table's features and properties asks more of a commit than to add and remove files; flowctl does only
    that where the engine cannot commit under its sequence number."""
    switched_on = [name for name in _DEMANDING if properties.get(name) == "true"]
    return sorted({*features} - _PLAIN) + switched_on


def is_unnamed(writer_version: int) -> bool:
    """Whether it stands for features of which a table may use some: to name a new one, all of these must be named."""
    return _WRITER_OF_ALL < writer_version < _WRITER


def of_columns(columns: Iterable[Column]) -> list[str]:
    return [TIMESTAMP_NTZ] if any(_holds_local_time(column.type) for column in columns) else []


def protocol(features: Sequence[str], writer_features: Sequence[str] = ()) -> Action:
    """Of a new table: the lowest that allows ``features``, which readers must know, and ``writer_features``; as Spark
    makes it."""
    if features:
        named = [*features, *writer_features, *_IMPLIED]
        versions = {"minReaderVersion": _READER, "minWriterVersion": _WRITER}
        return {**versions, "readerFeatures": [*features], "writerFeatures": named}
    if writer_features:
        named = [*writer_features, *_IMPLIED]
        return {"minReaderVersion": 1, "minWriterVersion": _WRITER, "writerFeatures": named}
    return {"minReaderVersion": 1, "minWriterVersion": _IMPLIED_BY}


def raised(before: Mapping[str, Any], columns: Iterable[Column]) -> Action:
    """The protocol ``before`` with what ``columns`` need; the same where it has that. :class:`TableError` where it
    is not known which features the table uses already."""
    known = [*(before.get("readerFeatures") or ())]
    missing = [name for name in of_columns(columns) if name not in known]
    if not missing:
        return dict(before)
    if is_unnamed(before["minWriterVersion"]):
        version = before["minWriterVersion"]
        raise TableError(
            f"the table needs the Delta feature {', '.join(missing)}, and its writer version {version} does not name "
            "its features",
            hint="Run this flow with spark.url local[*]",
        )
    writers = [*(before.get("writerFeatures") or _IMPLIED)]
    versions = {"minReaderVersion": _READER, "minWriterVersion": _WRITER}
    return {**before, **versions, "readerFeatures": [*known, *missing], "writerFeatures": [*writers, *missing]}


def find_missing(info: TableInfo, changes: Sequence[SchemaChange]) -> Iterator[SchemaChange]:
    """What ``changes`` need of the table's protocol apart from its columns, each with its price; without statements."""
    for name, change in _needed(changes).items():
        if name in info.extra.get("features", ()) and not _is_off(name, info):
            continue
        version = int(info.extra.get("reader_version", 1))
        rises = (
            f"raises the reader version from {version} to {_READER}" if version < _READER else "adds a reader feature"
        )
        yield SchemaChange(name, "feature", None, None, "enable", change.policy, note=f"{rises}: {_COST[name]}")


def _needed(changes: Sequence[SchemaChange]) -> dict[str, SchemaChange]:
    """Each with the first change that needs it."""
    first: dict[str, SchemaChange] = {}
    for change in changes:
        if change.action == "widen":
            first.setdefault(TYPE_WIDENING, change)
        if change.action in ("add", "text", "widen", "retype") and change.new and _holds_local_time(change.new):
            first.setdefault(TIMESTAMP_NTZ, change)
    return first


def _is_off(name: str, info: TableInfo) -> bool:
    """A protocol may allow what the table's properties do not."""
    properties = info.extra.get("properties", {})
    return name == TYPE_WIDENING and properties.get("delta.enableTypeWidening") != "true"


def _holds_local_time(kind: DataType) -> bool:
    match kind:
        case Array(item):
            return _holds_local_time(item)
        case Struct(fields):
            return any(_holds_local_time(of) for _, of in fields)
        case _:
            return kind == types.TIMESTAMP_NTZ
