"""Converts a job to one batch of history, as :mod:`flowctl.sql.scd2` takes it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from flowctl.connectors.target import DETECTED_COLUMN, OP_COLUMN, WriteJob
from flowctl.errors import TableError
from flowctl.model.sidecars import OBSERVED
from flowctl.model.table_info import Column
from flowctl.sql import dialects, scd2
from flowctl.sql.dialects import Dialect
from flowctl.sql.difference import SOURCE_ORDER
from flowctl.sql.versioning import KeptColumn, Versioning, kept_columns, observed_columns


@dataclass(frozen=True)
class Tables:
    """The tables of the versions, the batch and the observations, as name parts."""

    target: tuple[str, ...]
    batch: tuple[str, ...]
    observed: tuple[str, ...]


def sidecar_columns(job: WriteJob, present: Collection[str]) -> tuple[Column, ...]:
    """The columns that a sidecar needs for a batch with the columns ``present``. A sidecar created by an older version
    may lack some."""
    return observed_columns(job.columns, job.key, _kept(job, present))


def versioning(
    job: WriteJob, tables: Tables, present: Sequence[str], arrival: int, dialect: Dialect, *, first: bool = False
) -> Versioning:
    """The batch for statements in ``dialect``. ``present`` are its columns; those that the source lacks are not part of
    its observations."""
    read, kept = _read(job, present), _kept(job, present)
    return Versioning(
        target=tables.target,
        batch=tables.batch,
        observed=tables.observed,
        columns=tuple(column.name for column in job.columns),
        batch_columns=read,
        key=job.key,
        arrival=arrival,
        operation=OP_COLUMN,
        detected=DETECTED_COLUMN,
        now=dialects.translatable_moment(job.at, "postgres", dialect) if job.at and not job.is_dated else None,
        first=first,
        kept=kept,
        order=next((one for one in kept if job.is_ordered and one.name == SOURCE_ORDER), None),
        compared=tuple(name for name in job.compared if name in read),
        new=tuple(name for name in job.new_columns if name in job.compared and name in read),
    )


def check_observed(
    job: WriteJob,
    change: Versioning,
    differences: tuple[str, ...],
    dialect: Dialect,
    fetch: Callable[[str], Sequence[Sequence[Any]]],
) -> None:
    """Raises :class:`TableError` if ``differences``, a table that holds :func:`flowctl.sql.scd2.difference`, would
    delete versions that no observation started."""
    if not fetch(scd2.unobserved(change, differences, dialect))[0][0]:
        return
    name, sidecar = job.object, f"{job.object.parts[-1]}{OBSERVED}"
    raise TableError(
        f"{name} has versions that {sidecar} does not have, and this batch would delete them: {sidecar} is older than "
        "the table, or something other than flowctl has written to the table",
        hint=f"Restore {sidecar} to the same moment as the table, or begin a new history under another `to`; "
        "versions that flowctl did not write can be deleted",
    )


def _kept(job: WriteJob, present: Collection[str]) -> tuple[KeptColumn, ...]:
    return kept_columns(job.columns, job.key, job.compared, _read(job, present))


def _read(job: WriteJob, present: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in present if name not in job.absent)
