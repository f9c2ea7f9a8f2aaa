"""Which engine a run starts: made for `apply`, and explained in one line below the plan by the same figures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

from flowctl.connectors import registry
from flowctl.engine.base import Engine
from flowctl.engine.conf import is_connect, is_sail
from flowctl.engine.cost import Size, is_interpreted, size_of_run
from flowctl.engine.lazy import LazyEngine
from flowctl.errors import TableError
from flowctl.model.step import Plan, RecordOnly
from flowctl.observe.world import World
from flowctl.run.sizing import load_of_run, rows_of_run
from flowctl.spec.secrets import reveal
from flowctl.spec.spec import SparkSettings, Spec, TableSpec
from flowctl.storage.options import deltalake_options, hadoop_conf, store_of
from flowctl.text import counted

#: What follows from the size in :mod:`flowctl.engine.conf`.
_COMPILERS: dict[Size, str] = {"small": "quick compiler", "medium": "quick compiler", "large": "optimising compiler"}


def engine_for(
    spec: Spec,
    tables: Iterable[TableSpec],
    loads: Mapping[str, int | None],
    verbose: bool,
    say: Callable[[str], None],
) -> LazyEngine:
    """The engine for one run: jars of the connections in use, JVM by their load."""
    types = {spec.connections[name].type for table in tables for name in table.connections}
    jars = {jar for kind in types for jar in registry.capabilities(kind).jars}
    urls = _urls(spec)
    conf = {key: value for url in urls for key, value in hadoop_conf(url, spec.storage).items()}
    environment = {key: value for url in urls for key, value in deltalake_options(url, spec.storage).items()}
    jars |= {jar for url in urls for jar in store_of(url).jars}

    def start(stack: ExitStack) -> Engine:
        from flowctl.engine.start import open_engine

        return stack.enter_context(
            open_engine(
                spec.spark,
                jars,
                conf,
                size_of_run(loads.values()),
                storage_environment=environment,
                verbose=verbose,
                say=say,
            )
        )

    return LazyEngine(start, loads)


def engine_line(settings: SparkSettings, plan: Plan, world: World) -> str:
    """Empty when nothing starts: no table has anything to do, or only state is repaired."""
    todo = [step for step in plan.runnable if not isinstance(step, RecordOnly)]
    if not todo:
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
    parts = [f"≈ {counted(sum(known), 'row')}"] if known else []
    return ", ".join([*parts, f"{counted(unknown, 'table')} not counted"] if unknown else parts)


def _queries(size: Size, loads: Collection[int | None]) -> str:
    if size == "small":
        return "interpreted queries"
    small = sum(is_interpreted(load) for load in loads)
    return "compiled queries" + (f" but for {counted(small, 'small table')}" if small else "")


def _urls(spec: Spec) -> list[str]:
    """Every place Spark may have to reach: state (the buffer) and the roots of file connections. One whose secret is
    not there is none; the tables that need it say so."""
    roots = []
    for connection in spec.connections.values():
        with suppress(TableError):
            roots.append(reveal(registry.storage(connection)))
    return [spec.state.url, *[str(root) for root in roots if root is not None]]
