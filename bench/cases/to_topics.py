"""A Parquet file into a topic that is empty, as JSON with keys."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from bench import peers
from bench.case import Case, Command, Competitor, Prepared, Relation, Setting, World
from bench.cases.topics import TYPES, in_parquet, rows_of
from bench.contents import equals, parquet
from bench.programs import flowctl, pyspark
from tests.services import kafka

_PARTITIONS = 6


def _prepare(world: World) -> Prepared:
    count = world.count(2_000_000)
    file = in_parquet(world, list(rows_of(count)))
    facts = f"{count:,} rows × {len(TYPES)} columns; {_PARTITIONS} partitions, one broker"
    return Prepared(count, facts, (parquet(file),), "price", TYPES)


def _topic(setting: Setting) -> str:
    return f"out-{setting.folder.name}"


def _emptied(command: Callable[[Setting], Command]) -> Callable[[Setting], Command]:
    """The topic is created again before each measurement, which does not count."""

    def emptied(setting: Setting) -> Command:
        address, name = setting.world.kafka, _topic(setting)
        if name in kafka.topics(address):
            kafka.delete_topic(address, name)
        kafka.create_topic(address, name, _PARTITIONS)
        return command(setting)

    return emptied


def _in_topic(setting: Setting) -> tuple[Relation, ...]:
    """What a consumer in ``read_committed`` gets, as lines."""
    file = setting.world.folder / f"{_topic(setting)}.jsonl"
    with file.open("wb") as lines:
        for one in kafka.received(setting.world.kafka, _topic(setting)):
            lines.write((one.value or b"") + b"\n")
    return (Relation(f"read_json('{file}', format = 'newline_delimited', columns = {json.dumps(dict(TYPES))})"),)


def _spec(setting: Setting) -> Mapping[str, Any]:
    to = {"connection": "bus", "topic": _topic(setting), "key": ["id"]}
    return {
        "connections": {
            "files": {"type": "files", "path": str(setting.world.folder)},
            "bus": {"type": "kafka", "brokers": setting.world.kafka},
        },
        "tables": {"rows": {"from": "files:rows.parquet", "to": to, "mode": "append"}},
    }


def _ours(made: Competitor) -> Competitor:
    return replace(made, command=_emptied(made.command))


def _script(setting: Setting) -> Mapping[str, Any]:
    return {
        "brokers": setting.world.kafka,
        "topic": _topic(setting),
        "path": str(setting.world.folder / "rows.parquet"),
        "key": "id",
    }


def _plain(setting: Setting) -> Command:
    file = str(peers.HERE / "plain_producer.py")
    return Command((sys.executable, file, json.dumps(_script(setting))), cwd=setting.folder)


CASE = Case(
    name="parquet-to-topic",
    title="Parquet → Kafka, JSON",
    says="One file with the whole table, into a topic that is empty, with keys.",
    prepare=_prepare,
    needs=("kafka",),
    competitors=(
        _ours(flowctl.on_spark(_spec, check=equals(_in_topic))),
        _ours(flowctl.on_sail(_spec, check=equals(_in_topic))),
        Competitor(
            "plain PySpark",
            f'{pyspark.LOCAL}; `to_json`, `write.format("kafka")`, which is at least once',
            _emptied(pyspark.script("to_topic", _script, pyspark.KAFKA)),
            equals(_in_topic),
            missing=pyspark.missing(pyspark.KAFKA),
        ),
        Competitor(
            "plain producer",
            "a script: pyarrow's rows, Python's `json`, confluent-kafka in one transaction; decimals as text",
            _emptied(_plain),
            equals(_in_topic),
        ),
    ),
    notes=("flowctl commits rows, position and the commit's record in one transaction; PySpark's writer has none.",),
)
