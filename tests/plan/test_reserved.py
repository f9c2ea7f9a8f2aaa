"""Names and tables that flowctl needs itself: a source's column or somebody's table in their place stops the plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flowctl.connectors.target import DETECTED_COLUMN, OP_COLUMN
from flowctl.errors import SpecError
from flowctl.expect.not_null import NotNull
from flowctl.model import reserved, types
from flowctl.model.table_info import Column, ObjectName, RowEstimate, TableInfo
from flowctl.plan.document import action_of
from flowctl.plan.projection import taken_name
from flowctl.resolve.names import own_columns
from flowctl.resolve.resolve import PlanOptions, resolve
from flowctl.run.quarantine import OWN_COLUMNS
from flowctl.spec.spec import ColumnRules, DetectMissingKeys, SqlSource, TargetRef
from flowctl.sql.versioning import observed_columns
from tests.plan.worlds import (
    EVERYTHING,
    MARK,
    NEW,
    OLD,
    ORDERS,
    REFRESH,
    committed,
    flow,
    high,
    observed,
    recorded,
    source,
    step,
    table,
    target,
    unchanged_target,
)

QUARANTINE = {"expect": (NotNull(column="id", on_fail="quarantine", mark=MARK),)}
HISTORY = {"mode": "scd2", "key": ("id",), "valid_from": "updated_at"}


def test_the_names_are_those_that_are_used() -> None:
    assert {*own_columns(table(**HISTORY))} == reserved.HISTORY
    assert {*own_columns(table(deletes=DetectMissingKeys()))} == reserved.SOFT_DELETES
    assert {column.name for column in OWN_COLUMNS} == reserved.QUARANTINE
    columns = (Column("id", types.INT64), Column("valid_from", types.TIMESTAMP))
    sidecar = {column.name for column in observed_columns(columns, ("id",), ())} - {"id"}
    assert sidecar | {"_lineage", "_seq", "_try"} == reserved.OBSERVED
    assert all(name.startswith(reserved.PREFIX) for name in (OP_COLUMN, DETECTED_COLUMN))


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("valid_to", HISTORY),
        ("Row_Hash", HISTORY),
        ("_deleted_at", {"deletes": DetectMissingKeys()}),
        *((name, QUARANTINE) for name in ("_seq", "_run_id", "_reason", "_lineage")),
        ("_seq", {**HISTORY, **QUARANTINE}),
        ("_flowctl_op", {}),
    ],
)
def test_a_column_with_a_name_of_ours_stops_the_table(name: str, keys: dict[str, Any]) -> None:
    spec = table(**keys)
    seen = observed(high(NEW), source=source((*ORDERS, Column(name, types.STRING))))
    made = step(spec, seen)
    assert (action_of(made), name in made.reason, f"rename: {{{name}: " in made.hint) == ("stop", True, True)
    renamed = ColumnRules(rename={name: "theirs"})
    assert action_of(step(replace(spec, columns=renamed), seen)) == "create"
    excluded = ColumnRules(exclude=(name,))
    assert action_of(step(replace(spec, columns=excluded), seen)) == "create"


def test_the_names_are_free_where_nothing_has_them() -> None:
    taken = tuple(Column(name, types.STRING) for name in ("_seq", "_reason", "valid_to", "row_hash", "_deleted_at"))
    assert action_of(step(table(), observed(high(NEW), source=source((*ORDERS, *taken))))) == "create"


def test_added_columns_and_those_of_sql_are_looked_at_too() -> None:
    spec = table(**QUARANTINE, columns=ColumnRules(add={"_seq": "1"}))
    with pytest.raises(SpecError, match=r'columns\.add creates a column "_seq", a name reserved for flowctl'):
        resolve(flow(spec), {})
    sql = replace(table(**HISTORY), source=SqlSource("SELECT 1 AS is_current", ()))
    assert taken_name(sql, (Column("is_current", types.BOOL),)) is not None


def beside(suffix: str, *names: str) -> dict[str, TableInfo]:
    columns = tuple(Column(name, types.STRING) for name in names)
    return {suffix: TableInfo(ObjectName((f"orders{suffix}",)), columns, "other")}


@pytest.mark.parametrize(
    ("sidecars", "keys", "action"),
    [
        (beside("__observed", "id"), HISTORY, "stop"),
        (beside("__observed", "id", *sorted(reserved.OBSERVED)), HISTORY, "stop"),
        (beside("__quarantine", "id"), QUARANTINE, "stop"),
        (beside("__quarantine", "id", *sorted(reserved.FIRST_QUARANTINE)), QUARANTINE, "create"),
    ],
)
def test_a_table_in_the_place_of_a_sidecar_is_not_taken_over(
    sidecars: dict[str, TableInfo], keys: dict[str, Any], action: str
) -> None:
    made = step(table(**keys), replace(observed(high(NEW)), sidecars=sidecars))
    assert action_of(made) == action
    if action == "stop":
        assert "was not made by this flow" in made.reason and "another `to`" in made.hint


def test_a_sidecar_of_an_earlier_history_is_kept() -> None:
    spec = table(**HISTORY)
    columns = (*ORDERS, *own_columns(spec).values())
    seen = observed(high(NEW), target=target(columns))
    state = recorded(spec, OLD, definition={}, target_columns=columns)
    sidecars = beside("__observed", "id", *sorted(reserved.FIRST_OBSERVED))
    reason = step(spec, replace(seen, sidecars=sidecars), state).reason
    assert "__observed" not in reason
    assert "__observed" in step(spec, replace(seen, sidecars=beside("__observed", "id")), state).reason


@pytest.mark.parametrize(
    ("sidecars", "rows", "request_", "stops"),
    [
        ({"__observed": None}, 1000, EVERYTHING, True),
        ({"__observed": None}, 1000, REFRESH, True),
        ({"__observed": None}, 0, EVERYTHING, False),
        (beside("__observed", "id", *sorted(reserved.OBSERVED)), 1000, EVERYTHING, False),
    ],
)
def test_a_history_without_its_observations_stops(
    sidecars: dict[str, TableInfo | None], rows: int, request_: PlanOptions, stops: bool
) -> None:
    """Its versions would be deleted, key by key."""
    spec = table(**HISTORY)
    columns = (*ORDERS, *own_columns(spec).values())
    there = replace(target(columns), rows=RowEstimate(rows, "stats"))
    seen = replace(observed(high(NEW), target=there, commit=committed(position=OLD)), sidecars=sidecars)
    for state in (recorded(spec, OLD, target_columns=columns), recorded(spec, None, definition={})):
        made = step(spec, seen, state, request_)
        assert ("lake:orders__observed" in made.reason, action_of(made) == "stop") == (stops, stops), made.reason
    moved = replace(spec, target=TargetRef("lake", ("renamed",)))
    made = step(moved, seen, recorded(spec, OLD, target_columns=columns), request_)
    assert ("Rename lake:orders__observed to lake:renamed__observed" in made.hint) == stops


@pytest.mark.parametrize(
    ("first", "added", "key", "continues"),
    [
        (("id",), (), ("id",), True),
        (("id",), (), ("amount",), False),
        (("id",), (), ("id", "amount"), False),
        (("id", "amount"), (), ("id",), False),
        (("id",), ("note",), ("id",), True),  # somebody else's column
        (("id",), ("amount",), ("amount",), True),  # Delta keeps the columns of an earlier key
    ],
)
def test_a_history_of_other_keys_is_not_continued_whatever_state_has_forgotten(
    first: tuple[str, ...], added: tuple[str, ...], key: tuple[str, ...], continues: bool
) -> None:
    """After reset or adopt only the sidecar tells the key."""
    spec = table(**{**HISTORY, "key": key})
    columns = (*ORDERS, *own_columns(spec).values())
    seen = observed(high(NEW), target=target(columns), commit=committed(position=OLD))
    seen = replace(seen, sidecars=beside("__observed", *first, "_event_at", *sorted(reserved.OBSERVED), *added))
    for state in (recorded(spec, None, definition={}), recorded(spec, OLD, target_columns=columns)):
        made = step(spec, seen, state)
        assert action_of(made) == ("change" if continues else "stop"), made.reason
        assert continues or made.reason == f"lake:orders holds no history of {', '.join(key)}"
        assert step(spec, seen, state, REFRESH).write_full == (not continues)


def test_a_table_that_becomes_a_history_has_no_observations_yet() -> None:
    spec = table(**HISTORY)
    seen = replace(observed(high(NEW), **unchanged_target()), sidecars={"__observed": None})
    assert action_of(step(spec, seen, recorded(table(), OLD), REFRESH)) != "stop"
