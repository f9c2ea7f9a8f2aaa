"""Tables with no column, with more than a target can have, or with a name that it would cut, stop in the plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.connectors import registry
from flowctl.model import types
from flowctl.model.mode import Mode
from flowctl.model.step import Step
from flowctl.model.table_info import Column, ObjectName
from flowctl.model.types import DataType
from flowctl.plan.document import action_of
from flowctl.spec.spec import ColumnRules, Connection, Cursor, Layout, TargetRef
from tests.plan import worlds
from tests.plan.worlds import (
    ID,
    NEW,
    OLD,
    ORDERS,
    UPDATED_AT,
    committed,
    high,
    observed,
    recorded,
    source,
    step,
    table,
    target,
)


def of_columns(count: int, **keys: object) -> Step:
    columns = (ID, UPDATED_AT, *(Column(f"c{at}", types.INT32) for at in range(count - 2)))[:count]
    return step(table(**keys), observed(high(NEW), source=source(columns)))


@pytest.mark.parametrize("mode", ["append", "truncate", "merge", "scd2"])
def test_no_columns(mode: Mode) -> None:
    cursor = {"cursor": None} if mode in ("merge", "append") else {}
    key = {"key": ("id",)} if mode in ("merge", "scd2") else {}
    made = of_columns(0, mode=mode, **cursor, **key)
    assert (action_of(made), made.reason) == ("stop", "pg:public.orders has no columns")


def test_no_column_is_left() -> None:
    made = of_columns(2, mode="truncate", columns=ColumnRules(exclude=("id", "updated_at")))
    assert (action_of(made), made.reason) == ("stop", "`columns` leaves no column of pg:public.orders")


class Narrow(worlds.LakeDdl):
    def most_columns(self, mode: Mode) -> int:
        return {"append": 10, "truncate": 10, "merge": 9, "scd2": 9}[mode]


@pytest.mark.parametrize(("mode", "most"), [("append", 10), ("truncate", 10), ("merge", 9), ("scd2", 5)])
def test_as_many_columns_as_the_target_can_have(mode: Mode, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A history has four of its own."""
    monkeypatch.setattr(worlds, "LAKE", Narrow())
    keys = {"key": ("id",)} if mode in ("merge", "scd2") else {}
    keys |= {"cursor": Cursor("updated_at")} if mode == "append" else {}
    assert action_of(of_columns(most, mode=mode, **keys)) == "create"
    made = of_columns(most + 1, mode=mode, **keys)
    assert action_of(made) == "stop"
    assert made.reason.startswith(f"lake:orders would have {10 if mode in ('merge', 'scd2') else 11} columns")


def test_a_name_that_the_target_would_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that of a sidecar."""

    def refuse_name(_connection: Connection, object: ObjectName, _base_dir: str) -> str | None:
        return "names are cut after 16 bytes" if len(object.parts[-1]) > 16 else None

    monkeypatch.setattr(registry, "refuse_name", refuse_name)

    def made(name: str, mode: Mode) -> Step:
        keys = {"key": ("id",)} if mode == "scd2" else {}
        return step(table(mode=mode, target=TargetRef("lake", (name,)), **keys), observed(high(NEW)))

    assert action_of(made("n" * 16, "truncate")) == "create"
    assert made("n" * 17, "truncate").reason.endswith(
        f'"{"n" * 17}" is not a valid name there: names are cut after 16 bytes'
    )
    assert action_of(made("n" * 6, "scd2")) == "create"
    told = f"its observations would be kept in {'n' * 7}__observed: names are cut after 16 bytes"
    assert made("n" * 7, "scd2").reason.endswith(told)


@pytest.mark.parametrize(
    ("kind", "stops"),
    [(types.BINARY, True), (types.DOUBLE, True), (types.FLOAT, True), (types.STRING, False), (types.DATE, False)],
)
def test_a_column_whose_values_a_partition_cannot_keep_stops(kind: DataType, stops: bool) -> None:
    """Of a table to be made, and of one that is there."""
    columns = (*ORDERS, Column("part", kind))
    new = table(layout=Layout(partition_by=("part",)))
    made = step(new, observed(high(NEW), source(columns)))
    assert (action_of(made) == "stop", "partitioned by part" in made.reason) == (stops, stops)
    there = replace(target(columns), extra={**target().extra, "partition_by": ["part"]})
    state = recorded(table(), OLD, schema=columns, target_columns=there.columns)
    made = step(table(), observed(high(NEW), source(columns), there, committed(position=OLD)), state)
    assert (action_of(made) == "stop", "partitioned by part" in made.reason) == (stops, stops), made.reason


def test_a_table_with_nothing_but_partitions_stops() -> None:
    names = tuple(column.name for column in ORDERS)
    made = step(table(layout=Layout(partition_by=names)), observed(high(NEW), source(ORDERS)))
    assert (action_of(made), "names every column of the table" in made.reason) == ("stop", True), made.reason
    made = step(table(layout=Layout(partition_by=names[1:])), observed(high(NEW), source(ORDERS)))
    assert action_of(made) == "create"


def test_a_key_column_that_probably_has_another_name_keeps_its_rows_by_a_rename() -> None:
    def hint(*columns: Column) -> str:
        made = step(
            table(), observed(high(NEW), source((*columns, *ORDERS[1:])), target(), committed()), recorded(table(), OLD)
        )
        assert made.reason == 'the key column "id" is not among the target\'s columns'
        return made.hint

    ident, other = Column("ident", types.INT64), Column("other", types.INT64)
    renamed = 'If "ident" is its new name, write columns: {rename: {ident: id}} and continue with `flowctl state set '
    assert hint(ident).startswith(renamed) and "--accept-definition`" in hint(ident)
    for unclear in ((), (ident, other), (Column("ident", types.STRING),)):
        assert hint(*unclear) == "Correct `key`"
