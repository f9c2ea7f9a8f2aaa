"""What went wrong inside Spark while it read from PostgreSQL, by name: the JDBC driver names no column."""

from __future__ import annotations

import re

from flowctl.connectors.postgres.client import NO_SUCH_SNAPSHOT, Client
from flowctl.connectors.postgres.columns import quoted
from flowctl.connectors.postgres.conditions import COMPARISONS
from flowctl.connectors.postgres.snapshot import SNAPSHOT_LOST, HeldSnapshot
from flowctl.connectors.refusal import refusal, refused
from flowctl.connectors.source import Relation
from flowctl.errors import FlowctlError, TableError, TransientError
from flowctl.model import types
from flowctl.model.table_info import Column, TableInfo
from flowctl.model.types import Decimal


def error_of_read(
    text: str, client: Client, held: HeldSnapshot, relation: Relation, info: TableInfo
) -> FlowctlError | None:
    """What an error of Spark's means, from its text; None where nothing more is known here."""
    if "canceling statement due to lock timeout" in text:
        return TransientError(
            f"somebody waits to change {info.object} (TRUNCATE, ALTER TABLE), and the read cannot pass them",
            hint="Wait until they are done: it starts again then",
        )
    if SNAPSHOT_LOST in text or NO_SUCH_SNAPSHOT in text:
        return TransientError(
            f"the snapshot of {info.object} was lost with its connection", hint="Wait: it starts again"
        )
    if own := refused(text):
        return own
    if any(sign in text for sign in _SIGNS_OF_INFINITY) and (found := _not_finite(client, held, relation, info)):
        return found
    if re.search(_SIGNS_OF_A_BAD_CAST, text):
        return TableError(
            f"a value of {info.object} does not fit the type that `columns.types` gives its column",
            hint="Fix the value, or give another type",
        )
    return None


_SIGNS_OF_INFINITY = ("Bad value for type BigDecimal", "cannot subtract infinite dates", "bigint out of range")
_SIGNS_OF_A_BAD_CAST = r"ERROR: (invalid input syntax for type|numeric field overflow|[^\n]{0,80} out of range)"


def _not_finite(client: Client, held: HeldSnapshot, relation: Relation, info: TableInfo) -> FlowctlError | None:
    """Looks for the column, in the same snapshot: only now, so that reading stays quick."""
    suspects = [(column, test) for column in info.columns if (test := _is_not_finite(column))]
    if not suspects:
        return None
    with client.connect() as connection:
        held.join(connection)
        tests = ", ".join(f"bool_or({test})" for _, test in suspects)
        row = connection.execute(f"SELECT {tests} FROM {COMPARISONS.from_clause(relation)}").fetchone()
    found = [column for (column, _), hit in zip(suspects, row or (), strict=True) if hit]
    return refused(refusal(found[0].name, found[0].native, found[0].type)) if found else None


def _is_not_finite(column: Column) -> str:
    name = quoted(column.name)
    match column.type:
        case Decimal():
            return f"{name} = 'NaN'"
        case types.DATE | types.TIMESTAMP | types.TIMESTAMP_NTZ:
            return f"NOT isfinite({name})"
        case _:
            return ""
