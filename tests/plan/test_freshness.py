"""How old a local time is, only its zone says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.expect.freshness import Freshness
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.plan.document import action_of
from flowctl.spec.spec import Cursor, SqlSource
from tests.plan.worlds import MARK, NEW, ORDERS, high, observed, source, step, table


@pytest.mark.parametrize("kind", [types.TIMESTAMP_NTZ, types.DATE, types.TIMESTAMP])
def test_a_local_time_without_a_zone_stops_the_table(kind: types.DataType) -> None:
    seen = observed(high(NEW), source=source((*ORDERS, Column("made", kind))))
    check = Freshness(column="made", within=60.0, mark=MARK)
    spec = table(expect=(check,))
    made = step(spec, seen)
    if kind == types.TIMESTAMP:
        assert action_of(made) == "create"
        return
    assert (action_of(made), made.reason) == ("stop", 'freshness: "made" has no time zone, so its age is not known')
    assert "zone: Europe/Amsterdam" in made.hint
    zoned = replace(check, zone="Asia/Tokyo")
    assert action_of(step(replace(spec, expect=(zoned,)), seen)) == "create"
    assert action_of(step(replace(spec, cursor=Cursor("updated_at", zone="Asia/Tokyo")), seen)) == "create"


def test_columns_of_sql_that_declare_their_types_are_looked_at() -> None:
    check = Freshness(column="made", within=60.0, mark=MARK)
    spec = table(mode="truncate", expect=(check,))
    declared = replace(spec.columns, types={"made": "timestamp_ntz"})
    sql = replace(spec, source=SqlSource("SELECT now() AS made", ()), columns=declared)
    assert "no time zone" in step(sql, observed(source=None)).reason
