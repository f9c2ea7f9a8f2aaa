"""Plans over one table whose source, record and target differ."""

from __future__ import annotations

from dataclasses import replace

from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.resolve.resolve import PlanOptions
from tests.plan.worlds import (
    NEW,
    OLD,
    ORDERS,
    changes,
    committed,
    high,
    observed,
    recorded,
    source,
    step,
    table,
    target,
)  # fmt: skip

VAT = Column("vat", types.INT32)


def differing(
    now=ORDERS, *, there=None, before=ORDERS, left=None, request=None, accepted=False, recorded_as=None, **keys
):
    """The step when the source has ``now`` and had ``before``, the target has ``there`` and was left with ``left``; the
    definition was ``accepted``, or is recorded as it was with other keys."""
    spec = table(**keys)
    there = target(there or before)
    state = recorded(table(**{**keys, **(recorded_as or {})}), OLD, schema=tuple(before),
                     target_columns=target(left or before).columns)  # fmt: skip
    if accepted:
        state = replace(state, definition={})
    seen = observed(high(NEW), source(now), there, committed(position=OLD))
    return step(spec, seen, state, request or PlanOptions())


def told(made):
    return [(change.column, change.change, change.action) for change in changes(made)]


def columns(made):
    return {column.name: types.short(column.type) for column in made.columns.target}
