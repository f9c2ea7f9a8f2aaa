"""The transaction that commits one number into an SQL database: the record, the DDL and the change, all or nothing.

The record goes in first: ``_flowctl_commits`` has the primary key (lineage, table, seq), so of two writers of one
number the second waits for the first and then finds it taken. That is also what makes a void final: once its row is
there, nothing else can land under that number.

The connector brings a :class:`Transaction` that is already open, and the staged rows in a table of the same types.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, assert_never

from flowctl import delays
from flowctl.connectors import refusal
from flowctl.connectors.history import Tables, kept_columns, lost_observations, versioning
from flowctl.connectors.standing import check_base
from flowctl.connectors.target import DETECTED_COLUMN, OP_COLUMN, WriteJob
from flowctl.errors import FlowctlError, StateConflict, TableError
from flowctl.model import types
from flowctl.model.commit import Commit, RowCounts, commit_from_record
from flowctl.model.table_info import Column, ObjectName, same_identity
from flowctl.sql import dialects, scd2
from flowctl.sql.dialects import Dialect
from flowctl.sql.difference import Upsert, apply_statements, difference

COMMITS = "_flowctl_commits"
#: Records kept for each table; older numbers are refused by the newest one alone.
KEPT_COMMITS = 100
#: The rows that a merge changes, as a temporary table.
_DIFFERENCE = "_flowctl_difference"
#: Of a history, those of them that are there already.
_STANDING = "_flowctl_standing"

COMMIT_COLUMNS = ("lineage", "table", "seq", "intent_id", "target_id", "position", "void", "at")


class Transaction(Protocol):
    """An open transaction. ``execute`` returns the number of rows it touched; parameters stand for ``marker``."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def marker(self) -> str: ...

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> int: ...

    def fetch(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...

    def column_names(self, table: tuple[str, ...]) -> list[str]: ...


@dataclass(frozen=True)
class Staged:
    """Where the rows to commit are: name parts, their columns in order, and how many there must be."""

    table: tuple[str, ...]
    columns: tuple[str, ...]
    rows: int


def commits_statement(table: tuple[str, ...], dialect: Dialect) -> str:
    """The DDL of the commits table; text and integers only, so that it is the same everywhere."""
    kinds = {"seq": "BIGINT NOT NULL", "void": "BOOLEAN NOT NULL", "position": "TEXT"}
    columns = ", ".join(
        f"{dialects.quoted(name, dialect)} {kinds.get(name, 'TEXT NOT NULL')}" for name in COMMIT_COLUMNS
    )
    key = ", ".join(dialects.quoted(name, dialect) for name in ("lineage", "table", "seq"))
    return f"CREATE TABLE IF NOT EXISTS {dialects.table(table, dialect)} ({columns}, PRIMARY KEY ({key}))"


def claim(tx: Transaction, commits: tuple[str, ...], record: Commit, at: str, base: str | None = None) -> Commit | None:
    """Takes ``record``'s number in this transaction and returns None; or returns the commit that has it already under
    our intent id. :class:`StateConflict` when another intent has it, a higher number is there, or the newest one is not
    ``base``."""
    newest = newest_commit(tx, commits, record.lineage, record.table)
    if newest is not None and newest.seq >= record.seq:
        return already_committed(newest, record)
    check_base(record.table, newest.name if newest else "", base)
    delays.pause()
    name, markers = dialects.table(commits, tx.dialect), ", ".join([tx.marker] * len(COMMIT_COLUMNS))
    taken = tx.execute(
        f"INSERT INTO {name} ({_names(tx)}) VALUES ({markers}) ON CONFLICT DO NOTHING",
        [
            record.lineage,
            record.table,
            record.seq,
            record.intent_id,
            record.target_id,
            _position(record),
            record.void,
            at,
        ],
    )
    delays.pause()
    if taken == 0:  # another writer of this number has committed while we waited for it
        raced = newest_commit(tx, commits, record.lineage, record.table)
        return already_committed(raced, record) if raced else None
    tx.execute(
        f'DELETE FROM {name} WHERE lineage = {tx.marker} AND "table" = {tx.marker} AND seq <= {tx.marker}',
        [record.lineage, record.table, record.seq - KEPT_COMMITS],
    )
    return None


def already_committed(newest: Commit, record: Commit) -> Commit:
    """``newest`` when it is ``record``'s own commit; else :class:`StateConflict` saying which number stands. A void
    carries the id of the intent that it gave up, and answers only to another void."""
    ours = (newest.seq, newest.intent_id) == (record.seq, record.intent_id)
    if ours and newest.void and not record.void:
        raise StateConflict(
            f"number {record.seq} of {record.table} was given up", hint="Plan again: the next number is free"
        )
    if ours:
        return newest
    raise StateConflict(
        f"{record.table}: the target has number {newest.seq} of another try, this is number {record.seq}",
        hint="See `flowctl state adopt`: somebody else writes this table, or state is older than the target",
    )


def identified(record: Commit, target_id: str) -> Commit:
    """``record`` with the id of the target that is there; :class:`StateConflict` when the intent was for another."""
    if record.target_id and not same_identity(record.target_id, target_id):
        raise StateConflict(
            f"{record.table}: the target is now {target_id}, the intent was for {record.target_id}",
            hint="Plan again, or `flowctl state adopt`: it was replaced or restored since",
        )
    return replace(record, target_id=target_id)


def name_target(tx: Transaction, commits: tuple[str, ...], record: Commit) -> None:
    """Stores the target's id with the number just claimed: it is only known once the table is there."""
    tx.execute(
        f"UPDATE {dialects.table(commits, tx.dialect)} SET target_id = {tx.marker}"
        f' WHERE lineage = {tx.marker} AND "table" = {tx.marker} AND seq = {tx.marker}',
        [record.target_id, record.lineage, record.table, record.seq],
    )


def newest_commit(tx: Transaction, commits: tuple[str, ...], lineage: str, table: str) -> Commit | None:
    delays.pause()
    found = tx.fetch(
        f"SELECT {_names(tx)} FROM {dialects.table(commits, tx.dialect)}"
        f' WHERE lineage = {tx.marker} AND "table" = {tx.marker} ORDER BY seq DESC LIMIT 1',
        [lineage, table],
    )
    return commit_of(found[0]) if found else None


def commit_of(row: Sequence[Any]) -> Commit:
    """The commit that a row of :data:`COMMIT_COLUMNS` holds."""
    document = dict(zip(COMMIT_COLUMNS, row, strict=True))
    position = json.loads(document["position"]) if document["position"] else None
    return commit_from_record({**document, "position": position, "void": bool(document["void"])})


def staged_columns(present: Collection[str], job: WriteJob) -> list[Column]:
    """Those of a batch's columns that are staged, with the target's types."""
    own = (Column(OP_COLUMN, types.STRING), Column(DETECTED_COLUMN, types.BOOL))
    return [column for column in (*job.columns, *own) if column.name in present]


def observed_columns(job: WriteJob, present: Collection[str]) -> Sequence[Column]:
    """Columns of the sidecar that a history of a batch with the columns ``present`` needs; none for other modes. One
    that an older version made has not all of them."""
    if job.mode != "scd2":
        return ()
    return scd2.observed_columns(job.columns, job.key, kept_columns(job, present))


def observed_name(object: ObjectName) -> ObjectName:
    return ObjectName((*object.parts[:-1], object.parts[-1] + scd2.OBSERVED_SUFFIX))


def replace_quarantined(tx: Transaction, stage: tuple[str, ...], job: WriteJob, since: int) -> None:
    """Puts the rows of ``stage`` in the place of those of the job's lineage with number ``since`` or above."""
    names = ", ".join(dialects.quoted(column.name, tx.dialect) for column in job.columns)
    table, staged = (dialects.table(parts, tx.dialect) for parts in (job.object.parts, stage))
    of_number = f"_lineage = {tx.marker} AND _seq >= {tx.marker}"
    tx.execute(f"DELETE FROM {table} WHERE {of_number}", [job.record.lineage, since])
    tx.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM {staged}")


def apply_change(tx: Transaction, job: WriteJob, staged: Staged) -> RowCounts:
    """Makes the target's content what ``job`` says; readers see all of it or nothing, at the commit."""
    if job.mode == "scd2" and job.replace:
        return _begin_history(tx, job, staged)
    if job.replace or job.mode == "truncate":
        return _replace(tx, job, staged)
    match job.mode:
        case "append":
            return RowCounts(read=staged.rows, inserted=_insert(tx, job, staged), updated=0, deleted=0)
        case "merge":
            return _merge(tx, job, staged)
        case "scd2":
            return _versions(tx, job, staged)
        case _:
            assert_never(job.mode)


def _replace(tx: Transaction, job: WriteJob, staged: Staged) -> RowCounts:
    """DELETE, never TRUNCATE: that is not MVCC-safe, readers would see an empty table."""
    deleted = tx.execute(f"DELETE FROM {dialects.table(job.object.parts, tx.dialect)}")
    return RowCounts(read=staged.rows, inserted=_insert(tx, job, staged), updated=0, deleted=deleted)


def _begin_history(tx: Transaction, job: WriteJob, staged: Staged) -> RowCounts:
    """A history in place of what is there; the connector has emptied the sidecar."""
    deleted = tx.execute(f"DELETE FROM {dialects.table(job.object.parts, tx.dialect)}")
    counts = _versions(tx, job, staged)
    return replace(counts, deleted=deleted)


def _insert(tx: Transaction, job: WriteJob, staged: Staged) -> int:
    """All staged rows that are rows: a first load of a merge may hold ``D`` for keys that are not there yet."""
    written = [dialects.quoted(column.name, tx.dialect) for column in job.columns if column.name in staged.columns]
    names = ", ".join(written)
    alive = f" WHERE {OP_COLUMN} = 'U'" if OP_COLUMN in staged.columns else ""
    target, stage = (dialects.table(parts, tx.dialect) for parts in (job.object.parts, staged.table))
    inserted = tx.execute(f"INSERT INTO {target} ({names}) SELECT {names} FROM {stage}{alive}")
    if inserted < staged.rows:
        _all_done(job, inserted, tx.fetch(f"SELECT count(*) FROM {stage}{alive}")[0][0])
    return inserted


def _all_done(job: WriteJob, rows: int, wanted: int) -> None:
    """:class:`TableError`, before the commit, when a statement has written fewer rows than it should: a trigger, a rule
    or a policy of the target's has left some out, and the number would say that they are there."""
    if rows < wanted:
        raise TableError(
            f"{job.object} has taken {rows:,} of {wanted:,} rows: a trigger or rule of its own leaves some out",
            hint="Let it keep every row that is inserted, updated or deleted, or write to another table",
        )


def _merge(tx: Transaction, job: WriteJob, staged: Staged) -> RowCounts:
    change = Upsert(
        target=job.object.parts,
        batch=staged.table,
        columns=tuple(column.name for column in job.columns),
        batch_columns=staged.columns,
        key=job.key,
        compared=tuple(name for name in job.compared if name in staged.columns),
        operation=OP_COLUMN,
        deleted_at=job.at if job.soft_deletes else None,
    )
    tx.execute(f"CREATE TEMPORARY TABLE {_DIFFERENCE} AS {difference(change, tx.dialect)}")
    counted = dict(tx.fetch(f"SELECT _action, count(*) FROM {_DIFFERENCE} GROUP BY _action"))
    if counted:
        for statement, actions in apply_statements(change, (_DIFFERENCE,), tx.dialect).items():
            # A key that is there more than once is written more often.
            _all_done(job, tx.execute(statement), sum(counted.get(action, 0) for action in actions))
    tx.execute(f"DROP TABLE {_DIFFERENCE}")
    return RowCounts(
        read=staged.rows,
        inserted=counted.get("insert", 0),
        updated=counted.get("update", 0),
        deleted=counted.get("delete", 0),
    )


def _versions(tx: Transaction, job: WriteJob, staged: Staged) -> RowCounts:
    """Observations and versions in one transaction, so the sidecar never knows more than the table."""
    observed = observed_name(job.object).parts
    names = ", ".join(dialects.quoted(column.name, tx.dialect) for column in observed_columns(job, staged.columns))
    ((arrival, *hashed),) = tx.fetch(scd2.next_arrival(observed, tx.dialect))
    is_first = arrival == 1 and not tx.fetch(f"SELECT 1 FROM {dialects.table(job.object.parts, tx.dialect)} LIMIT 1")
    tables = Tables(target=job.object.parts, batch=staged.table, observed=observed)
    change = versioning(job, tables, staged.columns, arrival, tx.dialect, first=is_first)
    change = scd2.after(change, hashed)
    added = scd2.observations(change, tx.dialect)
    tx.execute(f"INSERT INTO {dialects.table(observed, tx.dialect)} ({names}) {added}")
    tx.execute(f"CREATE TEMPORARY TABLE {_DIFFERENCE} AS {scd2.difference(change, tx.dialect)}")
    counts = _apply_versions(tx, job, change)
    tx.execute(f"DROP TABLE {_DIFFERENCE}")
    return replace(counts, read=staged.rows)


def _apply_versions(tx: Transaction, job: WriteJob, change: scd2.Versioning) -> RowCounts:
    """In two statements where all columns are flowctl's own. Rows with columns of others are not deleted to be written
    anew: their values would be lost, and a number that the database gave a row would change."""
    counted = dict(tx.fetch(f"SELECT {scd2.CHANGE_COLUMN}, count(*) FROM {_DIFFERENCE} GROUP BY {scd2.CHANGE_COLUMN}"))
    deleted, put = counted.get("delete", 0), counted.get("put", 0)
    if deleted and tx.fetch(scd2.unobserved(change, (_DIFFERENCE,), tx.dialect))[0][0]:
        raise lost_observations(job)
    if set(tx.column_names(job.object.parts)) <= {column.name for column in job.columns}:
        removed = tx.execute(scd2.removal(change, (_DIFFERENCE,), tx.dialect))
        written = tx.execute(scd2.addition(change, (_DIFFERENCE,), tx.dialect))
        _all_done(job, removed, deleted)
        _all_done(job, written, put)
        updated = removed - deleted
        return RowCounts(inserted=written - updated, updated=updated, deleted=deleted)
    tx.execute(f"CREATE TEMPORARY TABLE {_STANDING} AS {scd2.standing(change, (_DIFFERENCE,), tx.dialect)}")
    statements = scd2.applied_in_place(change, (_DIFFERENCE,), (_STANDING,), tx.dialect)
    updated, removed, inserted = map(tx.execute, statements)
    _all_done(job, removed, deleted)
    _all_done(job, updated + inserted, put)
    tx.execute(f"DROP TABLE {_STANDING}")
    return RowCounts(inserted=inserted, updated=updated, deleted=removed)


@contextmanager
def named_refusals() -> Iterator[None]:
    """A value that an executor refused comes out of Spark as an error that names its column."""
    try:
        yield
    except FlowctlError:
        raise
    except Exception as error:
        told = refusal.refused(str(error))
        if told is None:
            raise
        raise told from error


def verify_total(job: WriteJob, rows: int) -> None:
    """:class:`TableError` when another number of rows was staged than the runner counted."""
    if job.rows is not None and job.rows != rows:
        raise TableError(
            f"{rows:,} rows were staged, {job.rows:,} were expected",
            hint="Run again: the source may have changed while it was read",
        )


def _names(tx: Transaction) -> str:
    return ", ".join(dialects.quoted(name, tx.dialect) for name in COMMIT_COLUMNS)


def _position(record: Commit) -> str | None:
    position = record.record()["position"]
    return json.dumps(position) if position is not None else None
