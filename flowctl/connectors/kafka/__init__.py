"""Topics of a Kafka cluster: a landed source, which this process reads. Offsets are its positions; no group is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from flowctl.connectors.base import Capabilities, Connector, OpenContext
from flowctl.connectors.source import SourceCapabilities
from flowctl.model.table_info import ObjectName
from flowctl.spec.spec import Connection

CAPABILITIES = Capabilities(
    source=SourceCapabilities(position="offsets"),
    target=None,
    extra="kafka",
    drivers=("confluent_kafka",),
    signs=("KafkaError", "confluent_kafka"),
    places=lambda options: options["brokers"].split(","),
)


def place(_options: Mapping[str, Any], _object: ObjectName, _base_dir: str) -> None:
    """Only the cluster knows: several brokers are addresses of one."""


@contextmanager
def connect(connection: Connection, context: OpenContext) -> Iterator[Connector]:
    """Opens nothing yet: the cluster is asked only when the source is."""
    from flowctl.connectors.kafka.client import Cluster
    from flowctl.connectors.kafka.payloads import Payloads
    from flowctl.connectors.kafka.registry import Registry
    from flowctl.connectors.kafka.security import security_settings
    from flowctl.connectors.kafka.source import KafkaSource

    security = security_settings(connection.options, context.base_dir)
    cluster = Cluster(str(connection.options["brokers"]), security)
    options = connection.options.get("registry")
    payloads = Payloads(Registry(options, context.base_dir) if options else None, context.base_dir)
    yield Connector(source=KafkaSource(cluster, CAPABILITIES, payloads), greet=cluster.greet)
