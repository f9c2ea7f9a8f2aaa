"""What a change costs readers of a Delta table stands in the plan, before it is made."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.connectors.delta import CAPABILITIES
from flowctl.connectors.delta.target import DeltaTarget
from flowctl.model import types
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column
from flowctl.plan.render import View, render
from flowctl.text import plain
from tests.plan.worlds import (
    AMOUNT,
    ID,
    NEW,
    OLD,
    ORDERS,
    UPDATED_AT,
    committed,
    high,
    observed,
    plan,
    recorded,
    source,
    table,
    target,
    world,
)

WIDER = (ID, replace(AMOUNT, type=types.Decimal(14, 2)), UPDATED_AT)
LOCAL = (*ORDERS, Column("at", types.TIMESTAMP_NTZ))
AS_USUAL = {"partition_by": (), "files": 1, "ruled_columns": [], "is_widened": False}
OLDEST = {"features": [], "properties": {}, "reader_version": 1, "writer_version": 2}
NEWEST = {
    "features": ["deletionVectors", "timestampNtz", "typeWidening"],
    "properties": {"delta.enableTypeWidening": "true"},
    "reader_version": 3,
    "writer_version": 7,
}


def shown(now: tuple[Column, ...], extra: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[str]]:
    """The plan as people read it, and its statements."""
    spec = table()
    seen = observed(high(NEW), source(now), replace(target(), extra={**AS_USUAL, **extra}), committed(position=OLD))
    made = world({"orders": seen}, {"orders": recorded(spec, OLD)})
    monkeypatch.setitem(made.ddl, "lake", DeltaTarget("/lake", {}, None, CAPABILITIES))
    planned = plan(made, spec)
    return " ".join(plain(render(planned, View())).split()), [
        statement.partition(" ALTER ")[0] for statement in planned.steps[0].columns.statements
    ]


def test_the_first_widening(monkeypatch: pytest.MonkeyPatch) -> None:
    text, statements = shown(WIDER, OLDEST, monkeypatch)
    assert "~ typeWidening" in text and "raises the reader version from 1 to 3: deltalake, Polars and" in text
    assert "SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')" in statements[0] and len(statements) == 2
    text, statements = shown(WIDER, {**NEWEST, "features": ["deletionVectors"], "properties": {}}, monkeypatch)
    assert "adds a reader feature: deltalake, Polars and" in text and len(statements) == 2


def test_the_first_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    text, statements = shown(LOCAL, OLDEST, monkeypatch)
    assert "~ timestampNtz" in text and "raises the reader version from 1 to 3" in text
    assert "'delta.feature.timestampNtz' = 'supported'" in statements[0]


@pytest.mark.parametrize("now", [WIDER, LOCAL])
def test_what_the_table_has_already_costs_nothing(now: tuple[Column, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    text, statements = shown(now, NEWEST, monkeypatch)
    assert "reader" not in text and len(statements) == 1


def test_a_commit_that_replaces_the_schema_takes_not_null_and_says_so() -> None:
    """A wider type comes with the content that replaces what is there, and Delta's overwrite knows no NOT NULL."""
    lake = DeltaTarget("/lake", {}, None, CAPABILITIES)
    info = replace(target(), columns=(ID, AMOUNT, UPDATED_AT), extra=NEWEST)
    assert [column.nullable for column in info.columns] == [False, True, True]
    retyped = SchemaChange("amount", "wider_type", AMOUNT.type, types.Decimal(14, 2), "retype", "wider_type: widen")
    first, second = lake.alter_statements(info, [retyped])
    assert (first.column, second.column, second.action) == ("amount", "id", "relax")
    assert second.statement.endswith("DROP NOT NULL")
    added = SchemaChange("new", "new_column", None, types.STRING, "add", "new_column: add")
    assert [change.column for change in lake.alter_statements(info, [added])] == ["new"]
