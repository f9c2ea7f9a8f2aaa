"""Kafka Connect: connectors of its own and Debezium's, in one process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from flowctl.engine import java
from tests.services import ivy
from tests.services.cache import cached
from tests.services.processes import HOST, free_port, listens, running

_IVY_FILE = Path(__file__).parent / "connect.xml"
_JVM = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
JSON = {
    f"{part}.converter{name}": value
    for part in ("key", "value")
    for name, value in (("", "org.apache.kafka.connect.json.JsonConverter"), (".schemas.enable", "true"))
}


def avro(registry: str) -> dict[str, str]:
    """As Confluent's converter writes it; ``registry`` is the URL of its interface."""
    own = {
        "": "io.apicurio.registry.utils.converter.AvroConverter",
        ".apicurio.registry.url": registry.replace("/apis/ccompat/v7", "/apis/registry/v2"),
        ".apicurio.registry.auto-register": "true",
        ".apicurio.registry.find-latest": "false",
        ".apicurio.registry.as-confluent": "true",
        ".apicurio.registry.headers.enabled": "false",
        ".apicurio.registry.use-id": "contentId",
    }
    return {f"{part}.converter{name}": value for part in ("key", "value") for name, value in own.items()}


@contextmanager
def connector(brokers: str, settings: Mapping[str, str]) -> Iterator[Path]:
    """Runs one connector until the context ends; its log."""
    with tempfile.TemporaryDirectory(prefix="flowctl-connect-", ignore_cleanup_errors=True) as folder:
        port, place = free_port(), Path(folder)
        worker = {
            "bootstrap.servers": brokers,
            "listeners": f"http://{HOST}:{port}",
            "offset.storage.file.filename": str(place / "offsets"),
            "offset.flush.interval.ms": "1000",
            **JSON,
        }
        for name, options in (("worker", worker), ("connector", {"name": "it", "tasks.max": "1", **settings})):
            text = "".join(f"{key}={value}\n" for key, value in options.items())
            (place / f"{name}.properties").write_text(text)
        command = [str(java.find().command), *_JVM, "-cp", f"{_jars()}/*"]
        command += ["org.apache.kafka.connect.cli.ConnectStandalone"]
        command += [str(place / "worker.properties"), str(place / "connector.properties")]
        log = place / "connect.log"
        with running(command, log=log, answers=lambda: listens(port), seconds=120):
            yield log


def _jars() -> Path:
    return cached("kafka-connect-4.1.1", lambda folder: ivy.retrieve(_IVY_FILE, folder))
