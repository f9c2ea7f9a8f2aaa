"""A compacted topic takes no messages without a key, and keeps one of each key: the plan says so."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from flowctl.connectors.base import OpenContext
from flowctl.connectors.kafka import CAPABILITIES
from flowctl.connectors.kafka.client import Cluster
from flowctl.connectors.kafka.sink.messages import Messages
from flowctl.connectors.kafka.sink.producing import Sender, open_sender
from flowctl.connectors.kafka.sink.topics import create_topic
from flowctl.connectors.kafka.sink.transaction import Limits, open_writer
from flowctl.connectors.kafka.target import KafkaTarget
from flowctl.connectors.target import WriteShape
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model import types
from flowctl.model.mode import Mode
from flowctl.model.table_info import Column, ObjectName
from flowctl.spec.spec import Layout
from flowctl.spec.topic_layout import TopicCreation, TopicLayout


@pytest.fixture
def cluster(kafka_broker: str, topic: str) -> Cluster:
    """With the topic, which is compacted."""
    found = Cluster(kafka_broker, {"security.protocol": "PLAINTEXT"})
    create_topic(found, topic, TopicCreation(1, 1, {"cleanup.policy": "compact,delete"}))
    return found


def shape(mode: Mode, key: Sequence[str] = ()) -> WriteShape:
    layout, columns = Layout(topic=TopicLayout(key=tuple(key))), (Column("id", types.INT64),)
    return WriteShape(
        mode, columns, ("id",), layout, creates=False, alters=False, replaces=False, rows=1, in_memory=True
    )


def test_the_plan_refuses_messages_without_a_key(cluster: Cluster, topic: str) -> None:
    target, object = KafkaTarget(cluster, OpenContext(), CAPABILITIES), ObjectName((topic,))
    with pytest.raises(StoppedByPolicy, match=r"is compacted \(cleanup.policy=compact,delete\): it takes no messages"):
        target.confirm_write(object, shape("append"), ["id"])
    for keyed in (shape("append", ["id"]), shape("merge")):
        assert target.confirm_write(object, keyed, ["id"]) == ""
    assert target.confirm_write(ObjectName((f"{topic}-missing",)), shape("append"), ["id"]) == ""


def test_it_is_no_place_for_dead_letters(cluster: Cluster, topic: str) -> None:
    target = KafkaTarget(cluster, OpenContext(), CAPABILITIES)
    create_topic(cluster, f"{topic}-other", TopicCreation(1, 1))
    found = target.describe([ObjectName((name,)) for name in (topic, f"{topic}-other")])
    refused = [target.refuse_letters(info) for info in found.values() if info]
    assert [one and one[0] for one in refused] == [
        "is compacted (cleanup.policy=compact,delete), and loses those with equal keys",
        None,
    ]


def test_what_a_topic_has_become_after_the_plan(cluster: Cluster, topic: str) -> None:
    def send(sender: Sender) -> None:
        sender.send(topic, Messages([None], [b"{}"]), 100)
        sender.flush()

    with pytest.raises(TableError) as refused, open_sender(cluster, 100) as sender:
        send(sender)
    assert refused.value.hint.startswith("Set `to.key` if the topic is compacted")
    with pytest.raises(TableError) as refused, open_writer(cluster, f"flowctl.{topic}", Limits(1, 100)) as writer:
        writer.take_over()
        writer.begin()
        send(writer)
    assert refused.value.hint.startswith("Set `to.key` if the topic is compacted")
