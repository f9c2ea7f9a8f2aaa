"""Plans as people and programs read them: `tests/golden/plan/<name>.{txt,json}`, and plans that come back from JSON.

`FLOWCTL_UPDATE_GOLDEN=1` writes the files anew; look at the difference before you commit it.
"""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

from flowctl.cli.output import styled
from flowctl.diagnostics import Mark
from flowctl.errors import TransientError
from flowctl.expect.not_null import NotNull
from flowctl.expect.rows import Rows
from flowctl.model import types
from flowctl.model.effects import CountedEffects, Effects, PreventedEffects, SampleRow, UnknownEffects
from flowctl.model.interval import Interval
from flowctl.model.position import FilesPosition, FileStamp, NoPosition, OffsetsPosition, UpstreamPosition
from flowctl.model.step import Load, Plan
from flowctl.model.table_info import Column, RowEstimate
from flowctl.plan.document import from_json, to_json
from flowctl.plan.render import View, render
from flowctl.plan.upstream import shape_read
from flowctl.resolve.resolve import PlanOptions
from flowctl.spec.spec import (
    Cursor,
    DetectMissingKeys,
    Guard,
    Layout,
    ObjectSource,
    SchemaPolicies,
    SqlSource,
    TopicSource,
)
from flowctl.text import plain
from tests.plan.worlds import (
    MARK,
    ORDERS,
    committed,
    cursor,
    high,
    intent,
    observed,
    plan,
    recorded,
    source,
    sql_table,
    table,
    target,
    world,
)  # fmt: skip

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "plan"
OLD, NEW = cursor("2026-11-19T22:10:04.120000Z"), cursor("2026-11-20T06:15:33.001000Z")
BETWEEN = cursor("2026-11-20T01:00:00Z")
DISCOUNT = Column("discount", types.Decimal(12, 2))
VAT = Column("vat", types.INT32)


def first_run() -> Plan:
    files = FilesPosition((FileStamp("invoices/a.csv", 120, "t1"), FileStamp("invoices/b.csv", 80, "t2")))
    layout = Layout(statistics=("id", "updated_at"))
    orders = table(cursor=Cursor("updated_at", start="2020-01-01T00:00:00Z"), layout=layout)
    customers = table("customers", mode="scd2", key=("id",), valid_from="updated_at", expect=(
        NotNull(column="id", mark=MARK), Rows(least=1, on_fail="warn", mark=MARK),
    ))  # fmt: skip
    invoices = table("invoices", mode="append", source=ObjectSource("files", ("invoices/*.csv",), is_glob=True))
    seen = {
        "orders": replace(observed(high(NEW)), reading="read in ≈ 4 parts of one snapshot (34 MB)"),
        "customers": observed(replace(high(NoPosition()), rows=RowEstimate(150_000, "stats"))),
        "invoices": observed(high(files, rows=None), positions="files"),
        "daily": observed(source=None),
    }
    return plan(world(seen), orders, customers, invoices, sql_table("daily", "orders"))


def second_run() -> Plan:
    orders = table(
        cursor=Cursor("updated_at", lag=900),
        deletes=DetectMissingKeys(every=86400, action="hard"),
        guard=Guard(max_deleted=0.05),
    )
    invoices = table("invoices", mode="append", on_schema_change=SchemaPolicies(dropped_column="fail"))
    daily, quiet, lost = sql_table("daily", "orders"), table("quiet"), table("lost")
    states = {
        "orders": recorded(orders, OLD, deletes_checked_at="2026-11-18T00:00:00.000000Z"),
        "invoices": recorded(
            invoices, NoPosition(), schema=(*ORDERS, VAT), target_columns=target((*ORDERS, VAT)).columns
        ),
        "daily": recorded(
            daily,
            UpstreamPosition((("orders", 3),)),
            schema=(VAT,),
            target_columns=(VAT,),
            upstream_shape=shape_read(SqlSource("SELECT 1 AS one", ("orders",)), {"orders": ORDERS}),
        ),
        "quiet": recorded(quiet, OLD),
        "lost": recorded(lost, OLD),
        "former": recorded(table("former"), OLD),
    }
    seen = {
        "orders": observed(high(NEW), source((*ORDERS, DISCOUNT)), target(), committed(position=OLD)),
        "invoices": observed(
            high(NoPosition()),
            source(),
            target((*ORDERS, VAT)),
            committed(table="invoices", position=NoPosition()),
        ),
        "daily": observed(None, None, target((VAT,)), committed(table="daily")),
        "quiet": observed(high(OLD), target=target(), commit=committed(table="quiet", position=OLD)),
        "lost": observed(error=TransientError("pg: connection refused (db:5432)", hint="Is the server up?")),
    }
    tables = (orders, replace(invoices, marks={"on_schema_change": Mark("spec.yaml", 61, 5)}), daily, quiet, lost)
    return plan(world(seen, states), *tables)


def nothing_to_do() -> Plan:
    seen = {"orders": observed(high(OLD), target=target(), commit=committed(position=OLD))}
    return plan(world(seen, {"orders": recorded(table(), OLD)}), table())


def interrupted_and_refreshed() -> Plan:
    begun = Interval(OLD, NEW, "updated_at", read_from=OLD.at)
    until = Interval(OLD, BETWEEN, "updated_at", read_from=OLD.at)
    landed, pending, anew, adopted, since = (table(id) for id in ("landed", "pending", "anew", "adopted", "since"))
    drifted = target((*ORDERS, Column("remark", types.STRING)))
    states = {
        "landed": recorded(landed, OLD, intent=intent(landed, begun), highest=4),
        "pending": recorded(pending, OLD, intent=intent(pending, begun), highest=4),
        "anew": recorded(anew, OLD, intent=intent(anew, begun), highest=4),
        "since": recorded(since, OLD, intent=intent(since, until), highest=4),
    }
    seen = {
        "landed": observed(high(NEW), target=target(version=8), commit=committed(4, "i4", NEW, table="landed")),
        "pending": observed(high(NEW), target=drifted, commit=committed(table="pending", position=OLD)),
        "anew": observed(high(NEW), target=target(), commit=committed(table="anew", position=OLD)),
        "adopted": observed(high(NEW), target=target(identity="delta-2")),
        "since": observed(high(NEW), target=target(), commit=committed(table="since", position=OLD)),
    }
    return plan(world(seen, states), landed, pending, anew, adopted, since, request=PlanOptions(full_refresh=("anew",)))


def topics() -> Plan:
    """Long backlogs: the first run of one table, a run after an interrupted one of another."""

    def at(*offsets: int) -> OffsetsPosition:
        return OffsetsPosition(tuple(enumerate(offsets)))

    clicks = table("clicks", mode="append", source=TopicSource("bus", ("clicks",)), cursor=None, key=())
    views = replace(clicks, id="views", source=TopicSource("bus", ("views",)), batch_rows=1000)
    begun = intent(views, Interval(at(100, 80), at(600, 580)))
    first, new = high(at(7_000_000, 5_000_000), start=at(0, 0), oldest=at(0, 0)), high(at(1600, 1580), oldest=at(0, 0))
    seen = {
        "clicks": observed(first, positions="offsets"),
        "views": observed(
            replace(new, start=at(0, 0)),
            positions="offsets",
            target=target(),
            commit=committed(table="views", position=at(100, 80)),
        ),
    }
    return plan(world(seen, {"views": recorded(views, at(100, 80), intent=begun, highest=4)}), clicks, views)


def dry_run() -> Plan:
    counted = CountedEffects(
        "2026-11-20T06:16:00.500000Z", 1200, 3, 1, 976, {"note": 1, "status of the order": 3}, {"amount: not_null": 2},
        ("expectation id: unique: 2 rows",),
        (
            SampleRow("insert", {"id": "1001", "day": None}, {}, {"note": "\x1b[2J", "status of the order": "x" * 60}),
            SampleRow("update", {"id": "7", "day": "2026-01-01"}, {"note": None}, {"note": "a"}),
            SampleRow("delete", {"id": "12", "day": None}, {"note": "gone"}, {}),
        ),
    )  # fmt: skip
    stopped = "guard.max_deleted 10%: 60 of 80 rows would be deleted"
    prevented = PreventedEffects(counted.at, stopped, "Look at the source", 6)
    unknown = UnknownEffects("depends on orders, which this run changes")
    effects: dict[str, Effects] = {"orders": counted, "people": prevented, "daily": unknown}
    seen = {"people": observed(high(NEW), target=target(), commit=committed(table="people", position=OLD))}
    people = plan(world(seen, {"people": recorded(table("people"), OLD)}), table("people"))
    made = replace(second_run(), steps=(*second_run().steps, *people.steps))
    return replace(
        made,
        steps=tuple(
            replace(step, effects=effects[step.id]) if isinstance(step, Load) and step.id in effects else step
            for step in made.steps
        ),
    )


PLANS = {
    plan.__name__: plan for plan in (first_run, second_run, nothing_to_do, interrupted_and_refreshed, topics, dry_run)
}


def shown_as(made: Plan, view: View) -> str:
    return plain(render(made, view))


def held(path: Path, found: str) -> None:
    if os.environ.get("FLOWCTL_UPDATE_GOLDEN"):
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PLANS)
def test_text(name):
    view = View(command="flowctl apply spec.yaml --plan plan.json", is_saved=True)
    held(GOLDEN / f"{name}.txt", shown_as(PLANS[name](), view) + "\n")


@pytest.mark.parametrize("name", PLANS)
def test_text_with_everything(name):
    held(GOLDEN / f"{name}.verbose.txt", shown_as(PLANS[name](), View(ddl=True, verbose=True)) + "\n")


@pytest.mark.parametrize("name", PLANS)
def test_json(name):
    held(GOLDEN / f"{name}.json", json.dumps(to_json(PLANS[name]()), indent=2, ensure_ascii=False) + "\n")


@pytest.mark.parametrize("name", PLANS)
def test_json_is_as_published(name):
    schema = json.loads((ROOT / "schemas" / "plan.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(to_json(PLANS[name]()), schema)


@pytest.mark.parametrize("name", PLANS)
def test_a_saved_plan_is_the_very_same_plan(name):
    made = PLANS[name]()
    assert from_json(json.loads(json.dumps(to_json(made)))) == made


def test_a_plan_that_an_older_flowctl_saved_is_read():
    """It said more of a stopped table, which nothing is done with."""
    document = json.loads((GOLDEN / "second_run_older.json").read_text(encoding="utf-8"))
    assert from_json(document) == replace(second_run(), flowctl=document["flowctl"])


def test_a_plan_that_does_not_say_how_is_read_all_the_same():
    """As the first version of the format was saved."""
    document = to_json(first_run())
    for step in document["steps"]:
        del step["how"]
    assert {step.how for step in from_json(document).steps} == {()}


def test_the_engine_stands_above_the_last_line():
    last = "Nothing was changed. Apply it with: flowctl apply spec.yaml"
    view = View(engine="Spark starts")
    assert shown_as(first_run(), replace(view, command="flowctl apply spec.yaml")).endswith(f"\nSpark starts\n{last}")
    assert shown_as(first_run(), view).endswith("\nSpark starts")


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("width", [40, 72, 100])
def test_no_line_is_wider_than_the_view(name, width, verbose):
    """But for commands, which have to work when they are pasted."""
    long = "a_name_of_more_than_sixty_characters_as_some_systems_generate_them"
    made = PLANS[name]()
    tables = (replace(step.table, id=f"{step.id}_{long}") for step in made.steps)
    renamed = replace(made, steps=tuple(map(lambda step, table: replace(step, table=table), made.steps, tables)))
    for wide in (made, renamed):
        shown = shown_as(wide, View(width, ddl=verbose, verbose=verbose, engine="Spark will start " * 9)).splitlines()
        assert all(len(line) <= width or "`flowctl " in line for line in shown)


def test_what_was_chosen_is_wrapped_between_words():
    step = replace(first_run().steps[0], how=("staged", "statistics for " + ", ".join(["a-column"] * 16)))
    lines = shown_as(replace(first_run(), steps=(step,)), View(verbose=True)).splitlines()
    shown = lines[next(at for at, line in enumerate(lines) if line.startswith("    how ")) :][:3]
    assert [line[:15].strip() for line in shown] == ["how", "", ""]
    assert " ".join(line[15:].strip() for line in shown) == "; ".join(step.how)


@pytest.mark.parametrize("name", PLANS)
def test_a_terminal_shows_the_same_text(name):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, color_system=None, soft_wrap=True, highlight=False)
    view = View(command="flowctl apply spec.yaml")
    console.print(styled(render(PLANS[name](), view)))
    shown = [line.rstrip() for line in screen.getvalue().rstrip("\n").split("\n")]
    assert "\n".join(shown) == shown_as(PLANS[name](), view)
