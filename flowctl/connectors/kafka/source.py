"""Topics as a landed source: messages with key, value, and where and when they were appended."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from flowctl.connectors.base import Capabilities
from flowctl.connectors.kafka.client import Cluster, Ends, Topic
from flowctl.connectors.kafka.conversion import OPERATION, Payload
from flowctl.connectors.kafka.decoding import require_readable
from flowctl.connectors.kafka.reading import METADATA, TopicCapture
from flowctl.connectors.source import (
    DELETED_COLUMN,
    PLACE_COLUMN,
    TIME_COLUMN,
    HighWatermark,
    LandedSource,
    Missing,
    Relation,
    WatermarkRequest,
)
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model import types
from flowctl.model.position import OffsetsPosition
from flowctl.model.table_info import Column, ObjectName, RowEstimate, TableInfo
from flowctl.spec.suggest import nearest


@dataclass(frozen=True)
class KafkaSource(LandedSource):
    """The identity of a topic is its id: one that was deleted and created again is another source."""

    cluster: Cluster
    capabilities: Capabilities

    def discover(self, pattern: tuple[str, ...]) -> list[ObjectName]:
        return [ObjectName((name,)) for name in self.cluster.topic_names() if fnmatchcase(name, pattern[-1])]

    def describe(self, relations: Sequence[Relation]) -> Mapping[Relation, TableInfo | None]:
        cluster = self.cluster.id()
        found = self.cluster.topics(sorted({_name(relation) for relation in relations}))
        return {
            relation: _info(relation, found[name], cluster) if (name := _name(relation)) in found else None
            for relation in relations
        }

    def high_watermarks(self, requests: Mapping[str, WatermarkRequest]) -> Mapping[str, HighWatermark]:
        names = {id: _name(request.relation) for id, request in requests.items()}
        topics = list(self.cluster.topics(sorted(set(names.values()))).values())
        # The oldest first: messages may expire meanwhile, and an end before the oldest would look like a loss.
        oldest, ends, last = (self.cluster.offsets(topics, at) for at in ("earliest", "latest", "end"))
        known: dict[Ends | dt.datetime, Mapping[str, OffsetsPosition]] = {"earliest": oldest, "latest": ends}
        for at in {_start(request) for request in requests.values()} - {*known}:
            found = self.cluster.offsets(topics, at)
            known[at] = {name: first.or_else(ends[name]) for name, first in found.items()}
        return {
            id: HighWatermark(
                position=ends.get(name),
                rows=RowEstimate(ends[name].messages_since(oldest[name]), "stats") if name in ends else RowEstimate(),
                start=known[_start(requests[id])].get(name),
                oldest=oldest.get(name),
                uncommitted=last[name].messages_since(ends[name]) if name in ends else 0,
            )
            for id, name in names.items()
        }

    def why_missing(self, relation: Relation) -> Missing:
        name = _name(relation)
        hint = nearest(name, self.cluster.topic_names(), "Create it, or correct `from`")
        return Missing(f"there is no topic {name} at {self.cluster.brokers}", hint)

    @contextmanager
    def capture(self, relation: Relation, info: TableInfo) -> Iterator[TopicCapture]:
        name = _name(relation)
        found = self.cluster.topics([name]).get(name)
        if found is None or found.id != info.extra["topic_id"]:
            raise StoppedByPolicy(f"topic {name} was deleted since the plan was made", hint="Plan again")
        made = replace(payload(relation), is_ordered=len(found.partitions) == 1)
        yield TopicCapture(self.cluster, found, made, _CHANGES if relation.key else ())


def _name(relation: Relation) -> str:
    assert relation.object is not None, "a topic has no queries"
    return relation.object.parts[-1]


def _start(request: WatermarkRequest) -> Ends | dt.datetime:
    match request.start:
        case "" | "earliest":
            return "earliest"
        case "latest":
            return "latest"
        case time:
            return dt.datetime.fromisoformat(time)


#: What changes of rows have besides their columns: their order, whether they are deletions, and their times.
_CHANGES = (
    Column(PLACE_COLUMN, types.INT64),
    Column(DELETED_COLUMN, types.BOOL),
    Column(TIME_COLUMN, types.TIMESTAMP),
)


def payload(relation: Relation) -> Payload:
    """Raises ``TableError`` for declarations that no message can meet."""
    format = relation.format
    if format.get("type") != "json":
        return Payload(key=relation.key)
    columns, of_key = _columns(format.get("schema", {})), _columns(format.get("key", {}).get("schema", {}))
    if twice := sorted({column.name for column in columns} & {column.name for column in of_key}):
        raise TableError(
            f"{', '.join(twice)} is declared in format.schema and in format.key.schema",
            hint="Declare it in one of them: the value's field, or the key's",
        )
    return Payload(columns, of_key, format.get("envelope", ""), relation.key)


def _columns(declared: Mapping[str, str]) -> tuple[Column, ...]:
    columns = tuple(Column(name, types.parse(kind), native="json") for name, kind in declared.items())
    require_readable(columns)
    if taken := sorted(METADATA & set(declared)):
        raise TableError(
            f"format.schema declares {', '.join(taken)}: that is where the message is in its topic",
            hint="Leave it out of format.schema",
        )
    return columns


def _info(relation: Relation, topic: Topic, cluster: str) -> TableInfo:
    return TableInfo(
        object=ObjectName((topic.name,)),
        columns=tuple(_columns_of(relation)),
        identity=f"kafka:{cluster}/{topic.id}",
        system=f"kafka:{cluster}",
        extra={"topic_id": topic.id},
    )


def _columns_of(relation: Relation) -> Iterator[Column]:
    """Of changes of rows, only what they say of the row: where the message is differs in each."""
    found, kind = payload(relation), types.BINARY if relation.format.get("type", "raw") == "raw" else types.STRING
    yield from found.of_key
    yield from found.declared or (Column("value", kind, native="bytes"),)
    if found.key:
        return
    if found.envelope:
        yield Column(OPERATION, types.STRING, nullable=False, native="string")
    yield Column("_key", kind, native="bytes")
    yield Column("_partition", types.INT32, nullable=False, native="int32")
    yield Column("_offset", types.INT64, nullable=False, native="int64")
    yield Column("_timestamp", types.TIMESTAMP, native="int64")
    if relation.format.get("headers"):
        yield Column("_headers", types.STRING, native="headers")
