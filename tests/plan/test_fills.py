"""Columns of a target that flowctl does not write: who fills them, what is recorded, when the plan stops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.connectors.target import Fill
from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import NoPosition
from flowctl.model.step import RecordOnly
from flowctl.model.table_info import Column, TableInfo
from flowctl.plan.case import Case
from flowctl.plan.comparison import Comparison, RecordedColumns
from flowctl.plan.document import action_of
from flowctl.plan.fills import columns_to_record
from flowctl.plan.projection import projection
from flowctl.plan.schema_diff import compare
from flowctl.resolve.names import own_columns
from flowctl.spec.spec import ColumnRules, SchemaPolicies, SqlSource
from tests.plan.worlds import (
    AMOUNT,
    EVERYTHING,
    ID,
    LAKE,
    NEW,
    OLD,
    ORDERS,
    REFRESH,
    UPDATED_AT,
    changes,
    committed,
    high,
    intent,
    observed,
    recorded,
    source,
    statements,
    step,
    table,
    target,
)  # fmt: skip

SERIAL = Column("serial", types.INT64, nullable=False)
REMARK = Column("remark", types.STRING)
MODES = ("append", "merge", "scd2", "truncate")
LOSE = SchemaPolicies(dropped_column="null")


def there(*columns: Column, **filled: Fill) -> TableInfo:
    return replace(target(), columns=columns, extra={**target().extra, "filled": filled})


def spec_of(mode, **keys):
    return table(mode=mode, **({"key": ("id",), "valid_from": "now"} if mode == "scd2" else {}), **keys)


def planned(mode, info, left=ORDERS, request=EVERYTHING, **keys):
    """The step of a table that ran before and left ``left`` in the target, which is ``info`` now."""
    spec = spec_of(mode, **keys)
    state = recorded(spec, NoPosition() if mode == "truncate" else OLD, target_columns=left)
    position = NoPosition() if mode == "truncate" else NEW
    seen = observed(high(position), source(), info, committed(position=state.position))
    return step(spec, seen, state, request)


def shown(made):
    return [(change.column, change.action, change.change_class) for change in changes(made)]


@pytest.mark.parametrize("fill", ["computed", "numbered", "default"])
@pytest.mark.parametrize("mode", MODES)
def test_what_the_database_fills_is_neither_written_nor_relaxed(mode, fill):
    own = own_columns(spec_of(mode)).values()
    made = planned(mode, there(*ORDERS, *own, SERIAL, serial=fill), (*ORDERS, *own), on_schema_change=LOSE)
    is_lost = mode == "truncate" and fill != "computed"
    assert action_of(made) == "change" and statements(made) == ()
    assert shown(made) == [("serial", "show", "destructive" if is_lost else "safe")]
    assert "serial" not in [column.name for column in made.columns.target]


@pytest.mark.parametrize("mode", ["merge", "truncate"])
def test_replacing_values_of_others_stops_unless_they_may_go(mode):
    request = REFRESH if mode == "merge" else EVERYTHING
    for columns, filled in (((*ORDERS, SERIAL), {"serial": "default"}), ((*ORDERS, REMARK), {})):
        made = planned(mode, there(*columns, **filled), request=request)
        assert action_of(made) == "stop" and "replacing the content would lose its values" in made.reason
        assert 'on_schema_change.dropped_column: "null"' in made.hint
        made = planned(mode, there(*columns, **filled), request=request, on_schema_change=LOSE)
        assert (action_of(made), statements(made)) == ("change", ())
        assert made.columns.projection == planned(mode, there(*ORDERS)).columns.projection


def test_a_table_that_is_replaced_with_its_columns_keeps_those_of_others_as_nulls():
    spec, before = spec_of("truncate", on_schema_change=LOSE), {column.name: column for column in ORDERS}
    can, wanted = LAKE.capabilities.target, projection(spec, ORDERS)
    for filled, names in ((None, ["id", "amount", "updated_at", "remark"]), ({}, ["id", "amount", "updated_at"])):
        recorded = RecordedColumns(before, before)
        made = compare(Comparison(spec, wanted, (*ORDERS, REMARK), recorded, can, replaces=True, filled=filled))
        assert [column.name for column in made.target] == names


def test_a_column_of_others_that_takes_no_null_and_has_no_default_stops():
    made = planned("merge", there(*ORDERS, SERIAL))
    assert action_of(made) == "stop" and made.hint == "Give it a default in the target, or drop its NOT NULL"


def test_what_an_older_flowctl_has_recorded_as_its_own_is_left_to_the_database():
    columns = (*ORDERS, replace(REMARK, name="up"))
    made = planned("merge", there(*columns, up="computed"), left=columns)
    assert shown(made) == [("up", "show", "safe")] and "up" not in [column.name for column in made.columns.target]


@pytest.mark.parametrize("policy", ["keep", "null"])
@pytest.mark.parametrize("mode", ["append", "merge", "truncate"])
def test_a_dropped_column_with_a_default_is_left_to_the_database_where_no_null_is_asked_for(mode, policy):
    policies, note = SchemaPolicies(dropped_column=policy), replace(REMARK, nullable=False)
    made = planned(mode, there(*ORDERS, note, remark="default"), (*ORDERS, note), on_schema_change=policies)
    if mode == "truncate" and policy == "keep":
        assert action_of(made) == "stop" and "replacing the content would lose its values" in made.reason
        return
    is_left = policy == "keep" or mode == "truncate"
    assert (action_of(made), bool(statements(made))) == ("change", not is_left)
    assert ("remark" in [part.column.name for part in made.columns.projection]) == (not is_left)
    assert ("remark" in [column.name for column in made.columns.target]) == (not is_left)


@pytest.mark.parametrize(("policy", "mode", "told"), [
    ("keep", "append", [("keep", "stored values stay, new rows have its default")]),
    ("keep", "merge", [("keep", "stored values stay, new rows have its default")]),
    ("null", "truncate", [("null", "has its default from now on; its stored values are lost")]),
    ("null", "merge", [("null", "null from now on"), ("relax", "may be null")]),
])  # fmt: skip
def test_a_default_keeps_a_dropped_column_as_it_is(policy, mode, told):
    spec, note = spec_of(mode, on_schema_change=SchemaPolicies(dropped_column=policy)), replace(REMARK, nullable=False)
    before = {column.name: column for column in (*ORDERS, note)}
    made = compare(Comparison(spec, projection(spec, ORDERS), tuple(before.values()), RecordedColumns(before, before),
                   LAKE.capabilities.target, replaces=mode == "truncate", rebuilds=False,
                   filled={"remark": "default"}))  # fmt: skip
    assert [(change.action, change.note) for change in made.changes] == told
    assert ("remark" in [column.name for column in made.target]) == (len(told) == 2)


def test_after_a_reset_what_the_database_fills_is_still_left_alone():
    state = replace(recorded(table(), None), schema=(), target_columns=(), definition={})
    made = step(
        table(), observed(high(NEW), target=there(*ORDERS, SERIAL, serial="default"), commit=committed()), state
    )
    assert action_of(made) == "change" and shown(made) == [("serial", "show", "safe")]


@pytest.mark.parametrize(
    ("column", "mode", "keys", "hint"),
    [
        ("amount", "merge", {},
         "Leave it out with columns: {exclude: [amount]}, write it under another name with columns: "
         "{rename: {amount: source_amount}}"),
        ("id", "merge", {},
         "Write it under another name with columns: {rename: {id: source_id}}, which `key` then has too"),
        ("vat", "merge", {"columns": ColumnRules(add={"vat": "1"}, types={"vat": "int"})},
         "Take it out of columns.add"),
        ("is_current", "scd2", {}, "Make it a plain column there"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("fill", "what"), [("computed", "GENERATED ALWAYS AS,"), ("numbered", "AS IDENTITY,")])
def test_a_written_column_that_takes_no_value_stops(column, mode, keys, hint, fill, what):
    own = own_columns(spec_of(mode)).values()
    columns = (*ORDERS, Column("vat", types.INT32), *own)
    made = planned(mode, there(*columns, **{column: fill}), columns, **keys)
    assert action_of(made) == "stop" and f'column "{column}" is' in made.reason and what in made.reason
    assert made.hint.startswith(hint)


def test_a_written_column_with_a_default_is_written():
    made = planned("merge", there(*ORDERS, amount="default"))
    assert action_of(made) == "change" and "amount" in [part.column.name for part in made.columns.projection]


def test_a_new_column_may_not_differ_from_one_of_others_in_case_only():
    made = planned("merge", there(ID, UPDATED_AT, replace(AMOUNT, name="AMOUNT")), left=(ID, UPDATED_AT))
    assert action_of(made) == "stop" and 'collides with "AMOUNT", which differs in case only' in made.reason


def adopted(spec, info, state=None, from_=ORDERS):
    seen = observed(high(NEW), source(from_) if from_ else None, info)
    state = state or recorded(spec, None, schema=(), target_columns=())
    return [column.name for column in columns_to_record(Case(spec, seen, state, LAKE))]


def test_adopt_records_what_flowctl_makes():
    text = Column("amount__text", types.STRING)
    info = there(ID, replace(AMOUNT, name="total"), UPDATED_AT, text, REMARK, SERIAL, serial="default")
    assert adopted(table(), info) == ["id", "updated_at", "amount__text"]
    rules = ColumnRules(rename={"amount": "total"}, exclude=("updated_at",))
    assert adopted(table(columns=rules), info) == ["id", "total"]
    own = tuple(own_columns(spec_of("scd2")).values())
    assert adopted(spec_of("scd2"), there(*ORDERS, *own, REMARK)) == [column.name for column in (*ORDERS, *own)]
    before = recorded(table(), OLD, target_columns=(*ORDERS, REMARK, SERIAL))
    assert adopted(table(), info, before) == ["id", "updated_at", "amount__text", "remark"]


def test_adopt_records_all_but_what_the_database_fills_where_only_spark_can_tell_the_columns():
    info = there(*ORDERS, REMARK, SERIAL, serial="default")
    known = SqlSource("SELECT id FROM ${{ref:lines}}", ("lines",))
    assert adopted(table(source=known), info, from_=()) == ["id"]
    star = SqlSource("SELECT * FROM ${{ref:lines}}", ("lines",))
    assert adopted(table(source=star), info, from_=()) == ["id", "amount", "updated_at", "remark"]


def test_a_number_that_has_landed_is_recorded_without_columns_of_others():
    interval = Interval(OLD, NEW, "updated_at", read_from=OLD.at, read_to=NEW.at)
    begun = recorded(table(), OLD, intent=intent(table(), interval), highest=4)
    seen = observed(high(NEW), target=there(*ORDERS, REMARK, SERIAL, serial="default"), commit=committed(4, "i4", NEW))
    made = step(table(), seen, begun)
    assert isinstance(made, RecordOnly) and made.columns.target == ORDERS


def taking(mode, request=EVERYTHING, accepted=False, begun=None, now=ORDERS, **keys):
    """``amount`` is new in the source, and others have put one into the target; or a pending intent has, which alters
    the columns ``begun``."""
    spec = spec_of(mode, **keys)
    position = NoPosition() if mode == "truncate" else OLD
    own, left = tuple(own_columns(spec).values()), (ID, UPDATED_AT)
    state = recorded(spec, position, schema=left, target_columns=(*left, *own))
    state = replace(state, definition={}) if accepted else state
    if begun is not None:
        pending = intent(spec, Interval(OLD, NEW, "updated_at", read_from=OLD.at, read_to=NEW.at))
        state = replace(state, intent=replace(pending, altered=begun))
    seen = observed(high(NoPosition() if mode == "truncate" else NEW), source(now), there(*ORDERS, *own),
                    commit=committed(position=position))  # fmt: skip
    return step(spec, seen, state, request)


@pytest.mark.parametrize("mode", ["merge", "truncate", "append"])
def test_values_of_others_are_overwritten_only_where_that_is_accepted(mode):
    request = REFRESH if mode == "append" else EVERYTHING
    made = taking(mode, request)
    assert action_of(made) == "stop"
    assert made.reason.endswith('"amount" added in the target by someone else; written from now on: '
                                "its values are replaced")  # fmt: skip
    assert "state set" in made.hint and "--accept-definition` lets them be replaced" in made.hint
    made = taking(mode, request, accepted=True)
    assert (action_of(made), shown(made)) == ("change", [("amount", "show", "destructive")])
    made = taking(mode, request, on_schema_change=SchemaPolicies(new_column="ignore"))
    assert action_of(made) == ("change" if mode == "merge" else "stop")
    assert mode == "merge" or "replacing the content would lose its values" in made.reason
    if mode == "merge":
        assert shown(made) == [("amount", "show", "safe")] and "left alone" in changes(made)[0].note
        assert "amount" not in [
            column.name for column in (*made.columns.target, *(p.column for p in made.columns.projection))
        ]


def test_where_content_is_replaced_the_policy_for_values_that_may_go_lets_them_be_overwritten():
    made = taking("truncate", on_schema_change=LOSE)
    assert (action_of(made), shown(made)) == ("change", [("amount", "show", "destructive")])


@pytest.mark.parametrize("mode", ["append", "scd2"])
def test_new_rows_touch_no_values_of_others(mode):
    made = taking(mode)
    assert (action_of(made), shown(made)) == ("change", [("amount", "show", "safe")])
    assert changes(made)[0].note == "added in the target by someone else; written from now on"


def test_a_begun_number_may_have_made_the_column_itself():
    assert action_of(taking("merge", begun=())) == "recover"


@pytest.mark.parametrize(("alters_first", "drift"), [(True, []), (False, [("amount", "show", "destructive")])])
def test_a_column_that_a_begun_number_has_made_is_its_own(monkeypatch, alters_first, drift):
    """Where columns are changed before the commit; elsewhere, a commit that fails leaves none."""
    target = replace(LAKE.capabilities.target, alters_first=alters_first)
    monkeypatch.setattr(LAKE, "capabilities", replace(LAKE.capabilities, target=target))
    made = taking("merge", begun=("amount",))
    assert (action_of(made), shown(made)) == ("recover", drift)
    gone = taking("truncate", begun=("amount",), now=(ID, UPDATED_AT), on_schema_change=LOSE)
    assert [change.change for change in changes(gone)] == ["dropped_column" if alters_first else "drift"]
