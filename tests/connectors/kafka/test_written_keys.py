"""What a merge writes as keys stays as it is, or the table stops before it sends anything."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.base import OpenContext
from flowctl.connectors.kafka import CAPABILITIES
from flowctl.connectors.kafka.client import Cluster
from flowctl.connectors.kafka.registry import Registry
from flowctl.connectors.kafka.sink.commit_log import Record, read_records
from flowctl.connectors.kafka.target import KafkaTarget
from flowctl.connectors.target import OP_COLUMN, Staged, WriteJob
from flowctl.engine.batch import InMemory
from flowctl.errors import StoppedByPolicy
from flowctl.model import types
from flowctl.model.commit import Commit
from flowctl.model.position import VersionPosition
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.spec.spec import Layout
from flowctl.spec.topic_layout import Delivery, TopicLayout
from tests.services import kafka

COLUMNS = (Column("id", types.INT64), Column("name", types.STRING))
JSON, AVRO = TopicLayout(), TopicLayout("avro", registry=True)


@dataclass
class Merged:
    """A topic, and the table that is merged into it."""

    address: str
    url: str
    topic: str
    seq: int = 0
    target: KafkaTarget = field(init=False)

    def __post_init__(self) -> None:
        kafka.create_topic(self.address, self.topic)
        self.refresh()

    def refresh(self) -> None:
        """As a new run: what the registry has said is not remembered."""
        cluster = Cluster(self.address, {"security.protocol": "PLAINTEXT"})
        self.target = KafkaTarget(cluster, OpenContext(), CAPABILITIES, Registry({"url": self.url}, "."))

    @property
    def info(self) -> TableInfo:
        object = ObjectName((self.topic,))
        found = self.target.describe([object])[object]
        assert found is not None
        return found

    def write(self, layout: TopicLayout, *rows: tuple[str, int, str | None]) -> None:
        """``rows`` are operations, ids and names."""
        record = Commit(self.topic, "t", self.seq + 1, f"i{self.seq + 1}", self.info.identity, VersionPosition(1))
        job = WriteJob(record, self.info.object, "merge", COLUMNS, ("id",), layout=Layout(topic=layout))
        listed = [{OP_COLUMN: op, "id": id, "name": name} for op, id, name in rows]
        schema = arrow_schema((Column(OP_COLUMN, types.STRING), *COLUMNS))
        batch = InMemory(pa.Table.from_pylist(listed, schema))
        self.target.commit([Staged(job, batch, batch.names)])
        self.seq += 1

    def wait_for_partitions(self, total: int) -> None:
        """A broker answers before its own metadata has them."""
        end = time.monotonic() + 30
        while len(self.target.cluster.topics([self.topic])[self.topic].partitions) != total:
            assert time.monotonic() < end
            time.sleep(0.05)

    def void(self) -> None:
        record = Commit(self.topic, "t", self.seq + 1, f"i{self.seq + 1}", self.info.identity, VersionPosition(1))
        self.target.void(WriteJob(record, self.info.object, "merge", (), ("id",)))
        self.seq += 1

    @property
    def record(self) -> Record:
        """That of the last commit. It is decided before its topics show it."""
        end = time.monotonic() + 30
        while True:
            for found in read_records(self.target.cluster, lambda one: one.topic == self.topic):
                if found.commit.seq == self.seq:
                    return found
            assert time.monotonic() < end
            time.sleep(0.05)

    def confirm(self, layout: TopicLayout) -> str:
        job = WriteJob(self.record.commit, self.info.object, "merge", COLUMNS, ("id",), layout=Layout(topic=layout))
        return self.target.confirm_write(self.info.object, job.shape(in_memory=True), ("id", "name"))


@pytest.fixture
def merged(kafka_broker: str, schema_registry: str, topic: str) -> Merged:
    return Merged(kafka_broker, schema_registry, topic)


@pytest.mark.full
def test_another_format_of_keys_is_not_written(merged: Merged) -> None:
    merged.write(JSON, ("U", 1, "a"))
    merged.void()
    with pytest.raises(StoppedByPolicy, match="its keys are encoded with `type: json`, and"):
        merged.write(AVRO, ("D", 1, None))
    assert len(kafka.received(merged.address, merged.topic)) == 1
    merged.write(JSON, ("D", 1, None))


def test_other_columns_of_keys_are_refused(merged: Merged) -> None:
    merged.write(JSON, ("U", 1, "a"))
    assert merged.target.refuse_key(merged.info, ["id"], Layout(topic=JSON)) is None
    refused = merged.target.refuse_key(merged.info, ["id", "name"], Layout(topic=JSON))
    assert refused is not None and "its keys have id, and the spec says id, name" in refused[0]


@pytest.mark.full
def test_another_schema_of_keys_is_not_written(merged: Merged, monkeypatch: pytest.MonkeyPatch) -> None:
    """As from another registry: the first commit is taken for one whose keys begin with another id."""
    merged.write(AVRO, ("U", 1, "a"))
    keys = merged.record.keys
    assert keys is not None and keys.schema is not None
    assert merged.confirm(AVRO) == ""
    other = replace(merged.record, keys=replace(keys, schema=keys.schema + 1))
    monkeypatch.setattr(KafkaTarget, "_records", lambda *_: [other])
    said = f"its keys begin with the schema id {keys.schema + 1}, and the registry has their schema under {keys.schema}"
    with pytest.raises(StoppedByPolicy, match=said):
        merged.confirm(AVRO)
    with pytest.raises(StoppedByPolicy, match=said):
        merged.write(AVRO, ("D", 1, None))
    assert len(kafka.received(merged.address, merged.topic)) == 1


@pytest.mark.parametrize("delivery", ["exactly_once", pytest.param("at_least_once", marks=pytest.mark.full)])
def test_keys_stay_in_their_partitions_when_others_are_added(merged: Merged, delivery: Delivery) -> None:
    layout, ids = replace(JSON, delivery=delivery), range(20)
    kafka.add_partitions(merged.address, merged.topic, 3)
    merged.wait_for_partitions(3)
    merged.write(layout, *(("U", id, "a") for id in ids))
    kafka.add_partitions(merged.address, merged.topic, 8)
    merged.wait_for_partitions(8)
    merged.write(layout, *(("U", id, "b") for id in ids))
    merged.void()
    merged.write(layout, *(("D", id, None) for id in ids))
    found: dict[bytes | None, list[int]] = {}
    for one in kafka.received(merged.address, merged.topic):
        found.setdefault(one.key, []).append(one.partition)
    assert [len(places) for places in found.values()] == [3] * len(ids)
    assert {len(set(places)) for places in found.values()} == {1}
    assert {places[0] for places in found.values()} == {0, 1, 2}


def test_keys_of_before_they_were_recorded_are_as_they_are(merged: Merged, monkeypatch: pytest.MonkeyPatch) -> None:
    merged.write(JSON, ("U", 1, "a"))
    monkeypatch.setattr(KafkaTarget, "_records", lambda *_: [replace(merged.record, keys=None)])
    merged.write(AVRO, ("U", 1, "b"))
    assert merged.record.keys is not None and merged.record.keys.format == "avro"
