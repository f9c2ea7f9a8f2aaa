"""Values that a column of somebody else's table would change without an error."""

from __future__ import annotations

from flowctl.connectors.sql.change import StagedRows
from flowctl.connectors.sql.session import Session
from flowctl.connectors.target import WriteJob
from flowctl.errors import TableError
from flowctl.model.table_info import Column


def require_kept(session: Session, job: WriteJob, staged: StagedRows, column: Column, test: str, hint: str) -> None:
    """Raises :class:`TableError` unless ``test``, an expression, is true of every staged value of ``column`` that is
    not null."""
    name, table = session.dialect.quoted(column.name), session.dialect.table(staged.table)
    if session.fetch(f"SELECT 1 FROM {table} WHERE {name} IS NOT NULL AND NOT ({test}) LIMIT 1"):
        raise changed_value(job, column, hint)


def changed_value(job: WriteJob, column: Column, hint: str, why: str = "") -> TableError:
    return TableError(f"{job.object}: column {column.name} ({column.native}) would change a value{why}", hint=hint)
