"""What a target's owner has put there and hinders a write: what uses a column that is to change; unique constraints.

flowctl makes no constraints itself. Rows that exchange values meet one that compares row by row: the first of them is
refused though the second would make room for it. Deleting and inserting the rows instead would delete what refers to
them, so the owner of the constraint has to decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flowctl.connectors.target import WriteJob
from flowctl.errors import TableError

#: Where the database does not say what it is that uses a column.
DROP_WHAT_USES_IT = "Drop what uses the column, run, and make it again"


def joined(names: Sequence[str]) -> str:
    """None is left out: each has to go."""
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def drop_them(names: Sequence[str]) -> str:
    return f"Drop {joined(names)}, run, and make {'it' if len(names) == 1 else 'them'} again"


@dataclass(frozen=True)
class Constraint:
    """``name`` with what it is over, for people. ``removal`` is the statement that drops it, ``deferral`` the one by
    which it compares rows at the end of a statement; empty where there is none."""

    name: str
    removal: str = ""
    deferral: str = ""
    is_deferrable: bool = False


def refused_row(job: WriteJob, constraint: Constraint) -> TableError:
    """The error for a row that ``constraint`` has refused, with next steps that work."""
    object, table = job.object, job.record.table
    message = f"{object} has a unique constraint, {constraint.name}, which has refused a row"
    removal = f"drop it with `{constraint.removal}`" if constraint.removal else "write to a table without it"
    if job.mode == "scd2":
        return TableError(f"{message}: a history has several rows of one key", hint=removal[:1].upper() + removal[1:])
    if job.replace or job.mode == "truncate":
        return TableError(f"{message}: the source has its value in two rows", hint=f"Correct the source, or {removal}")
    refresh = f"Replace the content with --full-refresh {table}"
    if job.mode == "append" or constraint.is_deferrable:
        return TableError(
            f"{message}: another row of the table has its value",
            hint=f"{refresh} if the source does not have it twice; else correct the source, or {removal}",
        )
    deferral = f", or run `{constraint.deferral}`" if constraint.deferral else ""
    return TableError(
        f"{message}: another row of the table has its value, perhaps only until it is changed itself",
        hint=f"{refresh}{deferral}, if rows exchange values, which this constraint compares one by one; "
        f"if the source has one value twice, correct it, or {removal}",
    )
