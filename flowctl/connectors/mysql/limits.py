"""Columns of somebody else's table whose types change values without an error, even in strict mode: fractions of
seconds are rounded, and trailing blanks are cut off."""

from __future__ import annotations

import re

from flowctl.connectors.mysql.columns import quoted
from flowctl.connectors.mysql.session import MysqlSession
from flowctl.connectors.sql.change import StagedRows
from flowctl.connectors.target import WriteJob
from flowctl.errors import TableError
from flowctl.model.table_info import Column
from flowctl.sql import dialects

_TIMES = re.compile(r"(datetime|timestamp|time)(?:\(([0-6])\))?", re.IGNORECASE)
_TEXTS = re.compile(r"(char|varchar)\((\d+)\)", re.IGNORECASE)


def is_limited(column: Column) -> bool:
    return _test(column) is not None


def check(session: MysqlSession, job: WriteJob, staged: StagedRows) -> None:
    """Raises :class:`TableError` for a staged value that the job's table would change."""
    there = session.describe([job.object])[job.object]
    tests = {one: _test(one) for one in there.columns if one.name in staged.columns} if there else {}
    for column, test in tests.items():
        if test is None:
            continue
        found = session.fetch(f"SELECT 1 FROM {dialects.table(staged.table, 'mysql')} WHERE NOT ({test}) LIMIT 1")
        if found:
            raise TableError(
                f"{job.object}: column {column.name} ({column.native}) would change a value",
                hint="Widen the column in the target, or round the value in the source with columns.add",
            )


def _test(column: Column) -> str | None:
    """Whether a value stays as it is; None if every value does, or is refused by the server."""
    name = quoted(column.name)
    if found := _TIMES.fullmatch(column.native.partition(" comment ")[0]):
        digits = int(found[2] or 0)
        kind = "TIME" if found[1].lower() == "time" else "DATETIME"
        return None if digits == 6 else f"{name} IS NULL OR {name} = CAST({name} AS {kind}({digits}))"
    if found := _TEXTS.fullmatch(column.native):
        if found[1].lower() == "char":
            return f"{name} IS NULL OR {name} NOT LIKE '% '"
        return f"{name} IS NULL OR CHAR_LENGTH({name}) <= {found[2]}"
    return None
