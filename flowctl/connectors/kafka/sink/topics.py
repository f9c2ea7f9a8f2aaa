"""Topics that are written: created when asked for, and what they take."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from flowctl.connectors.kafka.client import Cluster, Topic
from flowctl.errors import FlowctlError, TableError, TransientError
from flowctl.model.table_info import ObjectName
from flowctl.spec.topic_layout import TopicCreation

if TYPE_CHECKING:
    from confluent_kafka import KafkaException

_SECONDS = 15.0
#: Of the record of a commit, which may have a long position.
RECORD_BYTES = 10 << 20
#: Where the brokers do not tell: their default.
_MESSAGE_BYTES = 1_048_588


def create_statement(object: ObjectName, creation: TopicCreation) -> str:
    """What has the same effect as :func:`create_topic`, for people."""
    words = ["kafka-topics.sh", "--create", "--if-not-exists", "--topic", object.parts[-1]]
    if creation.partitions is not None:
        words += ["--partitions", str(creation.partitions)]
    if creation.replication is not None:
        words += ["--replication-factor", str(creation.replication)]
    for name, value in creation.config.items():
        words += ["--config", f"{name}={value}"]
    return shlex.join(words)


def find_topics(cluster: Cluster, names: Sequence[str]) -> dict[str, Topic]:
    """Those that exist."""
    if not names:
        return {}
    with naming(names):
        return cluster.topics(names)


@contextmanager
def naming(names: Sequence[str]) -> Iterator[None]:
    """Adds the topics to an error about what this user may do, which does not name any."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        yield
    except TableError as error:
        cause = error.__cause__.args[0] if isinstance(error.__cause__, KafkaException) else None
        if cause is None or cause.code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise
        listed = " or ".join(names)
        hint = f"Let it DESCRIBE, READ and WRITE {listed}"
        raise TableError(f"this user may not use topic {listed}", hint=hint) from error


def create_topic(cluster: Cluster, name: str, creation: TopicCreation) -> Topic:
    """The topic, once it exists; one that is there already stays as it is."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic

    end, is_asked = time.monotonic() + _SECONDS, False
    while True:
        if found := find_topics(cluster, [name]).get(name):
            return found
        if time.monotonic() > end:
            raise TransientError(f"topic {name} was created and is not there yet", hint="Run again in a minute")
        if is_asked:
            time.sleep(0.1)
            continue
        new = NewTopic(
            name,
            num_partitions=creation.partitions or -1,
            replication_factor=creation.replication or -1,
            config={key: str(value) for key, value in creation.config.items()},
        )
        (future,) = cluster.admin.create_topics([new], request_timeout=_SECONDS).values()
        try:
            future.result()
        except KafkaException as error:
            if (refused := _refused(cluster, error)) is not None:
                raise refused from error
        is_asked = True


def _refused(cluster: Cluster, error: KafkaException) -> FlowctlError | None:
    """None: another process was faster."""
    from confluent_kafka import KafkaError

    problem = error.args[0]
    if problem.code() == KafkaError.TOPIC_ALREADY_EXISTS:
        return None
    denied = problem.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    found = cluster.error_of(problem)
    if isinstance(found, TransientError):
        return found
    hint = "Let this user CREATE it, or create it first" if denied else "Correct `create`, or create the topic yourself"
    return TableError(f"Kafka says: {problem.str()}", hint=hint)


def may_write(cluster: Cluster, name: str) -> bool:
    """As far as the brokers tell; also if there is no such topic."""
    from confluent_kafka import KafkaError, KafkaException, TopicCollection
    from confluent_kafka.admin import AclOperation

    asked = cluster.admin.describe_topics(
        TopicCollection([name]), include_authorized_operations=True, request_timeout=_SECONDS
    )
    (future,) = asked.values()
    try:
        allowed = future.result().authorized_operations
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return True
        if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return False
        raise cluster.error_of(error.args[0]) from error
    return not allowed or AclOperation.WRITE in allowed


def message_bytes(cluster: Cluster, name: str) -> int:
    """How large a message may be."""
    return int(settings_of(cluster, name).get("max.message.bytes", _MESSAGE_BYTES))


def compaction(cluster: Cluster, name: str) -> str:
    """That the topic is compacted, for people; empty if it is not, or this user may not see it."""
    policy = settings_of(cluster, name).get("cleanup.policy", "")
    return f"is compacted (cleanup.policy={policy})" if "compact" in policy else ""


def settings_of(cluster: Cluster, name: str) -> Mapping[str, str]:
    """The topic's settings, with the brokers' defaults; empty if this user may not see them."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import ConfigResource, ResourceType

    asked = cluster.admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)], request_timeout=_SECONDS)
    (future,) = asked.values()
    try:
        return {key: entry.value for key, entry in future.result().items()}
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return {}
        raise cluster.error_of(error.args[0]) from error
