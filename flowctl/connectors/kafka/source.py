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
from flowctl.connectors.kafka.payloads import Payloads
from flowctl.connectors.kafka.reading import TopicCapture
from flowctl.connectors.source import (
    DELETED_COLUMN,
    PLACE_COLUMN,
    SOURCE_ORDER_COLUMN,
    TIME_COLUMN,
    TRUNCATED_COLUMN,
    HighWatermark,
    LandedSource,
    Missing,
    Relation,
    WatermarkRequest,
)
from flowctl.errors import StoppedByPolicy
from flowctl.model import types
from flowctl.model.position import OffsetsPosition, Position
from flowctl.model.table_info import Column, ObjectName, RowEstimate, TableInfo
from flowctl.spec.spec import ReadHints
from flowctl.spec.suggest import nearest


@dataclass(frozen=True)
class KafkaSource(LandedSource):
    """The identity of a topic is its id: one that was deleted and created again is another source."""

    cluster: Cluster
    capabilities: Capabilities
    payloads: Payloads = Payloads()

    def discover(self, pattern: tuple[str, ...]) -> list[ObjectName]:
        return [ObjectName((name,)) for name in self.cluster.topic_names() if fnmatchcase(name, pattern[-1])]

    def describe(self, relations: Sequence[Relation]) -> Mapping[Relation, TableInfo | None]:
        cluster = self.cluster.id()
        found = self.cluster.topics(sorted({_name(relation) for relation in relations}))
        return {
            relation: self._info(relation, found[name], cluster) if (name := _name(relation)) in found else None
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
                clock=dt.datetime.now(dt.UTC),
                uncommitted=last[name].messages_since(ends[name]) if name in ends else 0,
            )
            for id, name in names.items()
        }

    def explain_read(self, request: WatermarkRequest, hints: ReadHints) -> str:
        used = request.info.extra.get("schemas", {})
        said = [f"{role}s by version {version} of their schema (id {id})" for role, (id, version) in used.items()]
        return ", ".join([*said, *_truncates(request)])

    def show_position(self, relation: Relation, group: str, position: Position) -> None:
        assert isinstance(position, OffsetsPosition), "topics have no others"
        self.cluster.commit_offsets(group, _name(relation), position)

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
        pins = {role: (id, version) for role, (id, version) in info.extra.get("schemas", {}).items()}
        payload, _ = self.payloads.of(relation, name, pins)
        made = replace(payload, is_ordered=len(found.partitions) == 1, needs_times=relation.needs_times)
        order = (Column(SOURCE_ORDER_COLUMN, types.STRING),) if payload.has_source_order else ()
        truncated = (Column(TRUNCATED_COLUMN, types.BOOL),) if payload.applies_truncates else ()
        yield TopicCapture(self.cluster, found, made, (*_CHANGES, *order, *truncated) if relation.key else ())

    def _info(self, relation: Relation, topic: Topic, cluster: str) -> TableInfo:
        payload, pins = self.payloads.of(relation, topic.name)
        schemas = {"schemas": {role: list(pin) for role, pin in pins.items()}} if pins else {}
        extra = {"topic_id": topic.id, "partitions": len(topic.partitions), **schemas}
        return TableInfo(
            object=ObjectName((topic.name,)),
            columns=tuple(_columns_of(relation, payload)),
            identity=f"kafka:{cluster}/{topic.id}",
            system=f"kafka:{cluster}",
            extra=extra,
        )


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


def _truncates(request: WatermarkRequest) -> Iterator[str]:
    """What a truncate of the source table does."""
    format = request.relation.format
    if not request.relation.key or format.get("envelope") != "debezium":
        return
    match format.get("on_truncate", "apply"):
        case "fail":
            yield "a truncate stops it"
        case "ignore":
            yield "a truncate is ignored"
        case _ if format.get("source_order"):
            yield "a truncate deletes what is older in the source"
        case _ if request.info.extra["partitions"] == 1:
            yield "a truncate deletes what is before it"
        case _:
            yield "a truncate stops it: what is before it in other partitions is not known"


#: What changes of rows have besides their columns: their order, whether they are deletions, and their times.
_CHANGES = (
    Column(PLACE_COLUMN, types.INT64),
    Column(DELETED_COLUMN, types.BOOL),
    Column(TIME_COLUMN, types.TIMESTAMP),
)


def _columns_of(relation: Relation, payload: Payload) -> Iterator[Column]:
    """Of changes of rows, only what they say of the row: where the message is differs in each."""
    kind = relation.format.get("type", "raw")
    whole = types.STRING if kind in ("text", "json", "csv") else types.BINARY
    yield from payload.of_key
    yield from payload.declared or (Column("value", whole, native="bytes"),)
    if payload.key:
        return
    if payload.envelope:
        yield Column(OPERATION, types.STRING, nullable=False, native="string")
    yield Column("_key", whole, native="bytes")
    yield Column("_partition", types.INT32, nullable=False, native="int32")
    yield Column("_offset", types.INT64, nullable=False, native="int64")
    yield Column("_timestamp", types.TIMESTAMP, native="int64")
    if relation.format.get("headers"):
        yield Column("_headers", types.STRING, native="headers")
