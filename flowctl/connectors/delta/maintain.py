"""Finds and runs the maintenance due for one Delta table: compaction, a checkpoint, vacuum, in this order.

Each is safe by itself if any process is killed in between: a compaction is one log entry for some files at a time, a
checkpoint repeats the log, and vacuum deletes what no version within the retention needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from flowctl import text
from flowctl.connectors.delta import commit, compaction, log, maintenance, vacuum
from flowctl.connectors.delta.actions import hidden_rows, is_elsewhere, known_rows
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.maintenance import Condition, Way
from flowctl.connectors.delta.table import OpenTable, open_existing
from flowctl.connectors.lake.stored_files import removal, remove
from flowctl.connectors.lake.table import Unreadable
from flowctl.connectors.maintenance import Maintenance, Task
from flowctl.engine.session import has_jvm
from flowctl.errors import TableError, WriteConflict
from flowctl.model.table_info import ObjectName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPACT, CHECKPOINT = "compact", "checkpoint"


def find_due(table: OpenTable, object: ObjectName, *, with_spark: bool) -> Maintenance:
    """Reads the log and lists the table's folder. ``with_spark``: whether the flow's engine is Spark."""
    choice = maintenance.choose(table.features, table.columns)
    if choice.way is Way.NOBODY:
        return Maintenance(object, left_out=f"{choice.reason}: leave its maintenance to its owner")
    if any(is_elsewhere(file["path"]) for file in table.files):
        return Maintenance(object, left_out="it is a shallow clone, with files of another table")
    condition, left_out = condition_of(table), []
    tasks: list[Task] = []
    if condition.needs_compaction and choice.way is Way.SPARK and not with_spark:
        left_out.append(f"compaction needs Spark ({choice.reason}): set spark.url to local[*]")
    elif condition.needs_compaction:
        tasks.append(_compaction(table, choice.way))
    if tasks or condition.needs_checkpoint:
        since = f"{text.counted(condition.commits, 'commit')} since the last one"
        tasks.append(Task(CHECKPOINT, since, {"commits": condition.commits}))
    retention = vacuum.retention_seconds(table.properties)
    if retention is None:
        left_out.append(f"vacuum does not know the interval {table.properties[vacuum.RETENTION]!r}")
    elif files := vacuum.removable(table, retention):
        tasks.append(removal(files, f"that no version of the last {retention / 86400:g} days needs"))
    return Maintenance(object, tuple(tasks), "; ".join(left_out))


def condition_of(table: OpenTable) -> Condition:
    files = table.files
    return Condition(
        small=maintenance.count_small_files(table.handle.get_add_actions(flatten=True)),
        hidden=sum(map(hidden_rows, files)),
        rows=sum(known_rows(file) or 0 for file in files),
        commits=table.version - log.checkpoint_before(table.location, table.version),
    )


def carry_out(
    location: TableLocation, due: Maintenance, session: Callable[[], SparkSession], before_commit: Callable[[], None]
) -> Iterator[Task]:
    """Runs each task of ``due`` and yields what was done. :class:`TableError` if the table has changed so that a task
    is no longer possible."""
    for task in due.tasks:
        before_commit()
        if task.name == COMPACT:
            yield _compact(location, session, before_commit)
        elif task.name == CHECKPOINT:
            yield Task(CHECKPOINT, commit.write_checkpoint(location, open_existing(location).version) or "written")
        else:
            yield _vacuum(location, before_commit)


def _compaction(table: OpenTable, way: Way) -> Task:
    files = table.files
    chosen = compaction.groups(files)
    after = len(files) - sum(map(len, chosen)) + len(chosen)
    size = sum(files[at]["size"] for group in chosen for at in group)
    hidden = sum(hidden_rows(files[at]) for group in chosen for at in group)
    purged = f", {text.counted(hidden, 'hidden row')} removed" if hidden else ""
    by = f", by {way.value}" if way is Way.SPARK else ""
    told = f"{len(files):,} files become about {after:,}{purged}; {text.size(size)} written again{by}"
    figures = {"files": len(files), "files_after": after, "hidden_rows": hidden, "bytes": size}
    return Task(COMPACT, told, figures)


def _compact(location: TableLocation, session: Callable[[], SparkSession], before_commit: Callable[[], None]) -> Task:
    before = open_existing(location)
    if maintenance.choose(before.features, before.columns).way is Way.SPARK:
        _optimize(location, session())
    else:
        try:
            compaction.compact(location, _check_unchanged, before_commit)
        except Unreadable:
            if not has_jvm(spark := session()):
                raise
            _optimize(location, spark)
    after = open_existing(location)
    hidden = sum(map(hidden_rows, before.files)) - sum(map(hidden_rows, after.files))
    purged = f", {text.counted(hidden, 'hidden row')} removed" if hidden else ""
    told = f"{before.file_count:,} files became {after.file_count:,}{purged}"
    return Task(COMPACT, told, {"files": before.file_count, "files_after": after.file_count, "hidden_rows": hidden})


def _check_unchanged(table: OpenTable) -> None:
    if (choice := maintenance.choose(table.features, table.columns)).way is not Way.FLOWCTL:
        raise TableError(f"{table.location.url} has {choice.reason} by now", hint="Run `flowctl maintain` again")


def _optimize(location: TableLocation, spark: SparkSession) -> None:
    """Runs OPTIMIZE, which also purges hidden rows from files where they are more than a twentieth."""
    try:
        spark.sql(f"OPTIMIZE {location.identifier}").collect()
    except Exception as error:
        if "DELTA_CONCURRENT" in str(error):
            raise WriteConflict(f"another writer committed to {location.url} at the same moment") from error
        raise


def _vacuum(location: TableLocation, before_each: Callable[[], None]) -> Task:
    """Deletes what is removable now, which excludes files of a version restored in the meantime."""
    table = open_existing(location)
    retention = vacuum.retention_seconds(table.properties)
    files = vacuum.removable(table, retention) if retention is not None else []
    remove(location.file_system(), files, before_each)
    return removal(files, "removed")
