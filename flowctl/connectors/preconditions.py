"""Preconditions for committing a sequence number, the same for every target.

An intent without a target id means *the table that this sequence number creates*: another table under that name is
foreign. A sequence number is committed on top of exactly the commit at which its interval begins: a target that was
restored in the meantime has lost the rows in between, and only the commit that state recorded at the beginning shows
it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from flowctl.errors import AlteredSincePlan, StateConflict, StoppedByPolicy, TableError
from flowctl.model.commit import Commit
from flowctl.model.table_info import Column, same_identity
from flowctl.text import some

if TYPE_CHECKING:
    from flowctl.connectors.target import WriteJob


def require_unaltered(place: object, name: str, before: Column | None, now: Column | None) -> None:
    """Raises :class:`AlteredSincePlan` unless the type of a column of ``place`` is, as the system writes it, what it
    was when it was described (``before`` None: any); ``now`` None: the column no longer exists."""
    if now is None:
        raise AlteredSincePlan(f"{place} has no column {name} any more", hint="Plan again")
    if before is not None and before.native != now.native:
        raise AlteredSincePlan(
            f"column {name} of {place} was altered since the plan was made: "
            f"it is {now.native or 'of no type'}, it was {before.native or 'of no type'}",
            hint="Plan again",
        )


def require_no_new_columns(
    place: object, known: Collection[str], now: Iterable[str], takes: Callable[[str], bool]
) -> None:
    """Raises :class:`AlteredSincePlan` if ``place`` has a column ``now`` that was not ``known`` when it was described,
    and that the table ``takes``: of the rows that are read, it would never get the values."""
    if new := [name for name in now if name not in known and takes(name)]:
        what = f"{place} has columns that came since the plan was made: {some(new)}"
        raise AlteredSincePlan(what, hint="Plan again")


def foreign_target(record: Commit, place: object) -> StoppedByPolicy:
    """The error for ``place``, a foreign table created after the intent of ``record`` was written."""
    return StoppedByPolicy(
        f"{place} exists and was not made by this flow: it did not exist when sequence number {record.seq} was begun",
        hint="Plan again: the plan names the commands that take it over or replace it",
    )


def check_base(place: object, newest: str, base: str | None) -> None:
    """Raises :class:`StateConflict` if the target's newest commit (:attr:`flowctl.model.commit.Commit.name`, empty:
    none) is not ``base``; None allows any."""
    if base is None or newest == base:
        return
    found, expected = _number(newest), _number(base)
    has = f"another commit of {found}" if found == expected else found
    raise StateConflict(
        f"{place} was restored, or written by others, since this sequence number was begun: it has {has}, but the batch"
        f" continues after {expected}",
        hint="Plan again: the plan shows how to continue",
    )


def already_committed(newest: Commit, record: Commit) -> Commit:
    """Returns ``newest`` if it is ``record``'s own commit; else raises :class:`StateConflict`. A void carries the id of
    the intent that it abandoned, and matches only another void."""
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
    """``record`` with the id of the existing target; raises :class:`StateConflict` if the intent was for another."""
    if record.target_id and not same_identity(record.target_id, target_id):
        raise StateConflict(
            f"{record.table}: the target was replaced since this sequence number was begun: its id is {target_id}, it "
            f"was {record.target_id}",
            hint="Plan again: the plan names the commands that take it over or replace it",
        )
    return replace(record, target_id=target_id)


def verify_total(job: WriteJob, rows: int) -> None:
    """Raises :class:`TableError` if the number of staged rows differs from the runner's count."""
    if job.rows is not None and job.rows != rows:
        raise TableError(
            f"{rows:,} rows were staged, {job.rows:,} were expected",
            hint="Run again: the source may have changed while it was read",
        )


def _number(name: str) -> str:
    return f"sequence number {name.partition('/')[0]}" if name else "no commit"
