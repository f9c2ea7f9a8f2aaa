"""Objects of a target's owner that hinder a write: those that use a column that is to change, and unique constraints.

flowctl creates no constraints itself. A constraint that is checked row by row refuses rows that exchange values: the
first of them conflicts with the second, which has not changed yet. Deleting and inserting the rows instead would delete
rows that refer to them, so the owner of the constraint has to decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flowctl.connectors.target import WriteJob
from flowctl.errors import TableError
from flowctl.model.table_info import TableInfo

#: For a database that does not report which object uses a column.
DROP_WHAT_USES_IT = "Drop what uses the column, run, and recreate it"
#: For rows that a foreign key of somebody else refers to.
REFERRED_TO = (
    "Delete the rows that refer to them, drop the foreign key, or, in a merge, mark them with `deletes: {action: soft}`"
)


def joined(names: Sequence[str]) -> str:
    """Lists all names: each object has to be dropped."""
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def drop_them(names: Sequence[str]) -> str:
    return f"Drop {joined(names)}, run, and recreate {'it' if len(names) == 1 else 'them'}"


@dataclass(frozen=True)
class Constraint:
    """``name`` includes the columns, for people. ``removal`` is the statement that drops the constraint, ``deferral``
    the one that defers its check to the end of a statement; empty if there is none."""

    name: str
    removal: str = ""
    deferral: str = ""
    is_deferrable: bool = False


def coarse_key(info: TableInfo, column: str, why: str, repair: str) -> tuple[str, str]:
    """See :meth:`flowctl.connectors.target.TargetRules.refuse_key`; ``why`` is the column's type or collation,
    ``repair`` a next step."""
    what = f'{info.object} takes different texts of the key column "{column}" for equal: its {why}'
    return what, f"{repair}, or leave {column} out of `key`"


def refused_row(job: WriteJob, constraint: Constraint) -> TableError:
    """The error for a row that ``constraint`` refused, with next steps that work."""
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
