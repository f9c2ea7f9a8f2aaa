"""Which engine a Spark session speaks to: connectors that read through Java libraries, or would spare a cold JVM work,
ask before they do."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A setting of the session, put there by whoever opened it. Apache Spark's sessions need not have it.
ENGINE_KEY = "flowctl.engine"
SAIL = "sail"

#: Some thousand rows spend their time in compiling code that runs once. What is outside of whole stages (projections
#: of Delta's own log, above all) is compiled again for each task: a scd2 batch of 20 rows took 4.5 s instead of 7.5.
INTERPRETED: Mapping[str, str] = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

_HAS_JVM: MutableMapping[SparkSession, bool] = WeakKeyDictionary()


def compiles(spark: SparkSession) -> bool:
    """Whether queries are compiled, and in a JVM of our own: a server of Spark Connect has done it before."""
    from pyspark.sql import SparkSession as ClassicSession

    return isinstance(spark, ClassicSession) and any(
        spark.conf.get(name, None) != INTERPRETED[name] for name in INTERPRETED
    )


@contextmanager
def interpreted(spark: SparkSession) -> Iterator[None]:
    """What runs inside is not worth compiling."""
    before = {name: spark.conf.get(name, None) for name in INTERPRETED} if compiles(spark) else {}
    for name in before:
        spark.conf.set(name, INTERPRETED[name])
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def has_jvm(spark: SparkSession) -> bool:
    """Whether executors are Java processes, so that JDBC and Hadoop's file systems are there."""
    if spark not in _HAS_JVM:  # a server takes a round trip to answer, and is asked by everyone
        _HAS_JVM[spark] = spark.conf.get(ENGINE_KEY, None) != SAIL
    return _HAS_JVM[spark]


def has_own_workers(spark: SparkSession) -> bool:
    """Whether Python code of a frame runs in this environment, with all that is installed here."""
    from pyspark.sql import SparkSession as ClassicSession

    is_local = isinstance(spark, ClassicSession) and str(spark.conf.get("spark.master")).startswith("local")
    return is_local or not has_jvm(spark)


def most_at_once() -> int:
    """Partitions that a frame read by Python may have on Sail, which begins all of them at the same time: each is a
    thread, and may be a connection, however few the cores."""
    return max(8, os.cpu_count() or 1)


def reachable(path: str) -> bool:
    """Whether Sail finds a path: it encodes all but these characters, each of its readers in another way."""
    return re.fullmatch(r"[A-Za-z0-9._\-/=+~@:]*", path) is not None
