"""Runs in the environment ``dlt``. ``dlt_load.py TASK_AS_JSON`` loads tables or files into a lake or a database."""

import decimal
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import dlt  # type: ignore[import-not-found, unused-ignore]
from dlt.sources.filesystem import (  # type: ignore[import-not-found, unused-ignore]
    FileItemDict,
    filesystem,
)
from dlt.sources.sql_database import sql_database  # type: ignore[import-not-found, unused-ignore]

_CHUNK = 100_000


def main(task: dict[str, Any]) -> None:
    pipeline = dlt.pipeline(
        "bench",
        pipelines_dir=task["pipelines"],
        destination=_destination(task),
        dataset_name=task["dataset"],
    )
    given = {"table_format": task.get("table_format", "delta")} if "target" not in task else {}
    pipeline.run(_loaded(task), **given)


def _loaded(task: dict[str, Any]) -> Any:
    for name, source in (("topic", _topic), ("files", _files), ("delta", _delta)):
        if name in task:
            return source(task)
    return _tables(task)


def _destination(task: dict[str, Any]) -> Any:
    if task.get("target", "").startswith("duckdb://"):
        return dlt.destinations.duckdb(task["target"].removeprefix("duckdb:///"))
    if "target" in task:
        return dlt.destinations.postgres(_with_password(task["target"]).replace("+psycopg2", ""))
    return dlt.destinations.filesystem(bucket_url=f"file://{task['lake']}")


def _tables(task: dict[str, Any]) -> Any:
    source = sql_database(
        _with_password(task["source"]),
        schema=task.get("schema"),
        table_names=task["tables"],
        backend=task.get("backend", "pyarrow"),
        chunk_size=_CHUNK,
        reflection_level="full_with_precision",
    )
    for resource in source.resources.values():
        hints: dict[str, Any] = {"write_disposition": task.get("write", "replace")}
        if "key" in task:
            hints["primary_key"] = task["key"]
        if "merge_key" in task:
            hints["merge_key"] = task["merge_key"]
        if "cursor" in task:
            hints["incremental"] = dlt.sources.incremental(task["cursor"])
        resource.apply_hints(**hints)
    return source


def _files(task: dict[str, Any]) -> Any:
    """Arrow tables from pyarrow's own readers: dlt's readers work row by row and are several times slower."""

    @dlt.transformer(name=task["name"], write_disposition="replace")  # type: ignore[untyped-decorator, unused-ignore]
    def read(items: list[FileItemDict]) -> Iterator[Any]:
        import pyarrow.csv
        import pyarrow.parquet

        for item in items:
            if item["file_url"].endswith(".parquet"):
                yield from map(_table, pyarrow.parquet.ParquetFile(_place(item)).iter_batches(_CHUNK))
            else:
                types = {name: _arrow(kind) for name, kind in task["types"].items()}
                options = pyarrow.csv.ConvertOptions(column_types=types)
                reading = pyarrow.csv.ReadOptions(block_size=16 << 20)
                place = _place(item)
                yield from map(_table, pyarrow.csv.open_csv(place, convert_options=options, read_options=reading))

    folder, _, name = task["files"].rpartition("/")
    return filesystem(folder if "://" in folder else f"file://{folder}", file_glob=name) | read


def _place(item: FileItemDict) -> Any:
    """A path on the disk, so that pyarrow reads it itself, or an open file of the object store."""
    path = item["file_url"].removeprefix("file://")
    return item.open() if "://" in path else path


def _delta(task: dict[str, Any]) -> Any:
    """Arrow batches from ``deltalake``: dlt has no source for Delta."""
    from deltalake import DeltaTable

    @dlt.resource(name=task["name"], write_disposition="replace")  # type: ignore[untyped-decorator, unused-ignore]
    def read() -> Iterator[Any]:
        yield from map(_table, DeltaTable(task["delta"]).to_pyarrow_dataset().to_batches(batch_size=_CHUNK))

    return read


def _topic(task: dict[str, Any]) -> Any:
    """A resource over Kafka's client, in batches, as in dlt's verified source; with json instead of its own decoding.
    The types are given; what is no JSON is left out."""
    from confluent_kafka import Consumer, KafkaError

    @dlt.resource(name=task["name"], write_disposition="append", columns=task["columns"])  # type: ignore[untyped-decorator, unused-ignore]
    def read() -> Iterator[Any]:
        settings = {"bootstrap.servers": task["brokers"], "group.id": "bench", "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})
        consumer.subscribe([task["topic"]])
        ended = 0
        while ended < task["partitions"]:
            items = []
            for message in consumer.consume(task["batch"], timeout=1.0):
                if message.error() is not None:
                    ended += message.error().code() == KafkaError._PARTITION_EOF
                    continue
                try:
                    items.append(json.loads(message.value(), parse_float=decimal.Decimal))
                except ValueError:
                    continue
            yield items
        consumer.close()

    return read


def _table(batch: Any) -> Any:
    import pyarrow

    return pyarrow.Table.from_batches([batch])


def _arrow(kind: str) -> Any:
    import pyarrow

    if kind.startswith("DECIMAL"):
        precision, scale = kind.removeprefix("DECIMAL(").removesuffix(")").split(",")
        return pyarrow.decimal128(int(precision), int(scale))
    return {"BIGINT": pyarrow.int64(), "INTEGER": pyarrow.int32(), "DATE": pyarrow.date32()}.get(kind, pyarrow.string())


def _with_password(url: str) -> str:
    """The URL with its password. The driver is explicit, because SQLAlchemy 2.1 changed the default."""
    for scheme, driver, secret in (
        ("postgresql", "psycopg2", "BENCH_PASSWORD"),
        ("mysql", "pymysql", "BENCH_MYSQL_PASSWORD"),
    ):
        if url.startswith(f"{scheme}://"):
            return url.replace("@", f":{os.environ[secret]}@").replace(scheme, f"{scheme}+{driver}", 1)
    return url


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
