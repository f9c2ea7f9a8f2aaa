"""Values that change with a table's columns, without a change of the row: no stream sends them.

A new column with a default has it in every row; a column that was renamed keeps its values under a name that the target
does not have; a column whose type changed may have been rounded, cut or computed anew.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from flowctl.model import types
from flowctl.model.table_info import Column, TableInfo
from flowctl.plan.case import Case
from flowctl.plan.commands import state_command
from flowctl.plan.finding import Stop
from flowctl.plan.projection import read_columns
from flowctl.text import some

_LENGTH = re.compile(r"\((\d+)\)$")


def unsent_columns(case: Case, columns: Sequence[Column]) -> list[str]:
    """Those of ``columns``, the source's as a batch or the catalog has them, that may have values in the target's rows
    which no change names. Empty if the table was never read."""
    before = {column.name: column for column in case.state.schema}
    now = {column.name: column for column in read_columns(case.table, columns)}
    if not before or case.observed.source is None:
        return []
    is_renamed = any(name not in now for name in before)
    return [
        name
        for name, column in now.items()
        if (name not in before and (is_renamed or _has_value(name, case.observed.source)))
        or (name in before and not _keeps_values(before[name], column))
    ]


def stop_if_unsent(case: Case, names: Sequence[str]) -> Stop | None:
    if not names or case.table.on_schema_change.unsent != "fail":
        return None
    again = state_command("resnapshot", case.spec_path, case.table.id)
    reason = f"{case.table.source}: {what(names)} (on_schema_change.unsent: fail)"
    return Stop(reason, f"Read the table again: {again}; unsent: resnapshot does it by itself", "on_schema_change")


def what(names: Sequence[str]) -> str:
    return f"rows have values in {some(names)} that no change has sent"


def _has_value(name: str, now: TableInfo) -> bool:
    """Whether rows that exist got a value with the new column; so may those of a column that is gone again."""
    column = now.column(name)
    return column is None or not column.nullable or name in now.extra.get("filled", {})


def _keeps_values(old: Column, new: Column) -> bool:
    if old.native == new.native and old.type == new.type:
        return True
    if old.type != new.type:
        return types.is_wider(new.type, old.type)
    if old.type != types.STRING or old.as_text or new.as_text:
        return False
    lengths = _LENGTH.search(old.native), _LENGTH.search(new.native)
    return lengths[1] is None or (lengths[0] is not None and int(lengths[0][1]) <= int(lengths[1][1]))
