"""Applies one batch to a table, in an open transaction that has claimed the sequence number.

The rows are in a staging table of the target's types. Readers see the whole change or nothing, at the commit.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import assert_never

from flowctl.connectors.history import Tables, check_observed, sidecar_columns, versioning
from flowctl.connectors.sql.session import Session
from flowctl.connectors.target import DETECTED_COLUMN, OP_COLUMN, WriteJob
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.commit import RowCounts
from flowctl.model.sidecars import OBSERVED
from flowctl.model.table_info import Column, ObjectName
from flowctl.sql import dialects, scd2
from flowctl.sql.difference import ACTION, SOFT_DELETED, Upsert, apply_statements, difference
from flowctl.sql.observations import observations
from flowctl.sql.versioning import CHANGE_COLUMN, Versioning

#: The rows that a merge changes, as a temporary table.
_DIFFERENCE = "_flowctl_difference"
#: Those of them that already exist in a history, as a temporary table.
_STANDING = "_flowctl_standing"


@dataclass(frozen=True)
class StagedRows:
    """The rows to commit: the table's name parts, its columns in order, and the row count."""

    table: tuple[str, ...]
    columns: tuple[str, ...]
    rows: int


def staged_columns(present: Collection[str], job: WriteJob) -> list[Column]:
    """The columns of a batch that are staged, with the target's types."""
    own = (Column(OP_COLUMN, types.STRING), Column(DETECTED_COLUMN, types.BOOL))
    return [column for column in (*job.columns, *own) if column.name in present]


def observed_name(object: ObjectName) -> ObjectName:
    return ObjectName((*object.parts[:-1], object.parts[-1] + OBSERVED))


def replace_quarantined(
    session: Session, stage: tuple[str, ...], job: WriteJob, since: int, through: int | None
) -> None:
    """Replaces the rows of the job's lineage with sequence numbers from ``since`` to ``through`` (None: or above) by
    the rows of ``stage``."""
    dialect = session.dialect
    names = ", ".join(dialect.quoted(column.name) for column in job.columns)
    table, staged = dialect.table(job.object.parts), dialect.table(stage)
    of_number = f"_lineage = {dialect.marker} AND _seq >= {dialect.marker}"
    upper = "" if through is None else f" AND _seq <= {dialect.marker}"
    values = [job.record.lineage, since, *([] if through is None else [through])]
    if any(column.name == "_table" for column in job.columns):
        upper += f" AND _table = {dialect.marker}"
        values.append(job.record.table)
    session.execute(f"DELETE FROM {table} WHERE {of_number}{upper}", values)
    session.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM {staged}")


def apply_change(session: Session, job: WriteJob, staged: StagedRows) -> RowCounts:
    """Changes the target's content as ``job`` requires."""
    if job.mode == "scd2" and (job.replace or job.create):  # there may be observations of a table that is gone
        return _begin_history(session, job, staged)
    if job.replaces_content:
        return _replace(session, job, staged)
    match job.mode:
        case "append" | "truncate":
            return RowCounts(read=staged.rows, inserted=_insert(session, job, staged), updated=0, deleted=0)
        case "merge":
            return _merge(session, job, staged)
        case "scd2":
            return _versions(session, job, staged)
        case _:
            assert_never(job.mode)


def _replace(session: Session, job: WriteJob, staged: StagedRows) -> RowCounts:
    deleted = _delete_all(session, job, job.object)
    return RowCounts(read=staged.rows, inserted=_insert(session, job, staged), updated=0, deleted=deleted)


def _begin_history(session: Session, job: WriteJob, staged: StagedRows) -> RowCounts:
    """Replaces the existing content and its observations by a new history."""
    _delete_all(session, job, observed_name(job.object))
    deleted = _delete_all(session, job, job.object)
    return replace(_versions(session, job, staged), deleted=deleted)


def _delete_all(session: Session, job: WriteJob, object: ObjectName) -> int:
    """Uses DELETE, never TRUNCATE, which is not MVCC-safe: readers would see an empty table."""
    table = session.dialect.table(object.parts)
    deleted = session.execute(f"DELETE FROM {table}")
    ((left,),) = session.fetch(f"SELECT count(*) FROM {table}")
    _all_done(replace(job, object=object), deleted, deleted + left)
    return deleted


def _insert(session: Session, job: WriteJob, staged: StagedRows) -> int:
    """Inserts all staged rows except deletions: the first load of a merge may hold ``D`` for keys that do not exist
    yet. If changes have an order, deleted rows keep it."""
    dialect = session.dialect
    names = [dialect.quoted(column.name) for column in job.columns if column.name in staged.columns]
    values, alive = list(names), f" WHERE {OP_COLUMN} = 'U'" if OP_COLUMN in staged.columns else ""
    if alive and job.is_ordered:
        alive, moment = "", dialects.moment(job.at, dialect.name)
        names.append(dialect.quoted(SOFT_DELETED))
        values.append(f"CASE WHEN {OP_COLUMN} = 'D' THEN {moment} END")
    target, stage = dialect.table(job.object.parts), dialect.table(staged.table)
    inserted = session.execute(
        f"INSERT INTO {target} ({', '.join(names)}) SELECT {', '.join(values)} FROM {stage}{alive}"
    )
    if inserted < staged.rows:
        _all_done(job, inserted, session.fetch(f"SELECT count(*) FROM {stage}{alive}")[0][0])
    return inserted


def _all_done(job: WriteJob, rows: int, wanted: int) -> None:
    """Raises :class:`TableError`, before the commit, if a statement wrote fewer rows than it should: a trigger, a rule
    or a policy of the target left some out, and the commit would claim that they exist."""
    if rows < wanted:
        raise TableError(
            f"{job.object} accepted {rows:,} of {wanted:,} rows: one of its triggers or rules leaves some out",
            hint="Let it keep every row that is inserted, updated or deleted, or write to another table",
        )


def _refuse_equal_keys(session: Session, job: WriteJob, rows: int, wanted: int) -> None:
    """Raises :class:`TableError` if the difference has keys more than once: the target compares them otherwise than
    flowctl, and so the rows of one were counted for another."""
    by_key = (
        f"SELECT 1 AS _flowctl_one FROM {_DIFFERENCE} GROUP BY {session.dialect.named(job.key)} HAVING count(*) > 1"
    )
    if session.fetch(f"SELECT count(*) FROM ({by_key}) AS _flowctl_repeated")[0][0]:
        raise TableError(
            f"{job.object} accepted {rows:,} of {wanted:,} rows: it takes keys for equal that are not, or has several"
            " rows of one key",
            hint=f"Make its {' and '.join(job.key)} tell all values apart, or choose another `key`",
        )


def _merge(session: Session, job: WriteJob, staged: StagedRows) -> RowCounts:
    dialect = session.dialect.name
    change = Upsert(
        target=job.object.parts,
        batch=staged.table,
        columns=tuple(column.name for column in job.columns),
        batch_columns=staged.columns,
        key=job.key,
        compared=tuple(name for name in job.compared if name in staged.columns),
        operation=OP_COLUMN,
        deleted_at=job.at if job.soft_deletes else None,
        is_ordered=job.is_ordered,
        as_text=session.compared_as_text(job.object.parts),
        collations=session.collations(job.object.parts),
    )
    _make_temporary(session, _DIFFERENCE, difference(change, dialect))
    counted = dict(session.fetch(f"SELECT {ACTION}, count(*) FROM {_DIFFERENCE} GROUP BY {ACTION}"))
    if counted:
        for statement, actions in apply_statements(change, (_DIFFERENCE,), dialect).items():
            # A key that exists more than once is written more often.
            done, wanted = session.execute(statement), sum(counted.get(action, 0) for action in actions)
            if done < wanted:
                _refuse_equal_keys(session, job, done, wanted)
            _all_done(job, done, wanted)
    _drop_temporary(session, _DIFFERENCE)
    return RowCounts(
        read=staged.rows,
        inserted=counted.get("insert", 0),
        updated=counted.get("update", 0),
        deleted=counted.get("delete", 0),
        ignored=staged.rows - sum(counted.values()) if job.is_ordered else None,
    )


def _versions(session: Session, job: WriteJob, staged: StagedRows) -> RowCounts:
    """Writes observations and versions in one transaction, so the sidecar never holds more than the table reflects."""
    dialect, observed = session.dialect.name, observed_name(job.object).parts
    sidecar, target = session.dialect.table(observed), session.dialect.table(job.object.parts)
    names = ", ".join(session.dialect.quoted(column.name) for column in sidecar_columns(job, staged.columns))
    ((arrival, *hashed),) = session.fetch(scd2.next_arrival(observed, dialect))
    ((there,),) = session.fetch(f"SELECT CASE WHEN EXISTS (SELECT 1 FROM {target}) THEN 1 ELSE 0 END")
    tables = Tables(target=job.object.parts, batch=staged.table, observed=observed)
    change = versioning(job, tables, staged.columns, arrival, dialect, first=arrival == 1 and not there)
    change = replace(scd2.after(change, hashed), collations=session.collations(job.object.parts))
    observed_rows = session.execute(f"INSERT INTO {sidecar} ({names}) {observations(change, dialect)}")
    _make_temporary(session, _DIFFERENCE, scd2.difference(change, dialect))
    counts = _apply_versions(session, job, change)
    _drop_temporary(session, _DIFFERENCE)
    return replace(counts, read=staged.rows, ignored=staged.rows - observed_rows if job.is_ordered else None)


def _apply_versions(session: Session, job: WriteJob, change: Versioning) -> RowCounts:
    """Uses two statements if all columns are flowctl's own. Rows with foreign columns are not deleted and rewritten:
    the foreign values would be lost, and a number that the database assigned to a row would change."""
    dialect, by_change = session.dialect.name, CHANGE_COLUMN
    counted = dict(session.fetch(f"SELECT {by_change}, count(*) FROM {_DIFFERENCE} GROUP BY {by_change}"))
    deleted, put = counted.get("delete", 0), counted.get("put", 0)
    if deleted:
        check_observed(job, change, (_DIFFERENCE,), dialect, session.fetch)
    if set(session.written_columns(job.object.parts)) <= {column.name for column in job.columns}:
        removed = session.execute(scd2.removal(change, (_DIFFERENCE,), dialect))
        written = session.execute(scd2.addition(change, (_DIFFERENCE,), dialect))
        _all_done(job, removed, deleted)
        _all_done(job, written, put)
        updated = removed - deleted
        return RowCounts(inserted=written - updated, updated=updated, deleted=deleted)
    _make_temporary(session, _STANDING, scd2.standing(change, (_DIFFERENCE,), dialect))
    statements = scd2.applied_in_place(change, (_DIFFERENCE,), (_STANDING,), dialect)
    updated, removed, inserted = map(session.execute, statements)
    _all_done(job, removed, deleted)
    _all_done(job, updated + inserted, put)
    _drop_temporary(session, _STANDING)
    return RowCounts(inserted=inserted, updated=updated, deleted=removed)


def _make_temporary(session: Session, name: str, select: str) -> None:
    session.execute(f"CREATE TEMPORARY TABLE {name} AS {select}")


def _drop_temporary(session: Session, name: str) -> None:
    session.execute(session.dialect.drop_temporary.format(table=name))
