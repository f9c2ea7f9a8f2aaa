"""Which engine a Spark session speaks to: connectors that read through Java libraries ask before they do."""

from __future__ import annotations

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
