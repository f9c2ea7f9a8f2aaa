"""Brokers that take the messages of a transaction slowly, or not at all."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from flowctl.connectors.kafka.client import Cluster
from flowctl.connectors.kafka.sink import transaction
from flowctl.connectors.kafka.sink.messages import Messages
from flowctl.connectors.kafka.sink.transaction import Limits, open_writer
from flowctl.errors import TransientError
from tests.services import kafka


@pytest.mark.parametrize(
    ("messages", "volume", "seconds"),
    [(1, 0, 60), (1_200_000, 0, 660), (19, 15_000_000, 120), (10**9, 10**12, 900)],
)
def test_a_transaction_has_time_for_its_messages_and_for_their_bytes(messages: int, volume: int, seconds: int) -> None:
    assert Limits(messages, 1_000_000, volume).seconds == seconds


@pytest.mark.full
@pytest.mark.server
def test_messages_that_are_not_taken_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "_SHORTEST", 4)
    with kafka.broker() as made, made.started() as address:
        kafka.create_topic(address, "out")
        with open_writer(Cluster(address, {"security.protocol": "PLAINTEXT"}), "w", Limits(4, 1000)) as writer:
            writer.take_over()
            writer.begin()
            writer.send("out", Messages([None], [b"{}"]), 100)
            writer.flush()
            found = subprocess.run(["pgrep", "-f", f"kafka.Kafka {made.folder}"], capture_output=True, check=True)
            ids = [int(one) for one in found.stdout.split()]
            try:
                for id in ids:
                    os.kill(id, signal.SIGSTOP)
                with pytest.raises(TransientError) as refused:
                    writer.send("out", Messages([None] * 3, [b"{}"] * 3), 100)
                    writer.flush()
            finally:
                for id in ids:
                    os.kill(id, signal.SIGCONT)
    assert "s after the transaction began, the brokers do not have all of its messages" in refused.value.message
    assert "3 message(s) timed out" in refused.value.message
    assert "set `delivery: at_least_once` in `to`" in refused.value.hint
