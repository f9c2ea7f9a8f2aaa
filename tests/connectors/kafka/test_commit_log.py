"""What is committed to topics, as the topic of commits tells it: also of what an open transaction hides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from flowctl.connectors.kafka.client import COMMITS, Cluster
from flowctl.connectors.kafka.sink import commit_log
from flowctl.connectors.kafka.sink.commit_log import Record, ensure_commits, outcome_of, read_records, record_from
from flowctl.connectors.kafka.sink.keys import KeyForm
from flowctl.connectors.kafka.sink.messages import Messages
from flowctl.connectors.kafka.sink.transaction import Limits, Writer, open_writer
from flowctl.errors import TableError, TransientError
from flowctl.model import types
from flowctl.model.commit import Commit
from flowctl.model.position import VersionPosition
from flowctl.model.table_info import Column
from tests.services import kafka

pytestmark = pytest.mark.server
COLUMNS = (Column("id", types.INT64), Column("amount", types.Decimal(12, 2)))


@pytest.fixture(scope="module")
def brokers() -> Iterator[str]:
    """Of its own: the commits are those of all its flows."""
    with kafka.broker() as made, made.started() as address:
        yield address


@pytest.fixture
def cluster(brokers: str) -> Iterator[Cluster]:
    found = Cluster(brokers, {"security.protocol": "PLAINTEXT"})
    ensure_commits(found)
    yield found
    for topic in found.topics([COMMITS, "out", "other"]):
        kafka.delete_topic(brokers, topic)


def record(cluster: Cluster, table: str, seq: int = 1, topic: str = "out") -> Record:
    id = cluster.topics([topic])[topic].id
    commit = Commit("l1", table, seq, f"i{seq}", f"kafka:c/{id}", VersionPosition(seq))
    return Record(commit, topic, COLUMNS, ("id",), "2026-01-01T00:00:00Z")


@contextmanager
def writing(cluster: Cluster, table: str, seq: int = 1, values: int = 1) -> Iterator[Writer]:
    """In a transaction that has all but its end."""
    with open_writer(cluster, f"flowctl.l1.{table}", Limits(values, 1_000_000)) as writer:
        writer.take_over()
        writer.begin()
        writer.send("out", Messages([None] * values, [b"{}"] * values), 100)
        writer.flush()
        made = replace(record(cluster, table, seq), first=writer.first)
        writer.send(COMMITS, Messages([made.to_key()], [made.to_value()]), 10_000)
        writer.flush()
        yield writer


def commit(cluster: Cluster, writer: Writer, table: str) -> None:
    """A commit is decided before its topics show it: whoever takes over waits for that."""
    writer.commit()
    with open_writer(cluster, f"flowctl.l1.{table}", Limits(1, 1_000_000)) as successor:
        successor.take_over()


def committed(cluster: Cluster) -> dict[str, int]:
    return {one.commit.table: one.commit.seq for one in read_records(cluster, lambda _: True)}


def test_a_record_is_read_as_it_was_written(cluster: Cluster) -> None:
    kafka.create_topic(cluster.brokers, "out")
    for first in (None, (2, 120)):
        made = replace(record(cluster, "t"), first=first)
        assert record_from(made.to_value()) == made
    merged = replace(made, keys=KeyForm("avro", 7, 6))
    assert record_from(merged.to_value()) == merged


def test_what_is_hidden_is_known_by_its_first_message(cluster: Cluster) -> None:
    """The first transaction stays open; behind it are others: committed, aborted, and open."""
    kafka.create_topic(cluster.brokers, "out", 1)
    with writing(cluster, "before") as writer:
        commit(cluster, writer, "before")
    kafka.create_topic(cluster.brokers, "other")
    with writing_elsewhere(cluster):
        with writing(cluster, "committed", 7) as writer:
            commit(cluster, writer, "committed")
        with writing(cluster, "aborted"):
            pass
        with writing(cluster, "committed", 8) as writer:
            commit(cluster, writer, "committed")
        with writing(cluster, "open"):
            assert committed(cluster) == {"before": 1, "committed": 8}
    assert committed(cluster) == {"before": 1, "committed": 8}


@contextmanager
def writing_elsewhere(cluster: Cluster) -> Iterator[None]:
    """An open transaction of a table in another topic."""
    with open_writer(cluster, "flowctl.l2.first", Limits(1, 1_000_000)) as writer:
        writer.take_over()
        writer.begin()
        made = record(cluster, "first", topic="other")
        writer.send(COMMITS, Messages([made.to_key()], [made.to_value()]), 10_000)
        writer.flush()
        yield


def test_what_the_first_message_cannot_tell_is_waited_for(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has expired, or somebody else's transaction hides it too."""
    monkeypatch.setattr(commit_log, "_WAIT_SECONDS", 1.0)
    kafka.create_topic(cluster.brokers, "out")
    kafka.create_topic(cluster.brokers, "other")
    with writing_elsewhere(cluster):
        with writing(cluster, "expired") as writer:
            first = writer.first
            commit(cluster, writer, "expired")
        made = replace(record(cluster, "expired"), first=first)
        assert outcome_of(cluster, made) == "committed"
        kafka.expire(cluster.brokers, "out", 0, 1)
        assert outcome_of(cluster, made) == "unknown"
        with pytest.raises(TransientError, match="hidden in _flowctl_commits"):
            committed(cluster)
        kafka.delete_topic(cluster.brokers, "out")
        assert outcome_of(cluster, made) == "unknown"
    assert committed(cluster) == {"expired": 1}


def test_messages_of_others_are_no_commits(cluster: Cluster) -> None:
    kafka.send(cluster.brokers, COMMITS, [b"hello"], key=b"k")
    with pytest.raises(TableError, match="has a message that is no commit"):
        read_records(cluster, lambda _: True)


def test_a_writer_fences_the_one_before(cluster: Cluster) -> None:
    kafka.create_topic(cluster.brokers, "out")
    with writing(cluster, "t", 1) as stale:
        with writing(cluster, "t", 2) as writer:
            commit(cluster, writer, "t")
        found: Any = None
        try:
            stale.commit()
        except TransientError as error:
            found = error
        assert found is not None and "another writer has taken over this table" in found.message
    assert committed(cluster) == {"t": 2}
    assert len(kafka.received(cluster.brokers, "out")) == 1
