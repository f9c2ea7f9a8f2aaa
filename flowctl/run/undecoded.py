"""A batch that is passed on as its source sends it: nothing looks at its values, and no engine starts."""

from __future__ import annotations

from contextlib import ExitStack

from flowctl import crashpoints
from flowctl.connectors.source import DirectSource
from flowctl.connectors.target import Target
from flowctl.connectors.undecoded import SentColumn, UndecodedRows
from flowctl.errors import TableError
from flowctl.model.projection import Columns
from flowctl.model.step import Load, Recover
from flowctl.observe.relations import relation
from flowctl.run import checks, events
from flowctl.run.attempt import Attempt, RunContext
from flowctl.run.opening import open_connector
from flowctl.run.work import PreparedBatch, Work, check_stop, write_job
from flowctl.spec.spec import SqlSource


def prepare_undecoded(
    stack: ExitStack, attempt: Attempt, run: RunContext, step: Load | Recover, target: Target
) -> tuple[Work, PreparedBatch[UndecodedRows]]:
    """Opens the source, and describes the batch; the rows are read when the target stages them."""
    table, interval, columns = run.tables[step.id], attempt.intent.interval, step.columns
    assert isinstance(columns, Columns), "undecoded rows have known columns"
    assert not isinstance(table.source, SqlSource), "undecoded rows come from a connection"
    run.listener(events.PhaseEntered(table.id, "reading"))
    check_stop(run)
    source = open_connector(stack, run, table.source.connection).source
    if not isinstance(source, DirectSource):
        raise TableError(f"{table.source} cannot be read undecoded", mark=table.mark_of("from"))
    info = run.sources[table.id]
    snapshot = stack.enter_context(source.undecoded(relation(table), info, table.read))
    crashpoints.reached("during_stage", table.id)
    if step.write_full and table.guard.allow_empty is False and snapshot.is_empty(interval):
        raise checks.empty_source(table)
    by_name = {column.name: column for column in info.columns}
    sent = [SentColumn(by_name[part.source], part.column.name) for part in columns.projection if part.source]
    job = write_job(run, step, columns, attempt.intent, interval.upper)
    work = Work(run, attempt, step, columns, (), table, target)
    return work, PreparedBatch(snapshot.rows(sent, interval), job)
