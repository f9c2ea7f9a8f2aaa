"""One data statement under one sequence number: the session settings, the read-back, and what may fail between them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from flowctl import crashpoints, delays
from flowctl.connectors.delta import record as records
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.table import find_standing
from flowctl.connectors.lake.record import Record
from flowctl.errors import TransientError, WriteConflict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_APP = "spark.databricks.delta.write.txnAppId"
_NUMBER = "spark.databricks.delta.write.txnVersion"
_RECORD = "spark.databricks.delta.commitInfo.userMetadata"
#: In a session with dynamic partition overwrite, a truncate would replace only some partitions.
_OVERWRITE = "spark.sql.sources.partitionOverwriteMode"


def commit_statement(
    spark: SparkSession,
    location: TableLocation,
    record: Record,
    statement: Callable[[], object],
    before: Callable[[], None],
) -> Record:
    """Runs ``statement``, which commits exactly once, under the number of ``record``; returns what the log then has.
    ``before`` is called right before it.

    Delta silently skips a number that it has already seen, and any lower one: only our intent id, read back from the
    log, shows that the commit is ours. The log is also read after an error, because a statement whose client lost its
    connection may have committed. :class:`StateConflict` if the number belongs to another intent,
    :class:`WriteConflict` for a conflict between writers, otherwise Spark's own error.
    """
    failure: Exception | None = None
    with _settings(spark, record):
        before()
        delays.pause()
        try:
            with _killable(record.commit.table):
                statement()
        except Exception as error:  # noqa: BLE001 - handled below, after reading the log
            failure = error
    delays.pause()
    committed = find_standing(location, record)
    if committed is not None:
        return committed
    if failure is None:
        raise TransientError(f"{location.url} has no commit of number {record.seq} although Spark reported no error")
    if "DELTA_CONCURRENT" in str(failure):
        raise WriteConflict(f"another writer committed to {location.url} at the same moment") from failure
    raise failure


@contextmanager
def _settings(spark: SparkSession, record: Record) -> Iterator[None]:
    """Session settings rather than writer options: MERGE takes no options. They are cleared immediately, so that DDL in
    the same session does not run under the number. Spark substitutes `${…}` when it reads a setting, and a position may
    be a text that contains it, so the JSON escapes the dollar sign."""
    text = record.text.replace("$", "\\u0024")
    wanted = {_APP: record.app_id, _NUMBER: str(record.seq), _RECORD: text, _OVERWRITE: "static"}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in wanted:
            spark.conf.unset(name)


@contextmanager
def created_for(spark: SparkSession, intent_id: str) -> Iterator[None]:
    """DDL in this session records which intent it is for (:func:`flowctl.connectors.delta.record.created_for`)."""
    spark.conf.set(_RECORD, records.created_for(intent_id))
    try:
        yield
    finally:
        spark.conf.unset(_RECORD)


@contextmanager
def _killable(table: str) -> Iterator[None]:
    """The crash point inside the atomic commit. The commit happens in a JVM, so a test's run is killed from a thread
    while the statement runs, or at the latest after it has returned: this covers both outcomes, with and without the
    commit."""
    timer = threading.Timer(0.3, crashpoints.reached, args=("in_commit", table))
    timer.daemon = True
    timer.start()
    try:
        yield
        crashpoints.reached("in_commit", table)
    finally:
        timer.cancel()
