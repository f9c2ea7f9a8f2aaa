"""A change stream written to topics: the last message of each key is the row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.e2e.flows import Flow
from tests.e2e.streams.flow import flush, write_flow
from tests.e2e.streams.targets import Row, _text, must_equal
from tests.e2e.streams.workload import Workload
from tests.services import kafka

TABLES = ("customers", "orders", "lines", "readings")


@dataclass(frozen=True)
class TopicPlace:
    address: str
    prefix: str

    def rows(self, table: str, columns: Sequence[str]) -> list[Row]:
        found: dict[bytes | None, dict[str, Any]] = {}
        for one in kafka.received(self.address, f"{self.prefix}-{table}"):
            found.pop(one.key, None)
            if one.value is not None:
                found[one.key] = json.loads(one.value)
        return sorted((tuple(_text(row[name]) for name in columns) for row in found.values()), key=repr)


def write(folder: Path, url: str, address: str, topic: str, tables: Sequence[str], on_truncate: str = "fail") -> Flow:
    to = {name: f"{{connection: bus, topic: {topic}-{name}, create: {{}}}}" for name in tables}
    entries = "\n".join(f'  {name}: {{from: "cdc:public.{name}", to: {to[name]}, mode: merge}}' for name in tables)
    flow = write_flow(folder, url, [], entries, f"batch: {{rows: 400}}, on_truncate: {on_truncate}")
    text = flow.spec.read_text()
    flow.write(text.replace("connections:", f'connections:\n  bus: {{type: kafka, brokers: "{address}"}}'))
    return flow


@pytest.mark.full
@pytest.mark.server
def test_topics_equal_the_source_after_each_pass(
    tmp_path: Path, postgres_database: str, kafka_broker: str, topic: str
) -> None:
    workload = Workload(postgres_database, seed=5, big=20_000, rows=300)
    workload.create()
    flow = write(tmp_path, postgres_database, kafka_broker, topic, TABLES)
    place = TopicPlace(kafka_broker, topic)
    for point in ("", "in_commit", "after_commit"):
        flush(postgres_database)
        if point:
            flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=-9)
        flow.apply()
        must_equal(postgres_database, place, TABLES)
        workload.run(40)


@pytest.mark.server
def test_what_a_topic_cannot_follow_stops_its_table(
    tmp_path: Path, postgres_database: str, kafka_broker: str, topic: str
) -> None:
    """Long values that an update did not send."""
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE documents (id int PRIMARY KEY, title text, body text)")
        connection.execute("ALTER TABLE documents ALTER body SET STORAGE EXTERNAL")
        connection.execute("INSERT INTO documents VALUES (1, 'a', repeat('x', 20000))")
        flow = write(tmp_path, postgres_database, kafka_broker, topic, ["documents"])
        flow.apply()
        connection.execute("UPDATE documents SET title = 'b'")
        flush(postgres_database)
        words = flow.apply(expect=4).words
        assert "is a topic: its rows cannot be read back" in words and "REPLICA IDENTITY FULL" in words


@pytest.mark.server
@pytest.mark.parametrize("on_truncate", ["fail", pytest.param("ignore", marks=pytest.mark.full)])
def test_a_truncated_table(
    tmp_path: Path, postgres_database: str, kafka_broker: str, topic: str, on_truncate: str
) -> None:
    """Its rows stay in the topic. With ``ignore``, what follows is written, too."""
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE tags (id int PRIMARY KEY)")
        connection.execute("INSERT INTO tags VALUES (1)")
        flow = write(tmp_path, postgres_database, kafka_broker, topic, ["tags"], on_truncate)
        flow.apply()
        connection.execute("TRUNCATE tags")
        connection.execute("INSERT INTO tags VALUES (2)")
        flush(postgres_database)
        words = flow.apply(expect=6 if on_truncate == "fail" else 0).words
    kept = TopicPlace(kafka_broker, topic).rows("tags", ["id"])
    if on_truncate == "fail":
        assert "tags was truncated (on_truncate: fail)" in words and "Set on_truncate: ignore" in words
        assert kept == [("1",)]
    else:
        assert kept == [("1",), ("2",)]
