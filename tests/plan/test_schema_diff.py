"""Every difference between source, record and target, under every policy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.connectors.base import OpenContext
from flowctl.connectors.postgres import connect as postgres
from flowctl.connectors.sqlite import CAPABILITIES as SQLITE
from flowctl.diagnostics import Mark
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.plan.comparison import Comparison, RecordedColumns
from flowctl.plan.document import action_of
from flowctl.plan.projection import projection
from flowctl.plan.schema_diff import compare
from flowctl.resolve.names import own_columns
from flowctl.resolve.resolve import PlanOptions
from flowctl.spec.spec import ColumnRules, Connection, DetectFlag, ReportedDeletes, SchemaPolicies
from tests.plan.differences import VAT, columns, differing, told
from tests.plan.worlds import (
    AMOUNT,
    ID,
    NEW,
    OLD,
    ORDERS,
    REFRESH,
    UPDATED_AT,
    LakeDdl,
    changes,
    committed,
    high,
    observed,
    recorded,
    source,
    statements,
    step,
    table,
    target,
)  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "action", "statement"),
    [
        ("add", "add", "ALTER TABLE orders ADD COLUMNS (vat INT)"),
        ("ignore", "ignore", ""),
        ("fail", "fail", ""),
    ],
)
def test_new_column(policy, action, statement):
    made = differing((*ORDERS, VAT), on_schema_change=SchemaPolicies(new_column=policy))
    assert told(made) == [("vat", "new_column", action)]
    assert changes(made)[0].statement == statement
    assert changes(made)[0].policy == f"on_schema_change.new_column: {policy}"
    if policy != "fail":
        assert ("vat" in columns(made)) == (policy == "add")
    assert action_of(made) == ("stop" if policy == "fail" else "change")


def test_a_column_that_was_ignored_is_not_told_again():
    made = differing((*ORDERS, VAT), before=(*ORDERS, VAT), there=ORDERS, left=ORDERS,
                     on_schema_change=SchemaPolicies(new_column="ignore"))  # fmt: skip
    assert told(made) == [] and "vat" not in columns(made)


def test_a_column_that_was_ignored_is_added_when_the_policy_says_so():
    made = differing((*ORDERS, VAT), before=(*ORDERS, VAT), there=ORDERS, left=ORDERS)
    assert told(made) == [("vat", "new_column", "add")]


@pytest.mark.parametrize(("policy", "action"), [("widen", "widen"), ("fail", "fail")])
def test_wider_type(policy, action):
    made = differing(
        (*ORDERS, replace(VAT, type=types.INT64)),
        before=(*ORDERS, VAT),
        on_schema_change=SchemaPolicies(wider_type=policy),
    )
    assert told(made) == [("vat", "wider_type", action)]
    if policy == "widen":
        assert statements(made) == ("ALTER TABLE orders ALTER COLUMN vat TYPE BIGINT",)
        assert columns(made)["vat"] == "bigint"


@pytest.mark.parametrize("mode", ["truncate", "merge"])
def test_where_all_content_is_replaced_no_column_widens_in_place(mode):
    """It would cost readers for nothing: type widening is a feature that some do not know."""
    request = PlanOptions() if mode == "truncate" else REFRESH
    made = differing((*ORDERS, replace(VAT, type=types.INT64)), before=(*ORDERS, VAT), mode=mode, request=request)
    assert told(made) == [("vat", "wider_type", "retype")]
    assert [(change.change_class, change.statement) for change in changes(made)] == [("safe", "")]
    assert columns(made)["vat"] == "bigint"


def test_a_full_refresh_takes_a_wider_type_that_is_refused_in_place():
    wider, fails = (*ORDERS, replace(VAT, type=types.INT64)), SchemaPolicies(wider_type="fail")
    assert told(differing(wider, before=(*ORDERS, VAT), on_schema_change=fails, mode="truncate"))[0][2] == "fail"
    made = differing(wider, before=(*ORDERS, VAT), on_schema_change=fails, request=REFRESH)
    assert [(change.action, change.policy) for change in changes(made)] == [("retype", "--full-refresh")]


def test_a_wider_type_that_the_target_cannot_take_is_another_type():
    spec = table()
    wanted = projection(spec, (*ORDERS, replace(VAT, type=types.INT64)))
    before = {column.name: column for column in (*ORDERS, VAT)}
    planned = compare(
        Comparison(
            spec, wanted, (*ORDERS, VAT), RecordedColumns(before, before), SQLITE.target, replaces=False, rebuilds=False
        )
    )
    assert [(change.change, change.action, change.note) for change in planned.changes] == [
        ("other_type", "fail", "the target cannot widen this in place")
    ]


def test_a_narrower_type_fits_and_is_cast_up():
    made = differing((*ORDERS, VAT), before=(*ORDERS, replace(VAT, type=types.INT64)))
    assert told(made) == [] and columns(made)["vat"] == "bigint"


def test_other_type_fails_by_default():
    made = differing((*ORDERS, replace(VAT, type=types.STRING)), before=(*ORDERS, VAT))
    assert action_of(made) == "stop"
    assert made.reason == 'other_type: fail — column "vat" is string, was int'
    ways = "Declare its type under `columns.types`, set the policy to text, or rebuild it with --full-refresh orders"
    assert made.hint == ways


@pytest.mark.parametrize("mode", ["append", "truncate", "merge", "scd2"])
def test_a_key_stays_not_null_in_the_target_as_a_null_in_it_stops_the_table(mode):
    spec = table(mode=mode, key=("id",) if mode in ("merge", "scd2") else ())
    strict = (replace(ID, nullable=False), AMOUNT, UPDATED_AT, *own_columns(spec).values())
    now = source((replace(ID, nullable=True), AMOUNT, UPDATED_AT))
    there = replace(target(), columns=strict)
    seen = observed(high(NEW), now, there, committed(position=OLD))
    made = step(spec, seen, recorded(spec, OLD, schema=now.columns, target_columns=strict), PlanOptions())
    if spec.key:
        assert told(made) == [] and not made.columns.target[0].nullable
    else:
        assert told(made) == [("id", "nullable", "relax")]


USED = [("vat", "used", "column double of table orders"), ("vat", "used", "view sums")]
GO = "Drop column double of table orders and view sums, run, and recreate them"


@pytest.mark.parametrize(
    ("kind", "keys", "uses", "reason", "hint"),
    [
        (types.INT64, {}, USED, 'wider_type: widen — column "vat" is bigint, was int', GO),
        (types.DATE, {"request": REFRESH}, USED, '--full-refresh — column "vat" is date, was int', GO),
        (types.INT64, {}, USED[1:], "(view sums uses it)", "Drop view sums, run, and recreate it"),
        (
            types.INT64,
            {},
            [("vat", "partition key", "table orders")],
            "(it is in the partition key of table orders)",
            "Declare its old type under `columns.types`, or drop the table and run it with --full-refresh",
        ),
        (
            types.DATE,
            {},
            USED,
            "",
            "Declare its type under `columns.types`, set the policy to text, or rebuild it with --full-refresh orders",
        ),
    ],
)
def test_a_type_that_the_target_cannot_change_for_what_uses_the_column_stops(
    monkeypatch, kind, keys, uses, reason, hint
):
    def altered(_, info, changes):
        with postgres(
            Connection("pg", "postgres", {"url": "postgresql://db/shop"}, Mark("spec.yaml", 1)), OpenContext()
        ) as there:
            return there.target.alter_statements(replace(info, extra={"dependants": uses}), changes)

    monkeypatch.setattr(LakeDdl, "alter_statements", altered)
    made = differing((*ORDERS, replace(VAT, type=kind)), before=(*ORDERS, VAT), **keys)
    assert action_of(made) == "stop" and statements(made) == ()
    assert reason in made.reason and made.hint == hint


@pytest.mark.parametrize("mode", ["append", "truncate", "merge"])
def test_a_full_refresh_may_give_a_column_any_type_and_says_that_it_is_destructive(mode):
    made = differing((*ORDERS, replace(VAT, type=types.STRING)), before=(*ORDERS, VAT), mode=mode, request=REFRESH)
    assert action_of(made) == "change"
    (change,) = changes(made)
    assert (change.action, change.change_class, change.policy) == ("retype", "destructive", "--full-refresh")
    assert columns(made)["vat"] == "string"


def test_a_full_refresh_of_a_history_keeps_it_and_with_it_the_types():
    history = (*ORDERS, VAT, *own_columns(table(mode="scd2", key=("id",))).values())
    keys = {"mode": "scd2", "key": ("id",), "there": history, "left": history, "request": REFRESH}
    made = differing((*ORDERS, replace(VAT, type=types.STRING)), before=(*ORDERS, VAT), **keys)
    assert action_of(made) == "stop"
    assert made.hint == "Declare its type under `columns.types`, or set the policy to text"


def test_other_type_as_text_goes_into_a_column_of_its_own_from_then_on():
    now, policy = (*ORDERS, replace(VAT, type=types.DOUBLE)), SchemaPolicies(other_type="text")
    made = differing(now, before=(*ORDERS, VAT), on_schema_change=policy)
    assert told(made) == [("vat__text", "other_type", "text")]
    assert statements(made) == ("ALTER TABLE orders ADD COLUMNS (vat__text STRING)",)
    made_of = {part.column.name: part.expression for part in made.columns.projection}
    assert made_of["vat"] == "NULL" and made_of["vat__text"] == "CAST(`vat` AS STRING)"

    later = differing(now, before=now, there=made.columns.target, left=made.columns.target, on_schema_change=policy)
    assert told(later) == [] and [part.expression for part in later.columns.projection] == list(made_of.values())


def test_a_key_never_becomes_text():
    made = differing(
        (replace(ID, type=types.STRING), AMOUNT, UPDATED_AT), on_schema_change=SchemaPolicies(other_type="text")
    )
    assert action_of(made) == "stop" and "a key column cannot become text" in made.reason
    assert made.hint == "Declare its type under `columns.types`, or rebuild it with --full-refresh orders"


@pytest.mark.parametrize(("policy", "action"), [("relax", "change"), ("fail", "stop")])
def test_source_may_send_nulls_that_the_target_refuses(policy, action):
    spec = table(on_schema_change=SchemaPolicies(nullable=policy))
    strict = replace(target(), columns=(ID, replace(AMOUNT, nullable=False), UPDATED_AT))
    state = recorded(spec, OLD, target_columns=strict.columns)
    made = step(spec, observed(high(NEW), source(), strict, committed(position=OLD)), state)
    assert (action_of(made), told(made)) == (action, [("amount", "nullable", policy)])


def test_drift_that_does_no_harm_is_shown_and_left_alone():
    made = differing(there=(*ORDERS, Column("remark", types.STRING)))
    assert action_of(made) == "change" and told(made) == [("remark", "drift", "show")]
    assert "remark" not in columns(made)


@pytest.mark.parametrize(
    ("there", "keys", "reason"),
    [
        pytest.param(
            (ID, UPDATED_AT), {},
            'column "amount" dropped in the target by someone else; its values are lost', id="dropped",
        ),
        pytest.param(
            (*ORDERS, Column("remark", types.STRING)), {"mode": "truncate"},
            'column "remark" added in the target by someone else; replacing the content would lose its values',
            id="added",
        ),
    ],
)  # fmt: skip
def test_drift_that_the_next_write_would_fail_on_or_lose_stops(there, keys, reason):
    made = differing(there=there, **keys)
    rule = "dropped_column: keep" if keys else "drift"
    assert action_of(made) == "stop" and made.reason == f"{rule} — {reason}"


def test_a_column_that_someone_else_has_widened_is_shown():
    made = differing((*ORDERS, VAT), before=(*ORDERS, VAT), there=(*ORDERS, replace(VAT, type=types.INT64)))
    assert action_of(made) == "change" and told(made) == [("vat", "drift", "show")]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("AMOUNT", 'collides with "amount", which differs in case only'), ("a b", None)],
)
def test_names_that_collide_or_that_the_target_refuses_stop(name, reason):
    made = differing((*ORDERS, Column(name, types.STRING)))
    assert action_of(made) == "stop" and changes(made)[-1].policy == "column names"
    assert reason is None or reason in made.reason


@pytest.mark.parametrize("within", [lambda kind: kind, types.Array, lambda kind: types.Struct((("inner", kind),))])
def test_fields_of_structs_that_differ_in_case_only_stop(within):
    """Nothing opens a Delta table that has them."""
    alike = Column("s", within(types.Struct((("a", types.INT32), ("b", types.INT32), ("A", types.INT32)))))
    apart = replace(alike, type=within(types.Struct((("a", types.INT32), ("b", types.INT32)))))
    for made in (
        differing((*ORDERS, alike)),
        differing((*ORDERS, alike), before=(*ORDERS, apart), request=REFRESH),
        step(table(), observed(high(NEW), source((*ORDERS, alike)))),
    ):
        reason = 'column names — column "s" has the fields "a" and "A", which the target does not tell apart'
        assert (action_of(made), made.reason) == ("stop", reason)
        assert made.hint == "Rename one of them in the source, or exclude the column under `columns`"
    assert action_of(differing((*ORDERS, apart))) == "change"


def test_soft_deletes_add_their_column_whatever_the_policies():
    made = differing(
        (*ORDERS, Column("is_deleted", types.BOOL)),
        before=(*ORDERS, Column("is_deleted", types.BOOL)),
        deletes=DetectFlag("is_deleted"),
        on_schema_change=SchemaPolicies(new_column="fail"),
    )
    assert told(made) == [("_deleted_at", "new_column", "add")]


@pytest.mark.parametrize(
    ("keys", "own"),
    [
        ({"mode": "merge", "deletes": ReportedDeletes("soft")}, [Column("_deleted_at", types.TIMESTAMP)]),
        ({"mode": "scd2", "valid_from": "updated_at"}, [*own_columns(table(mode="scd2")).values()]),
    ],
)
def test_an_order_in_the_source_adds_its_column_to_a_table_that_exists(keys, own):
    ordered = {"key": ("id",), "format": {"source_order": True}, **keys}
    made = differing(ORDERS, before=ORDERS, there=(*ORDERS, *own), left=(*ORDERS, *own), **ordered)
    assert told(made) == [("_source_order", "new_column", "add")]
    assert changes(made)[0].policy == "format.source_order"
    assert not any(part.column.name == "_source_order" for part in made.columns.projection)


def test_scd2_adds_its_own_columns_and_compares_neither_key_nor_event_time():
    spec = table(mode="scd2", key=("id",), valid_from="updated_at")
    made = step(spec, observed(high(NEW)))
    assert list(columns(made)) == ["id", "amount", "updated_at", "valid_from", "valid_to", "is_current", "row_hash"]
    assert [part.column.name for part in made.columns.projection if part.compared] == ["amount"]


def test_column_rules_shape_what_is_read_and_written():
    rules = ColumnRules(
        exclude=("updated_at",),
        rename={"amount": "total"},
        types={"amount": "decimal(18,2)", "month": "date"},
        mask={"email": "sha256"},
        add={"month": "date_trunc('month', updated_at)", "later": "now()"},
    )
    spec = table(columns=rules)
    parts = projection(spec, (*ORDERS, Column("email", types.STRING)))
    assert [(part.column.name, types.short(part.column.type), part.expression) for part in parts] == [
        ("id", "bigint", "`id`"),
        ("total", "decimal(18,2)", "`amount`"),
        ("email", "string", "sha2(CAST(`email` AS STRING), 256)"),
        ("month", "date", "(date_trunc('month', updated_at))"),
    ]
    made = step(spec, observed(high(NEW), source((*ORDERS, Column("email", types.STRING)))))
    assert changes(made) is None, "`later` has a type only when Spark has looked"


def test_the_same_source_again_is_no_difference_whatever_the_target_made_of_it():
    spec, tags = table(), Column("tags", types.Array(types.STRING))
    wanted = projection(spec, (*ORDERS, tags))
    left = {column.name: column for column in (*ORDERS, replace(tags, type=types.STRING))}
    before = RecordedColumns({part.column.name: part.column for part in wanted}, left)
    planned = compare(
        Comparison(spec, wanted, tuple(left.values()), before, SQLITE.target, replaces=False, rebuilds=False)
    )
    assert planned.changes == ()


def test_a_type_that_the_target_stores_as_another_is_neither_drift_nor_a_change():
    def stores(kind):
        return types.INT16 if kind == types.INT8 else kind

    wanted = projection(table(), (Column("id", types.INT8),))
    left = {"id": wanted[0].column}
    there = (Column("id", types.INT16),)
    planned = compare(Comparison(
        table(), wanted, there, RecordedColumns(left, left), replace(SQLITE.target, stores=stores),
        replaces=False, rebuilds=False,
    ))  # fmt: skip
    assert planned.changes == () and planned.target == (wanted[0].column,)
