"""Which changes of columns give rows values that no stream sends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.changes.shape import Shape
from flowctl.connectors.mysql.catalog import column_of
from flowctl.model import codec, types
from flowctl.model.interval import Interval
from flowctl.model.position import LandedPosition
from flowctl.model.projection import Columns
from flowctl.model.step import Advance, Load, RecordOnly, Recover, Stopped
from flowctl.model.table_info import ENDED, Column
from flowctl.plan.case import Case
from flowctl.plan.landed_columns import columns_in_turn, columns_of_shapes
from flowctl.plan.unsent import unsent_columns, unsent_in_shapes
from flowctl.spec.spec import SchemaPolicies
from flowctl.state.document import TableState
from tests.plan.stream_worlds import batch, info, joined, running, shape, stream_plan, stream_table
from tests.plan.worlds import AMOUNT, ID, LAKE, ORDERS, UPDATED_AT, committed, intent

NEW = Column("new", types.INT64)


def planned(columns: tuple[Column, ...], policy: str = "resnapshot", **extra: object) -> object:
    table = stream_table("orders", on_schema_change=SchemaPolicies(unsent=policy, dropped_column="null"))  # type: ignore[arg-type]
    there, state = joined(table, 4)
    there = replace(there, source=info("orders", columns, **extra))
    return stream_plan(running({"orders": state}), [(table, there)]).steps[0]


@pytest.mark.parametrize(
    ("columns", "step"),
    [
        (ORDERS, Advance),
        ((*ORDERS, NEW), Advance),
        ((*ORDERS, replace(NEW, nullable=False)), Load),
        ((ID, AMOUNT), Advance),
        ((ID, NEW, UPDATED_AT), Load),  # amount, under another name
        ((ID, replace(AMOUNT, type=types.Decimal(14, 2)), UPDATED_AT), Advance),
        ((ID, replace(AMOUNT, type=types.Decimal(14, 1)), UPDATED_AT), Stopped),  # other_type: fail
    ],
)
def test_changes_of_columns(columns: tuple[Column, ...], step: type) -> None:
    assert isinstance(planned(columns), step)


def test_a_new_column_with_a_default() -> None:
    filled = {"filled": {"new": "default"}}
    assert isinstance(planned((*ORDERS, NEW), **filled), Load)
    noted = planned((*ORDERS, NEW), "note", **filled)
    assert isinstance(noted, Advance) and "rows have values in new that no change has sent" in noted.notes
    stopped = planned((*ORDERS, NEW), "fail", **filled)
    assert isinstance(stopped, Stopped) and "on_schema_change.unsent: fail" in stopped.reason


@pytest.mark.parametrize(
    ("old", "new", "is_read_again"),
    [
        ("character varying(10)", "character varying(20)", False),
        ("character varying(20)", "character varying(10)", True),
        ("character varying(20)", "text", False),
        ("text", "character varying(10)", True),
    ],
)
def test_lengths_of_texts(old: str, new: str, is_read_again: bool) -> None:
    table = stream_table("orders", on_schema_change=SchemaPolicies(unsent="resnapshot"))
    before, after = (Column("note", types.STRING, native=native) for native in (old, new))
    there, state = joined(table, 4, schema=(*ORDERS, before))
    there = replace(there, source=info("orders", (*ORDERS, after)))
    step = stream_plan(running({"orders": state}), [(table, there)]).steps[0]
    assert isinstance(step, Load if is_read_again else Advance)


@pytest.mark.parametrize(
    ("old", "new", "is_nullable", "is_unsent"),
    [
        ("int", "int", True, False),
        ("int", "int", False, True),  # null became 0
        ("int", "int unsigned", True, True),
        ("int", "bigint", True, False),
        ("enum('x','y','b')", "enum('y','x')", True, True),
        ("enum('x','y')", "enum('y','x','b')", True, False),
        ("varchar(9)", "enum('y')", True, True),
    ],
)
def test_a_column_into_which_values_may_have_been_forced(
    old: str, new: str, is_nullable: bool, is_unsent: bool
) -> None:
    """By the statement alone, and by the rows that follow it, whose columns are described as they are now."""
    before, after = column_of("new", old, is_nullable=True), column_of("new", new, is_nullable=is_nullable)
    case = recorded_case()
    case = replace(case, state=replace(case.state, schema=(*ORDERS, before)))
    earlier = shape("orders", (*ORDERS, replace(before, nullable=is_nullable)))
    altered = replace(earlier, columns=(), converted=("new",))
    later = shape("orders", (*ORDERS, after))
    in_turn = columns_in_turn([earlier, altered, later], case.state.schema)
    assert unsent_in_shapes(case, in_turn, lambda: None) == ["new"] * is_unsent
    now = info("orders", (*ORDERS, after))
    recorded = columns_of_shapes([earlier, altered], now, case.state.schema)
    following = replace(case, state=replace(case.state, schema=recorded))
    assert unsent_columns(following, now.columns, now) == ["new"] * is_unsent


def test_a_batch_with_a_new_column_is_judged_by_the_catalog_as_it_is_by_then() -> None:
    case = recorded_case()
    filled = info("orders", (*ORDERS, NEW), filled={"new": "default"})
    assert unsent_in_shapes(case, [ORDERS, (*ORDERS, NEW)], lambda: filled) == ["new"]
    assert unsent_in_shapes(case, [(*ORDERS, NEW)], lambda: info("orders", (*ORDERS, NEW))) == []
    gone_again = info("orders", ORDERS)
    assert unsent_in_shapes(case, [(*ORDERS, NEW), ORDERS], lambda: gone_again) == ["new"]
    assert unsent_in_shapes(case, [(*ORDERS, NEW)], lambda: None) == ["new"]


def test_the_catalog_is_not_asked_while_no_column_is_new() -> None:
    def ask() -> None:
        raise AssertionError

    assert unsent_in_shapes(recorded_case(), [ORDERS, (ID, AMOUNT)], ask) == []
    assert unsent_in_shapes(replace(recorded_case(), state=TableState()), [(*ORDERS, NEW)], ask) == []


def test_each_shape_of_a_round_follows_the_one_before() -> None:
    """Taken together, a column that was renamed between two of them would be there under both names."""
    plain = info("orders", (ID, NEW, UPDATED_AT))
    assert unsent_in_shapes(recorded_case(), [ORDERS, (ID, NEW, UPDATED_AT)], lambda: plain) == ["new"]
    rounded = replace(AMOUNT, type=types.INT64, native="bigint")
    assert unsent_in_shapes(recorded_case(), [(ID, rounded, UPDATED_AT), ORDERS], lambda: plain) == ["amount"]


def test_columns_of_later_batches_are_not_recorded_with_an_interrupted_round() -> None:
    """The round that takes them would not see that they are new."""
    table = stream_table("orders")
    there, state = joined(table, 4)
    begun = intent(table, Interval(LandedPosition(4), LandedPosition(5)), definition=state.definition)
    stream = running(
        {"orders": replace(state, intent=begun)},
        [batch(5, {"orders": 3}), batch(6, {"orders": 1}, "s2")],
        shapes={"s1": shape("orders"), "s2": shape("orders", (*ORDERS, NEW))},
    )
    finished = stream_plan(stream, [(table, there)]).steps[0]
    landed = replace(there, commit=committed(4, "i4", LandedPosition(5)))
    only_recorded = stream_plan(stream, [(table, landed)]).steps[0]
    for step in (finished, only_recorded):
        assert isinstance(step, Recover | RecordOnly) and isinstance(step.columns, Columns)
        assert step.columns.source == ORDERS


def recorded_case() -> Case:
    table = stream_table("orders", on_schema_change=SchemaPolicies(unsent="resnapshot"))
    there, state = joined(table, 4)
    return Case(table=table, observed=there, state=state, ddl=LAKE)


def numbered(columns: tuple[Column, ...], *identities: str) -> tuple[Column, ...]:
    return tuple(replace(column, identity=one) for column, one in zip(columns, identities, strict=True))


@pytest.mark.parametrize(
    ("before", "now", "step"),
    [
        (numbered(ORDERS, "1", "2", "3"), numbered(ORDERS, "1", "2", "3"), Advance),
        (numbered(ORDERS, "1", "2", "3"), numbered(ORDERS, "1", "4", "3"), Load),  # dropped and added, or renamed
        (ORDERS, numbered(ORDERS, "1", "4", "3"), Advance),  # recorded by an older flowctl
        (numbered(ORDERS, "1", "2", "3"), numbered((ID, NEW, UPDATED_AT), "1", "2", "3"), Load),  # renamed
        (numbered(ORDERS, "1", "2", "3"), numbered((ID, NEW, UPDATED_AT), "1", "4", "3"), Advance),  # not so
    ],
)
def test_columns_whose_identities_are_known(before: tuple[Column, ...], now: tuple[Column, ...], step: type) -> None:
    table = stream_table("orders", on_schema_change=SchemaPolicies(unsent="resnapshot", dropped_column="null"))
    there, state = joined(table, 4, schema=before)
    there = replace(there, source=info("orders", now))
    assert isinstance(stream_plan(running({"orders": state}), [(table, there)]).steps[0], step)


def test_a_column_whose_name_is_written_in_another_case() -> None:
    renamed = info("orders", (ID, replace(AMOUNT, name="Amount"), UPDATED_AT))
    assert unsent_columns(recorded_case(), renamed.columns, renamed) == []
    schema = (ID, replace(AMOUNT, identity=ENDED), UPDATED_AT)
    ended = replace(recorded_case(), state=replace(recorded_case().state, schema=schema))
    assert unsent_columns(ended, renamed.columns, renamed) == ["Amount"]


def test_a_column_that_comes_back_where_the_target_has_kept_the_old_one() -> None:
    table = stream_table("orders", on_schema_change=SchemaPolicies(unsent="resnapshot"))
    there, state = joined(table, 4, schema=(ID, UPDATED_AT), target_columns=ORDERS)
    assert isinstance(stream_plan(running({"orders": state}), [(table, there)]).steps[0], Load)


def test_an_unknown_identity_is_that_of_the_column_that_had_the_name() -> None:
    """A message from before a change of columns that the catalog shows already has none."""
    before = numbered(ORDERS, "1", "2", "3")
    later = numbered(ORDERS, "1", "4", "3")
    assert [one.identity for one in columns_in_turn([shape("orders")], before)[-1]] == ["1", "2", "3"]
    in_turn = columns_in_turn([shape("orders"), shape("orders", later), shape("orders")], before)
    assert [one.identity for one in in_turn[-1]] == ["1", "4", "3"]
    assert shape("orders", before).digest != shape("orders", later).digest


def ended(*names: str) -> Shape:
    return replace(shape("orders", ()), ended=names)


def test_a_column_that_a_statement_ended_is_another_when_it_comes_back() -> None:
    case = recorded_case()
    in_turn = columns_in_turn([ended("AMOUNT"), shape("orders")], case.state.schema)
    assert unsent_in_shapes(case, in_turn, lambda: None) == ["amount"]
    assert in_turn[-1][1].identity == ""  # from here on it is the one that it is
    renamed = columns_in_turn([ended("amount"), shape("orders", (ID, NEW, UPDATED_AT))], case.state.schema)
    assert unsent_in_shapes(case, renamed, lambda: info("orders", (ID, NEW, UPDATED_AT))) == ["new"]
    assert unsent_in_shapes(case, columns_in_turn([ended("amount")] * 2, case.state.schema), lambda: None) == []


def test_that_a_column_ended_is_recorded_until_it_comes_back() -> None:
    table = stream_table("orders", on_schema_change=SchemaPolicies(unsent="resnapshot"))
    there, state = joined(table, 4)
    recorded = columns_of_shapes([ended("amount")], info("orders"), state.schema)
    assert [one.name for one in recorded] == [one.name for one in ORDERS]
    later = replace(state, schema=recorded)
    assert codec.from_json(TableState, codec.to_json(later)).schema[1].identity == ENDED
    assert isinstance(stream_plan(running({"orders": later}), [(table, there)]).steps[0], Load)


def test_a_plan_sees_in_what_waits_that_a_column_ended() -> None:
    table = stream_table("orders", on_schema_change=SchemaPolicies(unsent="fail"))
    there, state = joined(table, 4)
    waiting = [batch(5, {"orders": 1}, "s1"), batch(6, {"orders": 1}, "s2")]
    shapes = {"s1": ended("amount"), "s2": shape("orders")}
    step = stream_plan(running({"orders": state}, waiting, shapes=shapes), [(table, there)]).steps[0]
    assert isinstance(step, Stopped) and "rows have values in amount" in step.reason
