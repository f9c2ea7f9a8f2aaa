"""How a topic is written: how its messages are encoded, and how it is created."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

#: How messages that flowctl writes are encoded.
MessageFormat = Literal["json", "avro", "protobuf"]
MESSAGE_FORMATS: tuple[MessageFormat, ...] = get_args(MessageFormat)

#: How often the messages of a commit arrive.
Delivery = Literal["exactly_once", "at_least_once"]


@dataclass(frozen=True)
class TopicCreation:
    """How a missing topic is created; what is None or not in ``config`` is left to the brokers."""

    partitions: int | None = None
    replication: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TopicLayout:
    """How rows become messages of a topic. ``key`` are the columns of a message's key where the mode has no key of its
    own; ``headers`` are columns that are sent as headers too. ``create`` None: the topic must exist. ``registry``:
    messages have registered schemas. ``subject``: of the schema of values; empty: by the topic's name."""

    format: MessageFormat = "json"
    registry: bool = False
    subject: str = ""
    key: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    delivery: Delivery = "exactly_once"
    create: TopicCreation | None = None
