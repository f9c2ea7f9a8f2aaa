"""What a change costs readers of a Delta table stands in the plan, before it is made."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.connectors.delta import CAPABILITIES
from flowctl.connectors.delta.target import DeltaTarget
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.plan.render import to_text
from tests.unit.plan.worlds import (
    AMOUNT,
    ID,
    NEW,
    OLD,
    ORDERS,
    UPDATED_AT,
    committed,
    head,
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
    seen = observed(head(NEW), source(now), replace(target(), extra=extra), committed(position=OLD))
    made = world({"orders": seen}, {"orders": recorded(spec, OLD)})
    monkeypatch.setitem(made.ddl, "lake", DeltaTarget("/lake", {}, None, CAPABILITIES))
    planned = plan(made, spec)
    return to_text(planned, None), [statement.partition(" ALTER ")[0] for statement in planned.steps[0].statements]


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
