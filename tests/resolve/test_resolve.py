"""From entries to tables: patterns, edges, selection."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.diagnostics import Mark
from flowctl.errors import UsageError
from flowctl.model.table_info import ObjectName
from flowctl.resolve import dag
from flowctl.resolve.expand import expand
from flowctl.resolve.select import matching, selected
from flowctl.spec.semantics import cycles, unknown_references
from flowctl.spec.spec import ColumnRules, ObjectSource, SqlSource, TableSpec, TargetRef

MARK = Mark("spec.yaml", 10, 3)


def entry(id, source=None, **keys):
    given = {
        "source": source or ObjectSource("pg", ("public", id)),
        "target": TargetRef("lake", ("${id}",)),
        "mode": "truncate",
        "mark": MARK,
        **keys,
    }
    return TableSpec(id=id, **given)


def pattern(id="raw_${table}", **keys):
    return entry(id, ObjectSource("pg", ("public", "*"), is_glob=True), **keys)


def objects(*names, schema="public"):
    return [ObjectName((schema, name)) for name in names]


def made(expansion):
    return {table.id: table for table in expansion.tables}


def messages(found):
    return [finding.message for finding in found]


def test_a_pattern_makes_one_table_per_object_with_its_placeholders_filled_in():
    spec = pattern(where="'${schema}.${table}' <> '$${id}'", columns=ColumnRules(add={"source": "'${connection}'"}))
    tables = made(expand([spec], {spec.id: objects("a", "b")}))
    assert list(tables) == ["raw_a", "raw_b"]
    assert tables["raw_a"].source == ObjectSource("pg", ("public", "a"))
    assert tables["raw_a"].target == TargetRef("lake", ("raw_a",))
    assert tables["raw_a"].where == "'public.a' <> '${id}'"
    assert tables["raw_a"].columns.add == {"source": "'pg'"}


def test_files_give_their_name_without_extensions_and_their_folder():
    spec = entry("${schema}_${table}", ObjectSource("files", ("in/*",), is_glob=True))
    assert list(made(expand([spec], {spec.id: [ObjectName(("in/day/sales.csv.gz",))]}))) == ["day_sales"]


def test_excluded_objects_and_exact_entries_are_left_out():
    spec, exact = pattern(exclude=("tmp_*", "public.secret")), entry("raw_orders", mode="append")
    tables = made(expand([spec, exact], {spec.id: objects("a", "orders", "secret", "tmp_1")}))
    assert list(tables) == ["raw_a", "raw_orders"]
    assert tables["raw_orders"].mode == "append"


def test_a_name_that_looks_like_a_placeholder_is_read_under_its_own_name():
    spec = pattern("of_${schema}")
    for name in ("${id}", "$${x}"):
        (table,) = expand([spec], {spec.id: objects(name)}).tables
        assert (table.id, table.source.parts) == ("of_public", ("public", name))


def test_a_pattern_that_could_not_be_listed_makes_nothing_and_says_nothing():
    assert expand([pattern()], {}) == expand([], {})


def test_bad_and_repeated_ids_name_the_object_and_both_places():
    first, second = pattern(), pattern("raw_${table}", mark=Mark("more.yaml", 4, 3))
    found = expand([first], {first.id: objects("line items")}).diagnostics
    assert messages(found) == ["pg:public.line items gives the id 'raw_line items', which is not a valid id"]
    (long,) = expand([first], {first.id: objects("x" * 251, "x" * 252)}).diagnostics
    assert f"gives the id 'raw_{'x' * 252}'" in long.message and "up to 255 letters" in long.hint
    twice = expand([first, second], {first.id: objects("A", "a")}).diagnostics
    assert "pg:public.a gives the id 'raw_a', which pg:public.A at spec.yaml:10:3 gives too" in messages(twice)


def test_a_pattern_without_a_match_is_told_unless_that_may_be():
    found = expand([pattern()], {"raw_${table}": []})
    assert (found.tables, found.unmatched, found.diagnostics) == ((), (pattern(),), ())
    assert expand([replace(pattern(), allow_none=True)], {"raw_${table}": []}).unmatched == ()


def sql(id, *refs):
    return entry(id, SqlSource("", tuple(sorted(refs))))


def test_order_is_by_edges_and_then_by_id():
    tables = [sql("a", "z"), entry("z"), sql("b", "a", "z"), entry("c")]
    assert [table.id for table in dag.in_order(tables)] == ["c", "z", "a", "b"]


def test_a_cycle_is_told_once_with_its_path():
    tables = [sql("a", "b"), sql("b", "c"), sql("c", "a"), sql("d", "a"), sql("e", "e")]
    assert messages(cycles(tables)) == ["tables read each other: a → b → c → a", "tables read each other: e → e"]


def test_an_unknown_reference_gets_a_suggestion():
    (found,) = unknown_references([sql("daily", "ordrs"), entry("orders")], ["daily", "orders"], [])
    assert (found.message, found.hint) == (
        "`daily` reads `ordrs`, which is not a table of this flow",
        "Did you mean `orders`?",
    )


def test_a_pattern_that_was_not_listed_may_have_the_table():
    assert messages(unknown_references([sql("daily", "raw_orders")], [], ["raw_${table}"])) == []


#: raw → clean → daily, weekly; other stands alone.
EDGES = dag.needs([entry("raw"), sql("clean", "raw"), sql("daily", "clean"), sql("weekly", "clean"), entry("other")])


@pytest.mark.parametrize(
    ("select", "exclude", "chosen"),
    [
        ([], [], {"raw", "clean", "daily", "weekly", "other"}),
        (["daily"], [], {"daily"}),
        (["*ly"], [], {"daily", "weekly"}),
        (["+daily"], [], {"raw", "clean", "daily"}),
        (["clean+"], [], {"clean", "daily", "weekly"}),
        (["+clean+"], [], {"raw", "clean", "daily", "weekly"}),
        (["daily", "other"], [], {"daily", "other"}),
        ([], ["clean+"], {"raw", "other"}),
        (["+daily"], ["raw"], {"clean", "daily"}),
    ],
)
def test_selection(select, exclude, chosen):
    assert selected(EDGES, select, exclude) == chosen


@pytest.mark.parametrize(("select", "exclude"), [(["dayly"], []), ([], ["nope*"]), (["daily"], ["daily"])])
def test_a_term_without_a_match_is_a_usage_error(select, exclude):
    with pytest.raises(UsageError):
        selected(EDGES, select, exclude)


ALL = frozenset(EDGES)


@pytest.mark.parametrize(
    ("terms", "within", "meant"),
    [
        (["daily"], ALL, {"daily"}),
        (["*"], ALL, set(ALL)),
        (["*ly", "raw"], ALL, {"daily", "weekly", "raw"}),
        (["clean+"], ALL, {"clean", "daily", "weekly"}),
        (["*ly"], frozenset({"daily", "raw"}), {"daily"}),
        (["daily", "daily"], ALL, {"daily"}),
        ([], ALL, set()),
    ],
)
def test_full_refresh_takes_terms_as_select_does(terms, within, meant):
    assert matching(EDGES, terms, "--full-refresh", within=within) == meant


@pytest.mark.parametrize(
    ("term", "told"),
    [
        ("dayly", "no table matches"),
        ("", "names no table"),
        ("++", "names no table"),
        ("raw", "not among"),
    ],
)
def test_a_refresh_of_nothing_is_a_usage_error(term, told):
    with pytest.raises(UsageError, match=told):
        matching(EDGES, [term], "--full-refresh", within=frozenset({"daily"}))
    if term != "raw":
        with pytest.raises(UsageError, match=told):
            selected(EDGES, [term], [])
