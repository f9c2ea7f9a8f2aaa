"""A topic of messages in JSON, or in Avro with a registry, into Delta, in one pass; a thousandth of them poison."""

from __future__ import annotations

import io
import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from bench.case import Case, Command, Competitor, Prepared, Setting, World
from bench.contents import equals, parquet
from bench.programs import dlt, flowctl, pyspark
from tests.services import kafka, schemas

Row = tuple[int, int, str, Decimal]
_TOPIC, _PARTITIONS = "clicks", 2
TYPES = {"id": "BIGINT", "user_id": "BIGINT", "url": "VARCHAR", "price": "DECIMAL(12,2)"}
_DECLARED = {"id": "bigint", "user_id": "bigint", "url": "string", "price": "decimal(12,2)"}
_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
_KINDS = {"id": "long", "user_id": "long", "url": "string", "price": _DECIMAL}
_AVRO = {"type": "record", "name": "Click", "fields": [{"name": name, "type": kind} for name, kind in _KINDS.items()]}
#: One message in so many is poison.
_POISON = 1000


def _prepare(world: World, said: str, encode: Callable[[Row], bytes]) -> Prepared:
    """The rows that are right are in a Parquet file, too."""
    count = world.count(2_000_000)
    kafka.create_topic(world.kafka, _TOPIC, _PARTITIONS)
    rows, chance = list(rows_of(count)), random.Random(1)
    with kafka.producer(world.kafka) as made:
        for row in rows:
            _produce(made, encode(row), row[0] % _PARTITIONS)
            if chance.randrange(_POISON) == 0:
                _produce(made, b"poison", row[0] % _PARTITIONS)
    file = in_parquet(world, rows)
    facts = f"{count:,} messages of {said}, 4 fields, in {_PARTITIONS} partitions; 1 in {_POISON:,} is poison"
    return Prepared(count, facts, (parquet(file),), "price", TYPES)


def in_parquet(world: World, rows: Sequence[Row]) -> Path:
    """A file with all of ``rows``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = world.folder / "rows.parquet"
    kinds = (pa.int64(), pa.int64(), pa.string(), pa.decimal128(12, 2))
    columns = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    pq.write_table(pa.table(columns, names=[*TYPES]), file)
    return file


def rows_of(count: int) -> Iterator[Row]:
    chance = random.Random(2)
    for id in range(count):
        url = f"https://shop.example/p/{chance.randrange(10_000):06}"
        yield id, chance.randrange(100_000), url, Decimal(chance.randrange(10**6)).scaleb(-2)


def _prepare_json(world: World) -> Prepared:
    def encoded(row: Row) -> bytes:
        id, user, url, price = row
        return f'{{"id": {id}, "user_id": {user}, "url": "{url}", "price": {price}}}'.encode()

    return _prepare(world, "JSON of 80 bytes", encoded)


def _prepare_avro(world: World) -> Prepared:
    from fastavro import parse_schema, schemaless_writer

    id = schemas.register(world.registry, f"{_TOPIC}-value", json.dumps(_AVRO))
    header, schema = schemas.framed(id, b""), parse_schema(_AVRO)

    def encoded(row: Row) -> bytes:
        made = io.BytesIO()
        schemaless_writer(made, schema, dict(zip(TYPES, row, strict=True)))
        return header + made.getvalue()

    return _prepare(world, "Avro of 45 bytes", encoded)


def _produce(made: Any, value: bytes, partition: int) -> None:
    while True:
        try:
            made.produce(_TOPIC, value, None, partition)
        except BufferError:
            made.poll(0.1)
        else:
            return


def _spec(format: Mapping[str, Any]) -> Callable[[Setting], Mapping[str, Any]]:
    def spec(setting: Setting) -> Mapping[str, Any]:
        bus: dict[str, Any] = {"type": "kafka", "brokers": setting.world.kafka}
        if setting.world.registry:
            bus |= {"registry": {"url": setting.world.registry}}
        table = {"from": f"bus:{_TOPIC}", "to": "lake", "mode": "append", "format": format, "dead_letters": {}}
        return {"connections": {"bus": bus, "lake": flowctl.LAKE}, "tables": {_TOPIC: table}}

    return spec


def _streaming(setting: Setting) -> Mapping[str, Any]:
    own = {"brokers": setting.world.kafka, "topic": _TOPIC, "name": _TOPIC}
    if setting.world.registry:
        return {**own, "avro": json.dumps(_AVRO)}
    return {**own, "schema": ", ".join(f"{name} {kind}" for name, kind in _DECLARED.items())}


def _structured_streaming(how: str) -> Competitor:
    return Competitor(
        "Structured Streaming",
        f"{pyspark.LOCAL}; `availableNow`, `{how}`, a checkpoint; drops what is poison",
        pyspark.script("topic", _streaming, pyspark.KAFKA),
        equals(pyspark.in_lake(_TOPIC)),
        missing=pyspark.missing(pyspark.KAFKA),
    )


def _file_sink(setting: Setting) -> Command:
    """Ends when the file has as many lines as the topic messages; a poison message is a line, too."""
    arguments = (
        setting.world.kafka,
        _TOPIC,
        str(setting.folder / "messages"),
        str(kafka.count(setting.world.kafka, _TOPIC)),
    )
    root = str(Path(__file__).parents[2])
    return Command((sys.executable, "-m", "bench.peers.connect_file", *arguments), setting.folder, {"PYTHONPATH": root})


def _task(setting: Setting) -> Mapping[str, Any]:
    kinds = {"BIGINT": {"data_type": "bigint"}, "VARCHAR": {"data_type": "text"}}
    decimal = {"data_type": "decimal", "precision": 12, "scale": 2}
    return {
        "brokers": setting.world.kafka,
        "topic": _TOPIC,
        "partitions": _PARTITIONS,
        "name": _TOPIC,
        "batch": 20_000,
        "columns": {name: kinds.get(kind, decimal) for name, kind in TYPES.items()},
    }


_AS_JSON, _AS_AVRO = _spec({"type": "json", "schema": _DECLARED}), _spec({"type": "avro"})
_SAYS = "All of a topic, into a Delta table that does not exist yet; flowctl keeps what is poison as dead letters."
JSON = Case(
    name="topic-to-delta",
    title="Kafka, JSON → Delta",
    says=_SAYS,
    prepare=_prepare_json,
    needs=("kafka",),
    competitors=(
        flowctl.on_spark(_AS_JSON, check=equals(flowctl.in_lake(_TOPIC))),
        flowctl.on_sail(_AS_JSON, check=equals(flowctl.in_lake(_TOPIC))),
        _structured_streaming("from_json"),
        Competitor(
            "dlt",
            f"a resource over Kafka's own client, 20,000 at a time, types given; {dlt.DELTA}; drops what is poison",
            dlt.load(_task),
            equals(dlt.in_lake(_TOPIC)),
            missing=dlt.missing,
        ),
        Competitor(
            "Kafka Connect",
            "its own file sink, one process: the texts of all messages as lines of a file, decoded by nobody",
            _file_sink,
            compared=False,
        ),
    ),
)
AVRO = Case(
    name="avro-topic-to-delta",
    title="Kafka, Avro with a schema registry → Delta",
    says=f"{_SAYS} Structured Streaming is given the schema, and looks none up.",
    prepare=_prepare_avro,
    needs=("kafka", "registry"),
    competitors=(
        flowctl.on_spark(_AS_AVRO, check=equals(flowctl.in_lake(_TOPIC))),
        flowctl.on_sail(_AS_AVRO, check=equals(flowctl.in_lake(_TOPIC))),
        _structured_streaming("from_avro"),
    ),
)
