"""Dead letters of a table: what a batch rejects, what is read again, and what has been.

They are stored in a sidecar, as quarantined rows are (:mod:`flowctl.run.quarantine`): before the batch's commit, under
its sequence number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from flowctl.connectors.buffered import buffered, frame_of
from flowctl.connectors.letters import (
    CHECK,
    LETTER_COLUMNS,
    MESSAGE_COLUMNS,
    REASON_COLUMN,
    landed,
    landed_name,
)
from flowctl.connectors.target import Target, WriteJob
from flowctl.engine.spark_types import named
from flowctl.errors import StoppedByPolicy
from flowctl.model.commit import Commit
from flowctl.model.table_info import Column
from flowctl.resolve.places import DEAD_LETTERS
from flowctl.run import checks
from flowctl.run.attempt import COMMIT_MARGIN, Attempt, RunContext
from flowctl.run.opening import open_target, take_table_lease
from flowctl.run.quarantine import LINEAGE, NUMBER, ORIGIN, Sidecar, origin, remove_rejected
from flowctl.run.reading import Landed
from flowctl.spec.spec import TableSpec
from flowctl.state import document as documents
from flowctl.storage.buffer import BufferFolder
from flowctl.text import some

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def remove_replayed(attempt: Attempt, run: RunContext) -> None:
    """Removes the dead letters that the attempt has read again, or whose messages it has read from the topic again to
    replace the target's content. Only once it is recorded: until then, they are the only copy. After that, nothing
    reads them any more, even if this fails."""
    table, intent = run.tables[attempt.step.id], attempt.intent
    through = documents.letters_read(intent)
    if not through or (intent.interval.letters is None and table.dead_letters is None):
        return
    with ExitStack() as stack:
        target = open_target(stack, run, table)
        take_table_lease(stack, run.spec, run.run_id, table, target)
        job = WriteJob(
            record=Commit(run.lineage, table.id, intent.seq, intent.id, intent.target_id, None),
            object=table.target.object,
            mode=table.mode,
            columns=(),
            run_id=run.run_id,
            fence=run.fence,
            before_commit=lambda: run.check_lease(COMMIT_MARGIN),
        )
        remove_rejected(lambda: run.session(table.id), target, job, SIDECAR, 0, through)


def carried(table: TableSpec) -> tuple[Column, ...]:
    """The columns of the message that each row carries until the checks have decided on it."""
    return landed(MESSAGE_COLUMNS) if table.dead_letters is not None and table.quarantines else ()


def all_rejected(
    table: TableSpec,
    failed: DataFrame | None,
    failures: int,
    read: Landed,
    spark: SparkSession,
    folder: Callable[[], BufferFolder],
) -> tuple[DataFrame | None, int]:
    """The letters of the rows that ``failed`` checks, of which there are ``failures``, and of the messages that were
    not decoded; and their number. Raises ``StoppedByPolicy`` if they are too many."""
    rejected, count = _together(failed, read, spark, folder), failures + read.letter_count
    checks.refuse_dead_letters(table, count - read.again, read.messages, lambda: _example(rejected))
    return rejected, count


def _together(
    failed: DataFrame | None, read: Landed, spark: SparkSession, folder: Callable[[], BufferFolder]
) -> DataFrame | None:
    from pyspark.sql import functions as f

    names = [landed_name(column.name) for column in LETTER_COLUMNS]
    frames = []
    if failed is not None:
        frames.append(failed.withColumn(landed_name("_error"), f.lit(CHECK)).select(*map(named, names)))
    if read.letters is not None:
        frames.append(frame_of(read.letters, spark, folder).select(*map(named, names)))
    if not frames:
        return None
    first, *others = frames
    return first.unionByName(others[0]) if others else first


def _example(rejected: DataFrame | None) -> str:
    """The place of one letter, and what is wrong with it."""
    row = rejected.first() if rejected is not None else None
    if row is None:
        return ""
    place = f"message {row[landed_name('_offset')]} of partition {row[landed_name('_partition')]}"
    return f"{place}: {row[REASON_COLUMN]}"


def _stored(rejected: DataFrame, job: WriteJob) -> tuple[DataFrame, tuple[Column, ...]]:
    whole = [named(landed_name(column.name)).alias(column.name) for column in LETTER_COLUMNS]
    return rejected.select(*whole, *origin(job)), (*LETTER_COLUMNS, *ORIGIN)


SIDECAR = Sidecar(
    DEAD_LETTERS,
    ORIGIN,
    _stored,
    identity=("_topic", "_partition", "_offset", "_timestamp", "_error", "_reason"),
    goes_with_content=True,
)


def stored_letters(
    session: Callable[[], SparkSession],
    target: Target,
    table: TableSpec,
    lineage: str,
    after: int,
    through: int | None = None,
) -> DataFrame | None:
    """Those of sequence numbers above ``after``, and not above ``through``; None if there is no such table."""
    object = SIDECAR.of(table.target.object)
    there = target.describe([object])[object]
    if there is None:
        return None
    if lacking := {column.name for column in LETTER_COLUMNS} - {column.name for column in there.columns}:
        raise StoppedByPolicy(
            f"{object}, where {table.id} keeps its dead letters, has no {some(sorted(lacking))} any more",
            hint="Restore it; or drop it, and the letters with it",
            mark=table.mark_of("dead_letters"),
        )
    frame = target.scan(session(), object, (*LETTER_COLUMNS, *ORIGIN))
    frame = frame.where((named(LINEAGE.name) == lineage) & (named(NUMBER.name) > after))
    return frame if through is None else frame.where(named(NUMBER.name) <= through)


def to_read_again(frame: DataFrame | None, folder: Callable[[], BufferFolder]) -> Iterator[pa.RecordBatch]:
    """In the order of their topic; holds one batch in memory."""
    if frame is not None:
        place = folder()
        ordered = frame.select(*[named(column.name) for column in MESSAGE_COLUMNS]).orderBy("_partition", "_offset")
        buffered(ordered, place)
        yield from place.batches()


def newest(frame: DataFrame, limit: int) -> list[dict[str, Any]]:
    """The newest first."""
    rows = frame.orderBy(named(NUMBER.name).desc(), "_partition", "_offset").limit(limit)
    return [dict(row) for row in rows.toArrow().to_pylist()]


def count_by_reason(frame: DataFrame) -> list[tuple[str, str, int]]:
    """Kind of error, reason and number, the most frequent first."""
    from pyspark.sql import functions as f

    counted = frame.groupBy("_error", "_reason").agg(f.count(f.lit(1)).alias("n")).collect()
    return sorted(((row["_error"], row["_reason"], row["n"]) for row in counted), key=lambda one: (-one[2], one))
