"""The commits that a run makes for one step of its plan: one, or several of a long topic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from flowctl.model.interval import Interval
from flowctl.model.position import OffsetsPosition
from flowctl.model.slices import slices
from flowctl.model.step import Load, Runnable
from flowctl.model.table_info import RowEstimate
from flowctl.plan.recovery import left_behind


def commits(step: Runnable) -> Iterator[Runnable]:
    """In order, each with a sequence number of its own. The first creates or changes the target as the plan says; those
    that follow find it like that."""
    if not isinstance(step, Load) or step.batch_rows is None:
        yield step
        return
    last = step.seq + step.commits - 1
    for seq, interval in enumerate(slices(step.interval, step.batch_rows), step.seq):
        part = replace(step, seq=seq, interval=interval, rows=_rows(step, interval), continues=seq < last)
        yield part if seq == step.seq else _following(part)


def _following(part: Load) -> Load:
    return replace(
        part,
        table=replace(part.table, seen=replace(part.table.seen, exists=True)),
        columns=left_behind(part.columns, is_replaced=False),
        write_full=False,
        refresh=False,
        destructive="",
        follows=part.seq - 1,
    )


def _rows(step: Load, interval: Interval) -> RowEstimate:
    lower, upper = interval.lower, interval.upper
    if step.rows.value is None or not isinstance(lower, OffsetsPosition) or not isinstance(upper, OffsetsPosition):
        return step.rows
    return RowEstimate(upper.messages_since(lower), step.rows.method)
