"""Which engine a Spark session uses: for connectors that read through Java libraries, or avoid work in a cold JVM."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A session setting, set when the session is opened. Apache Spark's sessions need not have it.
ENGINE_KEY = "flowctl.engine"
SAIL = "sail"

#: With a few thousand rows, most time is spent compiling code that runs once. Code outside of whole-stage codegen
#: (above all, projections of Delta's own log) is even compiled for each task. With these settings, an scd2 batch of
#: 20 rows took 4.5 s instead of 7.5 s.
INTERPRETED: Mapping[str, str] = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

_HAS_JVM: MutableMapping[SparkSession, bool] = WeakKeyDictionary()


def compiles(spark: SparkSession) -> bool:
    """Whether queries are compiled, in a JVM that flowctl started: a Spark Connect server is already warm."""
    from pyspark.sql import SparkSession as ClassicSession

    return isinstance(spark, ClassicSession) and any(
        spark.conf.get(name, None) != INTERPRETED[name] for name in INTERPRETED
    )


@contextmanager
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Disables code generation for queries inside the context, which are not worth compiling."""
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
    """Whether executors are Java processes, so that JDBC and Hadoop's file systems are available."""
    if spark not in _HAS_JVM:  # cached: with a server, each query is a round trip
        _HAS_JVM[spark] = spark.conf.get(ENGINE_KEY, None) != SAIL
    return _HAS_JVM[spark]


def has_own_workers(spark: SparkSession) -> bool:
    """Whether a frame's Python code runs in this environment, with all packages installed here."""
    from pyspark.sql import SparkSession as ClassicSession

    is_local = isinstance(spark, ClassicSession) and str(spark.conf.get("spark.master")).startswith("local")
    return is_local or not has_jvm(spark)


def most_at_once() -> int:
    """The most partitions that a frame read by Python may have on Sail, which starts all of them at the same time: each
    is a thread, and maybe a connection, regardless of the number of cores."""
    return max(8, os.cpu_count() or 1)


def reachable(path: str) -> bool:
    """Whether Sail can read a path: it encodes all other characters, and each of its readers does so differently."""
    return re.fullmatch(r"[A-Za-z0-9._\-/=+~@:]*", path) is not None
