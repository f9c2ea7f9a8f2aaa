"""Which engine a Spark session speaks to: connectors that read through Java libraries ask before they do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A setting of the session, put there by whoever opened it. Apache Spark's sessions need not have it.
ENGINE_KEY = "flowctl.engine"
SAIL = "sail"


def has_jvm(spark: SparkSession) -> bool:
    """Whether executors are Java processes, so that JDBC and Hadoop's file systems are there."""
    engine: str | None = spark.conf.get(ENGINE_KEY, None)
    return engine != SAIL


def reachable(path: str) -> bool:
    """Whether Sail finds a path: it encodes all but these characters, each of its readers in another way."""
    return re.fullmatch(r"[A-Za-z0-9._\-/=+~@:]*", path) is not None


#: Delta features under which a commit may add and remove files without doing more than that.
_PLAIN_FEATURES = frozenset(
    {"appendOnly", "invariants", "deletionVectors", "timestampNtz", "typeWidening", "vacuumProtocolCheck"}
)
_DEMANDING = ("delta.appendOnly", "delta.enableChangeDataFeed")


def demanding_features(features: Sequence[str], properties: Mapping[str, str]) -> list[str]:
    """What of a Delta table's features and properties asks more of a commit than to add and remove files; flowctl does
    only that where the engine cannot commit under its number."""
    switched_on = [name for name in _DEMANDING if properties.get(name) == "true"]
    return sorted({*features} - _PLAIN_FEATURES) + switched_on
