"""The only place where a Spark application is created: one per run, once a table is certain to need it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager

from flowctl.engine.base import Engine
from flowctl.engine.classic import open_classic
from flowctl.engine.conf import Extension, is_connect, is_sail
from flowctl.engine.connect import open_connect
from flowctl.engine.cost import Size
from flowctl.engine.sail import open_sail
from flowctl.spec.spec import SparkSettings

_PYSPARK_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


def open_engine(
    settings: SparkSettings,
    jar_sets: Collection[str],
    storage_conf: Mapping[str, str],
    size: Size,
    *,
    extensions: Collection[Extension] = (),
    storage_environment: Mapping[str, str] | None = None,
    verbose: bool = False,
    say: Callable[[str], None] | None = None,
    stop_seconds: float = 10.0,
) -> AbstractContextManager[Engine]:
    """Starts (or connects to) Spark, and ends it with the context, interrupting what still runs. ``jar_sets`` and
    ``extensions`` are the connectors'. ``storage_conf`` are Spark settings with credentials (``spark.hadoop.…``), which
    never appear on a command line; ``storage_environment`` are the same as variables for Sail. ``verbose`` passes the
    JVM's own output to standard error; ``say`` gets messages about jars; ``stop_seconds`` is the time the JVM has to
    end by itself. Raises :class:`EngineFailed`."""
    if not verbose:
        silence_pyspark()
    if is_connect(settings.url):
        return open_connect(settings, extensions, storage_conf, size)
    if is_sail(settings.url):
        return open_sail(settings, storage_environment or {}, size, verbose=verbose)
    return open_classic(
        settings, jar_sets, extensions, storage_conf, size, verbose=verbose, say=say, stop_seconds=stop_seconds
    )


def silence_pyspark() -> None:
    """Disables pyspark's loggers, which write each error to standard error as JSON in addition to raising it."""
    for name in _PYSPARK_LOGGERS:
        logging.getLogger(name).disabled = True
