"""Which engine a run will start, and why: one line for people below the plan, from what `apply` decides by."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from flowctl.engine.conf import Size, is_connect, is_sail
from flowctl.model.step import RUNNABLE, Plan
from flowctl.observe.world import World
from flowctl.run.sizing import is_interpreted, load_of_run, rows_of_run, size_of_run
from flowctl.spec.spec import SparkSettings

#: What follows from the size in :mod:`flowctl.engine.conf`.
_COMPILERS: dict[Size, str] = {"small": "quick compiler", "medium": "quick compiler", "large": "optimising compiler"}


def engine_line(settings: SparkSettings, plan: Plan, world: World) -> str:
    """Empty when nothing starts: no table has anything to do, or only state is repaired."""
    todo = [step for step in plan.steps if step.action in RUNNABLE]
    if all(step.record_only for step in todo):
        return ""
    rows = rows_of_run(todo, world.tables).values()
    if is_sail(settings.url):
        return f"Sail will start, an engine without a JVM ({_rows(rows)})"
    if is_connect(settings.url):  # whose URL may hold a token
        return f"The Spark Connect server at {urlsplit(settings.url).hostname} will run it ({_rows(rows)})"
    where = "" if settings.url == SparkSettings().url else f" on {settings.url}"
    loads = load_of_run(todo, world.tables).values()
    size = size_of_run(loads)
    how = f"{_queries(size, loads)}, {_COMPILERS[size]}"
    return f"Spark will start{where} for a {size} run ({_rows(rows)}): {how}"


def _rows(rows: Collection[int | None]) -> str:
    known = [count for count in rows if count is not None]
    unknown = len(rows) - len(known)
    parts = [f"≈ {_counted(sum(known), 'row')}"] if known else []
    return ", ".join([*parts, f"{_counted(unknown, 'table')} not counted"] if unknown else parts)


def _queries(size: Size, loads: Collection[int | None]) -> str:
    if size == "small":
        return "interpreted queries"
    small = sum(is_interpreted(load) for load in loads)
    return "compiled queries" + (f" but for {_counted(small, 'small table')}" if small else "")


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
