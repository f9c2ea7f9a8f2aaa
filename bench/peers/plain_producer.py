"""A handwritten producer: ``plain_producer.py OPTIONS_AS_JSON``. It keeps no state."""

import json
import sys
from typing import Any

import pyarrow.parquet as pq
from confluent_kafka import Producer


def main(options: dict[str, Any]) -> None:
    settings = {"compression.type": "lz4", "linger.ms": 20, "partitioner": "murmur2_random"}
    producer = Producer({"bootstrap.servers": options["brokers"], "transactional.id": options["topic"], **settings})
    producer.init_transactions()
    producer.begin_transaction()
    for batch in pq.ParquetFile(options["path"]).iter_batches(65_536):
        for row in batch.to_pylist():
            value = json.dumps(row, default=str).encode()
            key = json.dumps({options["key"]: row[options["key"]]}).encode()
            while True:
                try:
                    producer.produce(options["topic"], value, key)
                except BufferError:
                    producer.poll(0.1)
                else:
                    break
        producer.poll(0)
    producer.commit_transaction()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
