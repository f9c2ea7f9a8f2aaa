"""A column that the spec names and nothing has stops the plan, wherever it is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flowctl.expect.freshness import Freshness
from flowctl.expect.not_null import NotNull
from flowctl.model import types
from flowctl.model.mode import Mode
from flowctl.model.position import FilesPosition
from flowctl.model.step import Step
from flowctl.model.table_info import Column
from flowctl.plan.document import action_of
from flowctl.plan.projection import projection
from flowctl.resolve.names import own_columns
from flowctl.resolve.resolve import PlanOptions
from flowctl.spec.spec import ColumnRules, Cursor, DetectFlag, Layout, ReadHints, SchemaPolicies, TableSpec
from tests.plan.worlds import (
    MARK,
    NEW,
    OLD,
    ORDERS,
    changes,
    committed,
    high,
    observed,
    recorded,
    source,
    sql_table,
    statements,
    step,
    table,
    target,
)
from tests.plan.worlds import unchanged_target as unchanged

STATISTICS = {"layout": Layout(statistics=("amuont",)), "marks": {"layout.statistics": MARK}}
MISSPELT = [
    pytest.param({"layout": Layout(partition_by=("amuont",))}, "layout.partition_by", id="partition_by"),
    pytest.param({"layout": Layout(cluster_by=("amuont",))}, "layout.cluster_by", id="cluster_by"),
    pytest.param(STATISTICS, "layout.statistics", id="statistics"),
    pytest.param({"compare_ignore": ("amuont",)}, "compare.ignore", id="ignore"),
    pytest.param({"expect": (NotNull(column="amuont", mark=MARK),)}, "expect", id="expect"),
    pytest.param({"expect": (Freshness(column="amuont", within=60, zone="UTC", mark=MARK),)}, "expect", id="fresh"),
]
OF_SOURCE = [
    pytest.param({"deletes": DetectFlag("amuont")}, "deletes.column", id="deletes"),
    pytest.param({"read": ReadHints(split_by="amuont")}, "read.split_by", id="split_by"),
]


def first(spec: TableSpec) -> Step:
    return step(spec, observed(high(NEW)))


def later(spec: TableSpec) -> Step:
    return step(spec, observed(high(NEW), **unchanged()), recorded(spec, OLD))


@pytest.mark.parametrize("run", [first, later])
@pytest.mark.parametrize(("keys", "path"), MISSPELT)
def test_a_target_column(run: Any, keys: dict[str, Any], path: str) -> None:
    made = run(table(**keys))
    assert (action_of(made), made.reason) == ("stop", f'{path}: "amuont" is not a column of lake:orders')
    assert (made.hint, statements(made)) == ("Did you mean `amount`?", ())


@pytest.mark.parametrize("run", [first, later])
@pytest.mark.parametrize(("keys", "path"), OF_SOURCE)
def test_a_source_column(run: Any, keys: dict[str, Any], path: str) -> None:
    made = run(table(**keys))
    assert (action_of(made), made.reason) == ("stop", f'{path}: "amuont" is not a column of pg:public.orders')
    assert made.hint == "Did you mean `amount`?"


def test_names_of_the_target() -> None:
    """Renamed, added, and flowctl's own columns are named as the target has them."""
    rules = ColumnRules(rename={"amount": "price"}, add={"gross": "price * 1.21"}, types={"gross": "double"})
    right = Layout(partition_by=("is_current",), statistics=("gross",))
    keys = {"mode": "scd2", "key": ("id",), "columns": rules, "layout": right, "compare_ignore": ("price",)}
    assert action_of(first(table(**keys, marks={"layout.statistics": MARK}))) == "create"
    made = first(table(columns=rules, compare_ignore=("amount",)))
    assert made.reason == 'compare.ignore: "amount" is not a column of lake:orders'


def test_a_column_that_only_steers_may_be_left_out() -> None:
    """And flowctl's own choice of statistics is no name that somebody wrote."""
    flagged = source((*ORDERS, Column("gone", types.BOOL)))
    keys: dict[str, Any] = {
        "columns": ColumnRules(exclude=("gone", "updated_at")),
        "deletes": DetectFlag("gone"),
        "cursor": Cursor("updated_at"),
        "layout": Layout(statistics=("id", "updated_at")),
    }
    assert action_of(step(table(**keys), observed(high(NEW), flagged))) == "create"


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"layout": Layout(partition_by=("onne",))}, 'layout.partition_by: "onne" is not a column of lake:sums'),
        ({"mode": "merge", "key": ("onne",), "cursor": None}, 'key: "onne" is not a column of lake:sums'),
        (
            {"columns": ColumnRules(types={"one": "int"}, mask={"onne": "sha256"})},
            'columns.mask: "onne" is not a column',
        ),
    ],
)
def test_a_table_by_sql_whose_columns_are_declared(keys: dict[str, Any], reason: str) -> None:
    spec = sql_table("sums", **{"columns": ColumnRules(types={"one": "int"}), **keys})
    made = step(spec, observed(source=None))
    assert action_of(made) == "stop"
    assert made.reason.startswith(reason)


def test_columns_that_only_a_run_tells_are_compared_then() -> None:
    spec = sql_table("sums", layout=Layout(partition_by=("onne",)))
    made = step(spec, observed(source=None))
    assert (action_of(made), changes(made)) == ("create", None)


GONE = 'columns.{}: "email" is not a column of pg:public.orders'


EMAIL = Column("email", types.STRING)


@pytest.mark.parametrize("rule", ["mask", "exclude"])
def test_what_shall_not_be_seen_is_there_in_every_run(rule: str) -> None:
    """Under a new name it would be written as it is."""
    rules = ColumnRules(mask={"email": "sha256"}) if rule == "mask" else ColumnRules(exclude=("email",))
    spec = table(columns=rules)
    state = recorded(spec, OLD, definition={})
    there = replace(source(), columns=(*ORDERS, EMAIL))
    assert action_of(step(spec, observed(high(NEW), there, **unchanged()), state)) == "change"
    made = step(spec, observed(high(NEW), **unchanged()), state)
    assert (action_of(made), made.reason) == ("stop", GONE.format(rule))
    assert made.hint == 'Correct it, or take "email" out if it is gone for good'
    renamed = replace(source(), columns=(*ORDERS, Column("e_mail", types.STRING)))
    for before in (state, recorded(spec, OLD)):
        made = step(spec, observed(high(NEW), renamed, **unchanged()), before)
        assert made.reason == f'{GONE.format(rule)}, and "e_mail" is new there'
        assert made.hint == 'Write its new name instead of "email", if that is one; else take "email" out'


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_no_other_column_takes_over_the_name_of_a_renamed_one(mode: Mode) -> None:
    spec = table(columns=ColumnRules(rename={"note": "text"}), mode=mode)
    note, text = Column("note", types.STRING), Column("text", types.STRING)
    state = recorded(spec, OLD, schema=(*ORDERS, note))
    there = replace(source(), columns=(*ORDERS, text))
    made = step(spec, observed(high(NEW), there, **unchanged()), state)
    assert (action_of(made), made.reason) == (
        "stop",
        'columns.rename: "note" is no longer a column of pg:public.orders, and "text", its name in the target, is new '
        "there",
    )
    assert made.hint.startswith('Take the rename out if "text" is its new name, and continue with `flowctl state set ')
    assert made.hint.endswith('otherwise write "text" under another name with columns: {rename: {text: source_text}}')
    for fine in (
        table(columns=ColumnRules(rename={"note": "text", "text": "source_text"}), mode=mode),
        table(columns=ColumnRules(rename={"note": "text"}, exclude=("text",)), mode=mode),
    ):
        made = step(fine, observed(high(NEW), there, **unchanged()), replace(state, definition={}))
        assert "no longer a column" not in made.reason
    again = step(spec, observed(high(NEW), there, **unchanged()), state, PlanOptions(full_refresh=("orders",)))
    assert "no longer a column" not in again.reason


RENAMED, NOTE, TEXT = {"note": "text"}, Column("note", types.STRING), Column("text", types.STRING)


@pytest.mark.parametrize("mode", ["append", "merge", "truncate", "scd2"])
@pytest.mark.parametrize(
    ("rules", "before"),
    [
        pytest.param(ColumnRules(rename=RENAMED), (NOTE,), id="renamed"),
        pytest.param(ColumnRules(rename=RENAMED, mask={"note": "sha256"}), (NOTE,), id="masked"),
        pytest.param(ColumnRules(add={"text": "upper(note)"}, types={"text": "string"}), (NOTE,), id="added"),
        pytest.param(ColumnRules(rename={"id": "text"}), (), id="key"),
    ],
)
@pytest.mark.parametrize("at", [0, 9])
def test_no_column_takes_a_name_that_another_one_has_by_a_rule(
    mode: Mode, rules: ColumnRules, before: tuple[Column, ...], at: int
) -> None:
    """The column under that name would have the values of one of them, whichever is the last."""
    key = (rules.rename.get("id", "id"),)
    spec = table(columns=rules, mode=mode, key=key)
    was = (*ORDERS, *before)
    left = target((*(part.column for part in projection(spec, was)), *own_columns(spec).values()))
    state = recorded(spec, OLD, schema=was, target_columns=left.columns)
    now = [*was]
    now.insert(at, TEXT)
    seen = observed(high(NEW), source(tuple(now)), left, committed(position=OLD))
    for options in (PlanOptions(), PlanOptions(full_refresh=("orders",))):
        made = step(spec, seen, state, options)
        assert (action_of(made), made.reason) == ("stop", 'column names — column "text" collides with "text"')
        assert made.hint == "Rename or exclude it under `columns`"
    first = step(spec, observed(high(NEW), source(tuple(now))))
    assert (action_of(first), first.reason) == ("stop", made.reason)
    fine = table(columns=replace(rules, exclude=("text",)), mode=mode, key=key)
    assert "collides" not in step(fine, seen, replace(state, definition={})).reason


def test_an_excluded_column_may_go_as_long_as_none_comes() -> None:
    """Nothing is there that it could be under another name. A mask is of a column that is written, which has gone."""
    spec = table(columns=ColumnRules(exclude=("email",)))
    made = step(spec, observed(high(NEW), **unchanged()), recorded(spec, OLD))
    note = 'columns.exclude names "email", which pg:public.orders no longer has'
    assert (action_of(made), made.notes) == ("change", (note,))
    there = observed(high(NEW), replace(source(), columns=(*ORDERS, EMAIL)), **unchanged())
    assert step(spec, there, recorded(spec, OLD)).notes == ()
    masked = table(columns=ColumnRules(mask={"email": "sha256"}))
    made = step(masked, observed(high(NEW), **unchanged()), recorded(masked, OLD, schema=(*ORDERS, EMAIL)))
    assert made.reason == GONE.format("mask")


@pytest.mark.parametrize(
    "state",
    [
        pytest.param({"schema": ()}, id="no columns recorded"),
        pytest.param({"definition": {}}, id="another definition accepted"),
        pytest.param({"schema": ORDERS[:2]}, id="one new"),
    ],
)
def test_where_nothing_tells_that_an_excluded_column_has_gone_it_stops(state: dict[str, Any]) -> None:
    spec = table(columns=ColumnRules(exclude=("email",)))
    made = step(spec, observed(high(NEW), **unchanged()), recorded(spec, OLD, **state))
    assert made.reason.startswith(GONE.format("exclude"))
    refresh = PlanOptions(full_refresh=("orders",))
    other = recorded(table(columns=ColumnRules(exclude=("e_mail",))), OLD)
    assert step(spec, observed(high(NEW), **unchanged()), other, refresh).reason == GONE.format("exclude")


def test_an_excluded_cursor_may_not_go() -> None:
    spec = table(columns=ColumnRules(exclude=("updated_at",)))
    made = step(spec, observed(high(NEW), source(ORDERS[:2]), **unchanged()), recorded(spec, OLD))
    assert action_of(made) == "stop"


def test_files_may_lack_what_shall_not_be_seen_as_long_as_nothing_else_is_new() -> None:
    spec = table(columns=ColumnRules(exclude=("email",)))
    seen = observed(high(FilesPosition(())), positions="files", **unchanged())
    assert action_of(step(spec, seen, recorded(spec, None))) != "stop"
    assert step(spec, seen, recorded(spec, None, definition={})).reason == GONE.format("exclude")
    added = replace(seen, source=replace(source(), columns=(*ORDERS, Column("e_mail", types.STRING))))
    assert step(spec, added, recorded(spec, None)).reason.startswith(GONE.format("exclude"))


def test_a_file_that_lacks_a_column() -> None:
    """Other files have it, so it is not gone from the source."""
    here = replace(source(), lacking={"email": "2026/3.csv"})
    seen = observed(high(FilesPosition(())), here, positions="files", **unchanged())
    strict = SchemaPolicies(dropped_column="fail")
    assert action_of(step(table(), seen, recorded(table(), None))) != "stop"
    stopped = step(table(on_schema_change=strict), seen, recorded(table(), None))
    assert stopped.reason == 'dropped_column: fail — 2026/3.csv has no column "email"'
    spared = table(on_schema_change=strict, columns=ColumnRules(exclude=("email",)))
    assert action_of(step(spared, seen, recorded(spared, None))) != "stop"


@pytest.mark.parametrize("rule", ["mask", "exclude"])
def test_files_that_have_another_column_instead_of_what_shall_not_be_seen(rule: str) -> None:
    """They come in one run with files that have it, or after them."""

    def made(columns: tuple[Column, ...], *protected: str, **state: Any) -> Step:
        masked = dict.fromkeys(protected, "sha256")
        spec = table(columns=ColumnRules(mask=masked) if rule == "mask" else ColumnRules(exclude=protected))
        here = replace(source((*ORDERS, *columns)), only_without={"email": ("e_mail",), "e_mail": ("email",)})
        if not state:
            return step(spec, observed(high(FilesPosition(())), here, positions="files"))
        seen = observed(high(FilesPosition(())), here, positions="files", **unchanged())
        return step(spec, seen, recorded(spec, None, **state))

    email, e_mail = (Column(name, types.STRING) for name in ("email", "e_mail"))
    for state in ({}, {"schema": (*ORDERS, email)}):
        stopped = made((email, e_mail), "email", **state)
        assert stopped.reason.endswith('some files of pg:public.orders lack "email", and only those have "e_mail"')
        assert stopped.hint.startswith('Write "e_mail" there too')
        assert "some files" not in made((email, e_mail), "email", "e_mail", **state).reason
    assert "some files" not in made((email, e_mail), "email", schema=(*ORDERS, email, e_mail)).reason
