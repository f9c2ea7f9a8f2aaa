"""One data statement under one number: the session settings, the read-back, and what may go wrong between them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from flowctl import crashpoints, delays
from flowctl.connectors.delta import record as records
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.record import Record
from flowctl.connectors.delta.table import find_standing
from flowctl.errors import TransientError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_APP = "spark.databricks.delta.write.txnAppId"
_NUMBER = "spark.databricks.delta.write.txnVersion"
_RECORD = "spark.databricks.delta.commitInfo.userMetadata"
#: A session set to overwrite partitions one by one would turn a truncate into a partial one.
_OVERWRITE = "spark.sql.sources.partitionOverwriteMode"


def commit_statement(
    spark: SparkSession,
    location: TableLocation,
    record: Record,
    statement: Callable[[], object],
    before: Callable[[], None],
) -> Record:
    """Runs ``statement``, which commits exactly once, under the number of ``record``; returns what the log then
    has. ``before`` is called right before it.

    Delta skips a number that it has already seen, and any lower one, without a word: only our intent id read back
    from the log says that the commit is ours. The same question is asked after an error, because a statement whose
    client lost its connection may have committed. :class:`StateConflict` when the number belongs to somebody else,
    :class:`TransientError` for a conflict between writers, otherwise Spark's own error.
    """
    failure: Exception | None = None
    with _settings(spark, record):
        before()
        delays.pause()
        try:
            with _killable(record.commit.table):
                statement()
        except Exception as error:  # noqa: BLE001 - judged below, once the log has been asked
            failure = error
    delays.pause()
    committed = find_standing(location, record)
    if committed is not None:
        return committed
    if failure is None:
        raise TransientError(
            f"{location.url} has no commit of number {record.seq} although Spark reported none missing"
        )
    if "DELTA_CONCURRENT" in str(failure):
        raise TransientError(f"another writer committed to {location.url} at the same moment") from failure
    raise failure


@contextmanager
def _settings(spark: SparkSession, record: Record) -> Iterator[None]:
    """Session settings rather than writer options: MERGE takes no options. Cleared at once, so that DDL in the same
    session does not run under the number. Spark fills in `${…}` when a setting is read, and a position may be a text
    that holds it: JSON has another way to write the sign."""
    text = record.user_metadata.replace("$", "\\u0024")
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
    """DDL of this session says which intent it is for (:func:`flowctl.connectors.delta.record.created_for`)."""
    spark.conf.set(_RECORD, records.created_for(intent_id))
    try:
        yield
    finally:
        spark.conf.unset(_RECORD)


@contextmanager
def _killable(table: str) -> Iterator[None]:
    """The crash point inside the atomic act. The act happens in a JVM, so a test's kill comes from a thread while the
    statement runs, at the latest when it has returned: both with and without the commit are covered that way."""
    timer = threading.Timer(0.3, crashpoints.reached, args=("in_commit", table))
    timer.daemon = True
    timer.start()
    try:
        yield
        crashpoints.reached("in_commit", table)
    finally:
        timer.cancel()
