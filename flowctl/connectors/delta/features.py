"""Table features: which ones a table's columns need (Delta protocol, *Table Features*), and what enabling one costs.

A reader that does not support one of a table's features cannot read the table at all, so a feature is enabled only once
something in the table needs it. Deletion vectors are the exception: ``layout.deletion_vectors`` decides whether a table
is created with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from flowctl.connectors.delta.types import Action
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column, TableInfo

DELETION_VECTORS = "deletionVectors"
TIMESTAMP_NTZ = "timestampNtz"
TYPE_WIDENING = "typeWidening"
#: Not a feature of Delta's: what writers must enforce in arrays and structs.
NESTED_NOT_NULL = "NOT NULL within a column"

#: Which readers refuse a table with the feature, as tested in tests/connectors/delta/test_readers.py.
_COST = {
    TIMESTAMP_NTZ: "readers that do not know it refuse the table from then on",
    TYPE_WIDENING: "deltalake, Polars and all that read through deltalake refuse the table from then on",
}
#: From the first writer version on a protocol names its features; up to the second all that it has are known.
_WRITER, _WRITER_OF_ALL = 7, 2
#: With these features a commit may add and remove files and do nothing more.
_PLAIN = frozenset(
    {"appendOnly", "invariants", "deletionVectors", "timestampNtz", "typeWidening", "vacuumProtocolCheck"}
)
_DEMANDING = ("delta.appendOnly", "delta.enableChangeDataFeed")

#: From this reader version on a protocol names its features, and a reader must support each.
_READER = 3
#: Features that the writer version after them implies without naming them.
_IMPLIED, _IMPLIED_BY = ("appendOnly", "invariants"), 2


def demanding_features(features: Sequence[str], properties: Mapping[str, str]) -> list[str]:
    """A table's features and properties that require more of a commit than adding and removing files. flowctl does no
    more than that where the engine cannot commit under its sequence number."""
    switched_on = [name for name in _DEMANDING if properties.get(name) == "true"]
    return sorted({*features} - _PLAIN) + switched_on


def is_unnamed(writer_version: int) -> bool:
    """Whether the version implies features of which a table may use only some: to name a new one, these must all be
    named."""
    return _WRITER_OF_ALL < writer_version < _WRITER


def of_columns(columns: Iterable[Column]) -> list[str]:
    return [TIMESTAMP_NTZ] if any(types.is_or_holds(column.type, types.TIMESTAMP_NTZ) for column in columns) else []


def protocol(features: Sequence[str], writer_features: Sequence[str] = ()) -> Action:
    """The protocol of a new table: the lowest that allows ``features``, which readers must support, and
    ``writer_features``; the same that Spark creates."""
    if features:
        named = [*features, *writer_features, *_IMPLIED]
        versions = {"minReaderVersion": _READER, "minWriterVersion": _WRITER}
        return {**versions, "readerFeatures": [*features], "writerFeatures": named}
    if writer_features:
        named = [*writer_features, *_IMPLIED]
        return {"minReaderVersion": 1, "minWriterVersion": _WRITER, "writerFeatures": named}
    return {"minReaderVersion": 1, "minWriterVersion": _IMPLIED_BY}


def raised(before: Mapping[str, Any], columns: Iterable[Column]) -> Action:
    """The protocol ``before`` with the features that ``columns`` need; unchanged if it has them. :class:`TableError` if
    it is unknown which features the table already uses."""
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
    """The features that ``changes`` need and the table does not have, each with its cost; without statements."""
    for name, change in _needed(changes).items():
        if name in info.extra.get("features", ()) and not _is_off(name, info):
            continue
        version = int(info.extra.get("reader_version", 1))
        rises = (
            f"raises the reader version from {version} to {_READER}" if version < _READER else "adds a reader feature"
        )
        yield SchemaChange(name, "feature", None, None, "enable", change.policy, note=f"{rises}: {_COST[name]}")


def _needed(changes: Sequence[SchemaChange]) -> dict[str, SchemaChange]:
    """The features that ``changes`` need, each with the first change that needs it."""
    first: dict[str, SchemaChange] = {}
    for change in changes:
        if change.action == "widen":
            first.setdefault(TYPE_WIDENING, change)
        made = change.new if change.action in ("add", "text", "widen", "retype") else None
        if made is not None and types.is_or_holds(made, types.TIMESTAMP_NTZ):
            first.setdefault(TIMESTAMP_NTZ, change)
    return first


def _is_off(name: str, info: TableInfo) -> bool:
    """Whether the table's properties turn off a feature that its protocol allows."""
    properties = info.extra.get("properties", {})
    return name == TYPE_WIDENING and properties.get("delta.enableTypeWidening") != "true"
