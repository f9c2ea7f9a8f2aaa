"""What the plan says of the engine: the one that `apply` starts, of the size that it gives it."""

from __future__ import annotations

import pytest

from flowctl.model.interval import Interval
from flowctl.model.step import RecordOnly
from flowctl.run.engine import engine_line
from flowctl.spec.spec import SparkSettings
from tests.plan.worlds import committed, cursor, high, intent, observed, plan, recorded, table, target, world

OLD, NEW = cursor("2026-11-19T22:10:04Z"), cursor("2026-11-20T06:15:33Z")
SMALL, MEDIUM, LARGE = 1_200, 370_000, 6_001_215


def line(*rows: int | None, url: str = SparkSettings().url) -> str:
    tables = {f"t{at}": observed(high(NEW, count)) for at, count in enumerate(rows)}
    seen = world(tables)
    return engine_line(SparkSettings(url), plan(seen, *map(table, tables)), seen)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([SMALL], "Spark will start for a small run (≈ 1,200 rows): interpreted queries, quick compiler"),
        ([1], "Spark will start for a small run (≈ 1 row): interpreted queries, quick compiler"),
        ([LARGE], "Spark will start for a large run (≈ 6,001,215 rows): compiled queries, optimising compiler"),
        ([None], "Spark will start for a medium run (1 table not counted): compiled queries, quick compiler"),
        (
            [MEDIUM, SMALL, None],
            "Spark will start for a medium run (≈ 371,200 rows, 1 table not counted): "
            "compiled queries but for 1 small table, quick compiler",
        ),
    ],
)
def test_spark_and_its_size(rows: list[int | None], told: str) -> None:
    assert line(*rows) == told


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("spark://boss:7077", "Spark will start on spark://boss:7077 for a small run (≈ 1,200 rows): "),
        ("sail", "Sail will start, an engine without a JVM (≈ 1,200 rows)"),
        ("sc://spark:15002/;token=secret", "The Spark Connect server at spark will run it (≈ 1,200 rows)"),
    ],
)
def test_other_engines(url: str, told: str) -> None:
    """A token in the URL is not shown."""
    assert line(SMALL, url=url).startswith(told)


def test_nothing_starts_when_nothing_runs() -> None:
    spec = table()
    idle = world({"orders": observed(high(OLD), target=target(), commit=committed(position=OLD))}, {
        "orders": recorded(spec, OLD)
    })  # fmt: skip
    assert engine_line(SparkSettings(), plan(idle, spec), idle) == ""


def test_nothing_starts_when_only_state_is_mended() -> None:
    spec = table()
    begun = recorded(spec, OLD, intent=intent(spec, Interval(OLD, NEW, "updated_at")), highest=4)
    seen = world({"orders": observed(high(NEW), target=target(), commit=committed(4, "i4", NEW))}, {"orders": begun})
    made = plan(seen, spec)
    assert isinstance(made.steps[0], RecordOnly)
    assert engine_line(SparkSettings(), made, seen) == ""
