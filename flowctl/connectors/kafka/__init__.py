"""Topics of a Kafka cluster: a landed source, which this process reads, and a target that is a log. Offsets are the
source's positions; no group is used."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from flowctl.connectors.base import Capabilities, Connector, OpenContext
from flowctl.connectors.source import SourceCapabilities
from flowctl.connectors.target import TargetCapabilities
from flowctl.model.table_info import ObjectName
from flowctl.spec.spec import Connection, TableSpec
from flowctl.spec.topic_layout import MessageFormat

#: A transaction of so many messages has ended long before the brokers would abort it.
_TRANSACTION_ROWS = 1_000_000
#: What writes the messages of a format.
_OF_FORMATS: Mapping[MessageFormat, tuple[str, ...]] = {"avro": ("fastavro",), "protobuf": ("grpc_tools",)}


def _on_executors(connection: Connection, table: TableSpec) -> tuple[str, ...]:
    """Only at least once do executors send."""
    if table.layout.topic.delivery == "exactly_once":
        return ()
    modules = ["confluent_kafka", "flowctl", "pyarrow", *_OF_FORMATS.get(table.layout.topic.format, ())]
    if connection.options.get("sasl", {}).get("mechanism") == "AWS_MSK_IAM":
        modules.append("aws_msk_iam_sasl_signer")
    return tuple(modules)


CAPABILITIES = Capabilities(
    source=SourceCapabilities(position="offsets"),
    target=TargetCapabilities(widens=lambda old, new: True, is_log=True, batch_rows=_TRANSACTION_ROWS),
    extra="kafka",
    drivers=("confluent_kafka",),
    signs=("KafkaError", "confluent_kafka"),
    on_executors=_on_executors,
    places=lambda options: options["brokers"].split(","),
)


def place(options: Mapping[str, Any], object: ObjectName, _base_dir: str) -> str:
    """Brokers and topic. Other addresses may be of the same cluster, which only the cluster knows."""
    brokers = sorted({address.strip().lower() for address in str(options["brokers"]).split(",")})
    return f"kafka {','.join(brokers)}/{object.parts[-1]}"


def refuse_name(_options: Mapping[str, Any], object: ObjectName, _base_dir: str) -> str | None:
    name = object.parts[-1]
    if name.startswith("__"):
        return "names that begin with __ are Kafka's own"
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) or name in (".", ".."):
        return "the name of a topic has letters, digits, `.`, `_` and `-`, 249 at most"
    return None


@contextmanager
def connect(connection: Connection, context: OpenContext) -> Iterator[Connector]:
    """Opens nothing yet: the cluster is asked only when the source is."""
    from flowctl.connectors.kafka.client import Cluster
    from flowctl.connectors.kafka.payloads import Payloads
    from flowctl.connectors.kafka.registry import Registry
    from flowctl.connectors.kafka.security import security_settings
    from flowctl.connectors.kafka.source import KafkaSource
    from flowctl.connectors.kafka.target import KafkaTarget

    security = security_settings(connection.options, context.base_dir)
    cluster = Cluster(str(connection.options["brokers"]), security)
    options = connection.options.get("registry")
    registry = Registry(options, context.base_dir) if options else None
    payloads = Payloads(registry, context.base_dir)
    yield Connector(
        source=KafkaSource(cluster, CAPABILITIES, payloads),
        target=KafkaTarget(cluster, context, CAPABILITIES, registry),
        greet=lambda: ", ".join([cluster.greet(), *([registry.greet()] if registry else [])]),
    )
