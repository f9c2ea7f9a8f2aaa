"""A topic of JSON messages into Delta, in one pass, a thousandth of them no JSON."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from bench.case import Case, Competitor, Prepared, Setting, World
from bench.contents import equals, parquet
from bench.programs import dlt, flowctl, pyspark
from tests.services import kafka

_TOPIC, _PARTITIONS = "clicks", 2
_TYPES = {"id": "BIGINT", "user_id": "BIGINT", "url": "VARCHAR", "price": "DECIMAL(12,2)"}
_DECLARED = {"id": "bigint", "user_id": "bigint", "url": "string", "price": "decimal(12,2)"}
#: One message in so many is no JSON.
_POISON = 1000


def _prepare(world: World) -> Prepared:
    """The rows that are right are in a Parquet file, too."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    count = world.count(2_000_000)
    kafka.create_topic(world.kafka, _TOPIC, _PARTITIONS)
    rows, chance = list(_rows(count)), random.Random(1)
    with kafka.producer(world.kafka) as made:
        for id, user, url, price in rows:
            value = f'{{"id": {id}, "user_id": {user}, "url": "{url}", "price": {price}}}'
            _produce(made, value.encode(), id % _PARTITIONS)
            if chance.randrange(_POISON) == 0:
                _produce(made, b"no JSON", id % _PARTITIONS)
    file = world.folder / "rows.parquet"
    kinds = (pa.int64(), pa.int64(), pa.string(), pa.decimal128(12, 2))
    columns = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    pq.write_table(pa.table(columns, names=[*_TYPES]), file)
    facts = f"{count:,} messages of JSON of 80 bytes, 4 fields, in {_PARTITIONS} partitions; 1 in {_POISON:,} is none"
    return Prepared(count, facts, (parquet(file),), "price", _TYPES)


def _rows(count: int) -> Iterator[tuple[int, int, str, Decimal]]:
    chance = random.Random(2)
    for id in range(count):
        url = f"https://shop.example/p/{chance.randrange(10_000):06}"
        yield id, chance.randrange(100_000), url, Decimal(chance.randrange(10**6)).scaleb(-2)


def _produce(made: Any, value: bytes, partition: int) -> None:
    while True:
        try:
            made.produce(_TOPIC, value, None, partition)
        except BufferError:
            made.poll(0.1)
        else:
            return


def _spec(setting: Setting) -> Mapping[str, Any]:
    format = {"type": "json", "schema": _DECLARED}
    table = {"from": f"bus:{_TOPIC}", "to": "lake", "mode": "append", "format": format, "dead_letters": {}}
    return {
        "connections": {"bus": {"type": "kafka", "brokers": setting.world.kafka}, "lake": flowctl.LAKE},
        "tables": {_TOPIC: table},
    }


def _streaming(setting: Setting) -> Mapping[str, Any]:
    schema = ", ".join(f"{name} {kind}" for name, kind in _DECLARED.items())
    return {"brokers": setting.world.kafka, "topic": _TOPIC, "schema": schema, "name": _TOPIC}


def _task(setting: Setting) -> Mapping[str, Any]:
    kinds = {"BIGINT": {"data_type": "bigint"}, "VARCHAR": {"data_type": "text"}}
    decimal = {"data_type": "decimal", "precision": 12, "scale": 2}
    return {
        "brokers": setting.world.kafka,
        "topic": _TOPIC,
        "partitions": _PARTITIONS,
        "name": _TOPIC,
        "batch": 20_000,
        "columns": {name: kinds.get(kind, decimal) for name, kind in _TYPES.items()},
    }


JSON = Case(
    name="topic-to-delta",
    title="Kafka, JSON → Delta",
    says="All of a topic, into a Delta table that does not exist yet; flowctl keeps what is no JSON as dead letters.",
    prepare=_prepare,
    needs=("kafka",),
    competitors=(
        flowctl.on_spark(_spec, check=equals(flowctl.in_lake(_TOPIC))),
        flowctl.on_sail(_spec, check=equals(flowctl.in_lake(_TOPIC))),
        Competitor(
            "Structured Streaming",
            f"{pyspark.LOCAL}; `availableNow`, `from_json`, a checkpoint; drops what is no JSON",
            pyspark.script("topic", _streaming, topics=True),
            equals(pyspark.in_lake(_TOPIC)),
            missing=pyspark.missing,
        ),
        Competitor(
            "dlt",
            f"a resource over Kafka's own client, 20,000 at a time, types given; {dlt.DELTA}; drops what is no JSON",
            dlt.load(_task),
            equals(dlt.in_lake(_TOPIC)),
            missing=dlt.missing,
        ),
    ),
)
