"""A column whose values go to `<name>__text` while its type is another, and what follows when the type comes back."""

from __future__ import annotations

from dataclasses import replace

from flowctl.expect.between import Between
from flowctl.expect.not_null import NotNull
from flowctl.expect.sql import Sql
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.plan.document import action_of
from flowctl.spec.spec import SchemaPolicies
from tests.plan.differences import VAT, differing, told
from tests.plan.worlds import MARK, ORDERS, REFRESH

THERE, TYPED = (*ORDERS, VAT, Column("vat__text", types.STRING)), (*ORDERS, VAT)
AS_TEXT = (*ORDERS, replace(VAT, type=types.STRING))
KEYS = {"there": THERE, "left": THERE, "on_schema_change": SchemaPolicies(other_type="text")}


def test_where_the_type_comes_back_the_text_becomes_null():
    made = differing(TYPED, before=AS_TEXT, **KEYS)
    assert told(made) == [("vat__text", "dropped_column", "null")]
    assert made.columns.changes[0].note == '"vat" is int again and filled; null from now on'
    assert [(part.expression, part.source, part.compared) for part in made.columns.projection[-2:]] == [
        ("`vat`", "vat", True),
        ("CAST(NULL AS STRING)", "vat", True),
    ]
    for more in ({}, {"request": REFRESH}, {"mode": "truncate"}):
        later = differing(TYPED, before=TYPED, **KEYS, **more)
        assert told(later) == [] and later.columns.projection[-1].expression == "CAST(NULL AS STRING)"

    refreshed = differing(TYPED, before=AS_TEXT, **KEYS, request=REFRESH)
    assert action_of(refreshed) == "change" and told(refreshed) == [("vat__text", "dropped_column", "null")]


def test_a_column_of_the_source_that_is_gone_is_no_text_of_another():
    made = differing(TYPED, before=THERE, there=THERE, left=THERE)
    assert told(made) == [("vat__text", "dropped_column", "keep")]


def test_a_text_takes_no_name_that_the_source_has():
    """Nor does the source's own column take that of a text."""
    own = Column("vat__text", types.STRING)
    for now, before, there in (((*AS_TEXT, own), THERE, THERE), ((own, *AS_TEXT), AS_TEXT, THERE)):
        made = differing(now, before=before, there=there, left=there, on_schema_change=KEYS["on_schema_change"])
        assert action_of(made) == "stop" and 'column "vat__text" collides with "vat__text"' in made.reason


def test_checks_that_find_only_nulls_are_named():
    checks = (
        Between(column="vat", low=0, high=9, mark=MARK),
        NotNull(column="amount", mark=MARK),
        Sql(condition="VAT > 0 OR net > 0", mark=MARK),
        Sql(condition="vat_rate > 0", mark=MARK),
    )
    note = 'the values of "vat" are in "vat__text": for vat: between, sql, all of them are null'
    first = differing(AS_TEXT, before=TYPED, expect=checks, on_schema_change=KEYS["on_schema_change"])
    later = differing(AS_TEXT, before=AS_TEXT, expect=checks, **KEYS)
    assert first.notes == later.notes == (note,)
    assert differing(TYPED, before=AS_TEXT, expect=checks, **KEYS).notes == ()
