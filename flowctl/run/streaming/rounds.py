"""A round: the commits that take the tables of a stream from one batch to another, with the columns of these batches.

All tables share the end of the round. A table without changes in it gets no sequence number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flowctl.changes.segment import OF_TABLES, Op
from flowctl.changes.shape import Shape
from flowctl.connectors.source import HighWatermark
from flowctl.connectors.target import Target
from flowctl.errors import StoppedByPolicy
from flowctl.model.interval import Interval
from flowctl.model.position import LandedPosition, NoPosition, order_of, order_of_moment
from flowctl.model.step import Load, Stopped
from flowctl.model.table_info import Column, RowEstimate
from flowctl.observe.metadata import is_metadata, with_metadata
from flowctl.observe.relations import relation
from flowctl.observe.world import Observed
from flowctl.plan import checks
from flowctl.plan.case import Case
from flowctl.plan.finding import Stop
from flowctl.plan.landed_columns import columns_in_turn, columns_of_shapes
from flowctl.plan.reading import columns_of, planned_table, stopped
from flowctl.plan.refusals import refuse_columns
from flowctl.plan.stream_keys import source_key
from flowctl.plan.stream_stops import stop_if_appended_again
from flowctl.plan.unsent import stop_if_unsent, unsent_in_shapes, what
from flowctl.run.attempt import TableResult
from flowctl.run.opening import open_target
from flowctl.spec.spec import ReportedDeletes, TableSpec
from flowctl.storage.landing import LandedBatch, LandedTable
from flowctl.text import some

if TYPE_CHECKING:
    from flowctl.run.streaming.stream_run import StreamRun


@dataclass(frozen=True)
class Round:
    """``stopped`` are tables that cannot take their changes. ``again`` are the ids of those that are read in full again
    instead."""

    steps: tuple[Load, ...]
    stopped: tuple[TableResult, ...] = ()
    again: tuple[str, ...] = ()


def plan_round(on: StreamRun, tables: Sequence[TableSpec], batches: Sequence[LandedBatch]) -> Round:
    """``tables`` have a position; ``batches`` follow the stream's."""
    from contextlib import ExitStack

    steps: list[Load] = []
    stops: list[TableResult] = []
    again: list[str] = []
    with ExitStack() as stack:
        targets: dict[str, Target] = {}
        for table in tables:
            landed = _landed(on, table, batches)
            if not landed:
                continue
            name = table.target.connection
            if name not in targets:
                targets[name] = open_target(stack, on.run, table)
            made = _load(on, table, landed, batches, targets[name])
            if made is None:
                again.append(table.id)
            elif isinstance(made, Stopped):
                error = StoppedByPolicy(made.reason, hint=made.hint, mark=made.table.mark)
                stops.append(TableResult(made, error=error))
            else:
                steps.append(made)
    return Round(tuple(steps), tuple(stops), tuple(again))


def _landed(on: StreamRun, table: TableSpec, batches: Sequence[LandedBatch]) -> list[LandedTable]:
    """The changes that it takes: not those from before its snapshot, whose columns may be others, too."""
    position, object = on.writer.document.table(table.id).position, relation(table).object
    assert isinstance(position, LandedPosition) and object is not None
    first, found = order_of_moment(position.since), []
    for batch in batches:
        landed = batch.table(object) if batch.batch > position.batch else None
        if landed is not None and order_of(batch.lower) < first:
            landed = landed.only(on.log.changes_from(batch, [landed], first))
        if landed is not None:
            found.append(landed)
    return found


def _load(
    on: StreamRun,
    table: TableSpec,
    landed: Sequence[LandedTable],
    batches: Sequence[LandedBatch],
    target: Target,
) -> Load | Stopped | None:
    """None: the table is read in full again instead."""
    last = batches[-1]
    state = on.writer.document.table(table.id)
    position = state.position
    assert isinstance(position, LandedPosition)
    case = case_of_round(on, table, landed, target)
    of_table = _of_whole_table(on, table, batches, position)
    if Op.REPLACED in of_table:
        reason = f"{table.source} was renamed, or its rows were replaced, and the log does not have them"
        return stopped(case, Stop(reason, f"{case.state_command('resnapshot')} reads it again", "from"))
    if Op.UNKEYED in of_table and _may_have_primary_key(case):
        reason = (
            f"the primary key of {table.source} was dropped: until it was added again, several rows may have had it"
        )
        return stopped(case, Stop(reason, f"{case.state_command('resnapshot')} reads it again", "key"))
    if unknown := _unknown_key(on, case, batches, position):
        reason = f"rows of {table.source} changed while its replica identity was one without {some(unknown)}"
        return stopped(case, Stop(reason, f"{case.state_command('resnapshot')} reads it again", "key"))
    is_truncated = on.stream.on_truncate != "ignore" and Op.TRUNCATE in of_table
    if is_truncated and on.stream.on_truncate == "fail":
        reason = f"{table.source} was truncated (on_truncate: fail)"
        may_remove = not target.is_log or table.mode == "append"
        hint = "Set on_truncate: apply to remove its rows too, or ignore" if may_remove else "Set on_truncate: ignore"
        return stopped(case, Stop(reason, hint, "from"))
    columns = columns_of(case)
    unsent = _unsent(on, case, landed)
    if unsent and table.on_schema_change.unsent == "resnapshot":
        appended = stop_if_appended_again(case)
        return stopped(case, appended) if appended else None
    if stop := stop_if_unsent(case, unsent) or refuse_columns(case, columns):
        return stopped(case, stop, columns)
    is_hard = isinstance(table.deletes, ReportedDeletes) and table.deletes.action == "hard"
    return Load(
        table=planned_table(case),
        reason=f"batches {position.batch + 1} to {last.batch}",
        seq=state.next_seq,
        interval=Interval(position, LandedPosition(last.batch, str(last.upper), position.since)),
        columns=columns,
        rows=RowEstimate(sum(one.changes for one in landed), "count"),
        checks=checks.checks(case, check_deletes=False),
        write_full=is_truncated and is_hard and table.mode == "merge",
        notes=(what(unsent),) if unsent else (),
    )


def _unsent(on: StreamRun, case: Case, landed: Sequence[LandedTable]) -> list[str]:
    object, shapes = relation(case.table).object, columns_in_turn(_shapes(on, landed), case.state.schema)
    assert object is not None
    return unsent_in_shapes(case, shapes, lambda: on.source.describe_stream(on.stream, [object]).tables[object])


def _shapes(on: StreamRun, landed: Sequence[LandedTable]) -> list[Shape]:
    """In the order of the source."""
    return [on.log.shape(digest) for one in landed for digest in one.shapes.values()]


def _of_whole_table(
    on: StreamRun, table: TableSpec, batches: Sequence[LandedBatch], position: LandedPosition
) -> set[int]:
    """The operations on the whole table among the changes that it takes: not those from before its snapshot."""
    import pyarrow.compute as pc

    object, first = relation(table).object, order_of_moment(position.since)
    found: set[int] = set()
    for batch in batches:
        landed = batch.table(object) if object is not None and batch.batch > position.batch else None
        if landed is None or not landed.truncated:
            continue
        for rows in on.log.rows(batch, [int(number) for number in landed.shapes]):
            taken = rows.filter(pc.greater_equal(rows["lsn"], first))
            found |= set(OF_TABLES) & {*pc.unique(taken["op"]).to_pylist()}
    return found


def _unknown_key(on: StreamRun, case: Case, batches: Sequence[LandedBatch], position: LandedPosition) -> list[str]:
    """The columns of the key that some updates or deletions, of those it takes, do not have of the row as it was."""
    import pyarrow as pa
    import pyarrow.compute as pc

    object, first = relation(case.table).object, order_of_moment(position.since)
    assert object is not None
    changing = pa.array([Op.UPDATE, Op.DELETE], pa.int8())
    for batch in batches if case.table.mode != "append" else ():
        landed = batch.table(object) if batch.batch > position.batch else None
        for number, digest in landed.shapes.items() if landed is not None else ():
            shape = on.log.shape(digest)
            unknown = [
                name for name in source_key(case.table) if shape.at(name) is not None and name not in shape.old_columns
            ]
            for rows in on.log.rows(batch, [int(number)]) if unknown else ():
                if pc.any(pc.and_(pc.greater_equal(rows["lsn"], first), pc.is_in(rows["op"], changing))).as_py():
                    return unknown
    return []


def _may_have_primary_key(case: Case) -> bool:
    """Whether changes find their rows by the source's primary key. While it has none, that may have been any."""
    source = case.observed.source
    assert source is not None
    primary = {*source.primary_key}
    return case.table.mode != "append" and (not primary or primary == {*source_key(case.table)})


def case_of_round(on: StreamRun, table: TableSpec, landed: Sequence[LandedTable], target: Target) -> Case:
    """The table as these batches describe it, and its target as it is now."""
    now, object = on.run.sources[table.id], table.target.object
    state = replace(on.writer.document.table(table.id), intent=None)
    own = replace(now, columns=_own(now.columns))
    source = replace(own, columns=columns_of_shapes(_shapes(on, landed), own, state.schema))
    source = with_metadata(table, source)
    there = target.describe([object])[object]
    observed = Observed(source=source, target=there, watermark=HighWatermark(NoPosition(), now.rows))
    return Case(
        table=table,
        observed=observed,
        state=state,
        ddl=target,
        spec_path=on.run.spec.argument,
        spark_url=on.run.spec.spark.url,
        spark_conf=on.run.spec.spark.conf,
    )


def _own(columns: Sequence[Column]) -> tuple[Column, ...]:
    return tuple(column for column in columns if not is_metadata(column))
