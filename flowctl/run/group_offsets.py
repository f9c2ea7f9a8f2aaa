"""Offsets in a consumer group: only so that the usual monitors see how far a table has come. flowctl reads none."""

from __future__ import annotations

from contextlib import ExitStack

from flowctl.errors import FlowctlError
from flowctl.model.position import OffsetsPosition, Position
from flowctl.observe.relations import relation
from flowctl.run.attempt import RunContext
from flowctl.run.opening import open_connector
from flowctl.spec.spec import TableSpec, TopicSource


def show_position(run: RunContext, table: TableSpec, position: Position | None) -> tuple[str, ...]:
    """Called once ``position`` is recorded. Returns a warning if it could not be shown: the rows are committed."""
    source = table.source
    if not isinstance(source, TopicSource) or not source.group or not isinstance(position, OffsetsPosition):
        return ()
    try:
        with ExitStack() as stack:
            opened = open_connector(stack, run, source.connection).source
            assert opened is not None, "the table was just read"
            opened.show_position(relation(table), source.group, position)
    except FlowctlError as error:
        return (f"group {source.group} does not show its offsets: {error.message}",)
    return ()
