"""Dead letters of a table: what a batch rejects, what is read again, and what has been.

They are stored as quarantined rows are (:mod:`flowctl.run.quarantine`): before the batch's commit, under its sequence
number; in a sidecar, or where the spec says.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any

from flowctl.connectors.buffered import buffered, frame_of
from flowctl.connectors.letters import (
    BAD_ROW_COLUMNS,
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
from flowctl.model.commit import Commit, Intent
from flowctl.model.position import OffsetsPosition
from flowctl.model.sidecars import DEAD_LETTERS
from flowctl.model.table_info import Column, same_identity
from flowctl.resolve.places import letters_of
from flowctl.run import checks
from flowctl.run.attempt import COMMIT_MARGIN, Attempt, RunContext
from flowctl.run.opening import open_connector, open_target, take_lease, take_table_lease
from flowctl.run.quarantine import LINEAGE, NUMBER, ORIGIN, QUARANTINE, TABLE, Place, Sidecar, origin, remove_rejected
from flowctl.run.reading import Landed
from flowctl.spec.spec import TableSpec
from flowctl.state import document as documents
from flowctl.state.letters import PassedLetters, passed_at
from flowctl.storage.buffer import BufferFolder
from flowctl.text import some

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

#: Seconds that one table waits while another one's dead letters are written to the same place.
_PATIENCE = 20.0
_WRITING = threading.Lock()


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
        place = place_of(stack, run, table, target)
        job = WriteJob(
            record=Commit(run.lineage, table.id, intent.seq, intent.id, intent.target_id, None),
            object=table.target.object,
            mode=table.mode,
            columns=(),
            run_id=run.run_id,
            fence=run.fence,
            before_commit=lambda: run.check_lease(COMMIT_MARGIN),
        )
        if place is not None:
            with held(run, table, place):
                remove_rejected(lambda: run.session(table.id), place, job, 0, through)


def place_of(stack: ExitStack, run: RunContext, table: TableSpec, target: Target) -> Place | None:
    """Where the table keeps dead letters; for a table that keeps none, where it would. ``target`` is its own. None: a
    log, and the spec names no other place."""
    letters = table.dead_letters
    if letters is None or letters.to is None:
        return None if target.is_log else Place(target, SIDECAR.of(table.target.object), SIDECAR)
    if letters.to.connection != table.target.connection:
        found = open_connector(stack, run, letters.to.connection).target
        assert found is not None, "validate has refused connections that cannot be written"
        target = found
    return Place(target, letters.to.object, SIDECAR, letters.layout, shared=not target.is_log)


def places_of(stack: ExitStack, run: RunContext, table: TableSpec, target: Target) -> list[Place]:
    """The places where attempts may have kept rejected rows of any kind, the one of the spec first."""
    sidecars = () if target.is_log else (QUARANTINE, SIDECAR)
    beside = [Place(target, sidecar.of(table.target.object), sidecar) for sidecar in sidecars]
    if table.dead_letters is None:
        return beside
    own = place_of(stack, run, table, target)
    assert own is not None, "validate has refused dead letters beside a log"
    return [own, *(one for one in beside if (one.target, one.object) != (own.target, own.object))]


@contextmanager
def held(run: RunContext, table: TableSpec, place: Place) -> Iterator[None]:
    """Tables, of this flow and of others, write to a shared place one after the other. The lease of the table's own
    target is held already."""
    if not place.shared:
        yield
        return
    with _WRITING, ExitStack() as stack:
        to, mark = letters_of(table), table.mark_of("dead_letters.to")
        take_lease(stack, run.spec, run.run_id, to, mark, place.target, patience=_PATIENCE)
        yield


def with_kept(
    rejected: DataFrame | None,
    table: TableSpec,
    intent: Intent,
    run: RunContext,
    place: Place,
    spark: SparkSession,
    *,
    continues: bool,
) -> DataFrame | None:
    """What the batch ``rejected``; and where its intent begins the target's content anew, the letters whose messages it
    does not read from the topic again: they have expired, or are of another topic. They become letters of this sequence
    number. ``continues``: later commits of the run read the rest of the topic."""
    kept = _not_read_again(table, intent, run, place, spark, continues)
    return _united([one for one in (rejected, kept) if one is not None])


def _not_read_again(
    table: TableSpec, intent: Intent, run: RunContext, place: Place, spark: SparkSession, continues: bool
) -> DataFrame | None:
    is_anew = documents.letters_read(intent) is not None and intent.interval.letters is None
    lower, upper = intent.interval.lower, intent.interval.upper
    if not is_anew or place.target.is_log or not isinstance(upper, OffsetsPosition):
        return None
    state = run.states(table.id)
    frame = stored_letters(lambda: spark, place, table, run.lineage, state.passed, intent.seq - 1)
    if frame is None:
        return None
    first = lower if isinstance(lower, OffsetsPosition) else OffsetsPosition(())
    identities = [one.get("source_identity", "") for one in (state.definition, intent.definition)]
    if "" in identities or same_identity(*identities):
        ends = {partition: None if continues else end for partition, end in upper.offsets}
        frame = frame.where(~_is_within(first, ends, str(intent.definition["from"]["topic"])))
    return frame.select(*[named(column.name).alias(landed_name(column.name)) for column in LETTER_COLUMNS])


def _is_within(first: OffsetsPosition, ends: Mapping[int, int | None], topic: str) -> SparkColumn:
    from pyspark.sql import functions as f

    found, offset = f.lit(False), named("_offset")
    for partition, end in ends.items():
        of_partition = (named("_partition") == partition) & (offset >= (first.of(partition) or 0))
        found = found | (of_partition if end is None else of_partition & (offset < end))
    return found & (named("_topic") == topic)


def carried(table: TableSpec) -> tuple[Column, ...]:
    """The columns that each row carries until the checks have decided on it: those of its message, or why a row of a
    file cannot be read."""
    if table.keeps_bad_rows:
        return BAD_ROW_COLUMNS
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
    return _united(frames)


def _united(frames: Sequence[DataFrame]) -> DataFrame | None:
    return reduce(lambda one, other: one.unionByName(other), frames) if frames else None


def _example(rejected: DataFrame | None) -> str:
    """The place of one letter, and what is wrong with it."""
    row = rejected.first() if rejected is not None else None
    if row is None:
        return ""
    place = f"message {row[landed_name('_offset')]} of partition {row[landed_name('_partition')]}"
    return f"{place}: {row[REASON_COLUMN]}"


def _stored(rejected: DataFrame, job: WriteJob) -> tuple[DataFrame, tuple[Column, ...]]:
    from pyspark.sql import functions as f

    whole = [named(landed_name(column.name)).alias(column.name) for column in LETTER_COLUMNS]
    own = f.lit(job.record.table).alias(TABLE.name)
    return rejected.select(*whole, *origin(job), own), (*LETTER_COLUMNS, *ORIGIN, TABLE)


SIDECAR = Sidecar(
    DEAD_LETTERS,
    (*ORIGIN, TABLE),
    _stored,
    identity=("_topic", "_partition", "_offset", "_timestamp", "_error", "_reason"),
    goes_with_content=True,
)


def stored_letters(
    session: Callable[[], SparkSession],
    place: Place,
    table: TableSpec,
    lineage: str,
    passed: Sequence[PassedLetters],
    through: int | None = None,
) -> DataFrame | None:
    """The table's letters without those that were ``passed``, of sequence numbers up to ``through`` (None: any); None
    if there is no such place."""
    object, columns = place.object, (*LETTER_COLUMNS, *ORIGIN, TABLE)
    there = place.target.describe([object])[object]
    if there is None:
        return None
    if lacking := {column.name for column in columns} - {column.name for column in there.columns}:
        raise StoppedByPolicy(
            f"{object}, where {table.id} keeps its dead letters, has no {some(sorted(lacking))} any more",
            hint="Restore it; or drop it, and the letters with it",
            mark=table.mark_of("dead_letters"),
        )
    frame = place.target.scan(session(), object, columns)
    frame = frame.where((named(LINEAGE.name) == lineage) & (named(TABLE.name) == table.id))
    for first, last in passed_at(passed, str(letters_of(table))):
        frame = frame.where(~named(NUMBER.name).between(first, last))
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
