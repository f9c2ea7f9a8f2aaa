"""Which engine a run starts: created for `apply`, and described in one line below the plan from the same figures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from urllib.parse import urlsplit

from flowctl.connectors import registry
from flowctl.connectors.base import Capabilities
from flowctl.engine import cost
from flowctl.engine.base import Engine
from flowctl.engine.conf import is_connect, is_sail
from flowctl.engine.cost import Size, is_interpreted, size_of_run
from flowctl.engine.lazy import LazyEngine
from flowctl.errors import TableError, TransientError
from flowctl.model.step import Load, Plan, Recover
from flowctl.model.table_info import RowEstimate
from flowctl.observe.world import Observed, World
from flowctl.spec.secrets import reveal
from flowctl.spec.spec import SparkSettings, Spec, TableSpec
from flowctl.storage.options import deltalake_options, hadoop_conf, store_of
from flowctl.text import counted

#: The JVM's compiler for each size, as chosen in :mod:`flowctl.engine.conf`.
_COMPILERS: dict[Size, str] = {"small": "quick compiler", "medium": "quick compiler", "large": "optimising compiler"}


def engine_for(
    spec: Spec,
    tables: Iterable[TableSpec],
    loads: Mapping[str, int | None],
    verbose: bool,
    say: Callable[[str], None],
) -> LazyEngine:
    """The engine for one run of ``tables``, with the flow's jars and a JVM sized by ``loads``, keyed by table id."""
    extensions = [capabilities.spark for capabilities in _capabilities(spec, tables) if capabilities.spark]
    urls, _ = _urls(spec)
    conf = {key: value for url in urls for key, value in hadoop_conf(url, spec.storage).items()}
    environment = {key: value for url in urls for key, value in deltalake_options(url, spec.storage).items()}
    jars = jars_for(spec).sets

    def start(stack: ExitStack) -> Engine:
        from flowctl.engine.start import open_engine

        return stack.enter_context(
            open_engine(
                spec.spark,
                jars,
                conf,
                size_of_run(loads.values()),
                extensions=extensions,
                storage_environment=environment,
                verbose=verbose,
                say=say,
            )
        )

    return LazyEngine(start, loads)


@dataclass(frozen=True)
class NeededJars:
    """Names of jar sets. ``unknown`` are connections whose location is a secret that cannot be read here, so that
    what its storage needs is not known."""

    sets: frozenset[str]
    unknown: tuple[str, ...] = ()


def jars_for(spec: Spec) -> NeededJars:
    """The jar sets of the flow's engine: none for Sail, or for a server that has its own. They are those of all tables,
    whatever a run selects: one class path then has one class-data archive."""
    if is_sail(spec.spark.url) or is_connect(spec.spark.url):
        return NeededJars(frozenset())
    urls, unknown = _urls(spec)
    connectors = {jar for capabilities in _capabilities(spec, spec.tables) for jar in capabilities.jars}
    return NeededJars(frozenset(connectors | {jar for url in urls for jar in store_of(url).jars}), unknown)


def _capabilities(spec: Spec, tables: Iterable[TableSpec]) -> list[Capabilities]:
    types = {spec.connections[name].type for table in tables for name in table.connections}
    return [registry.capabilities(kind) for kind in sorted(types)]


def engine_line(settings: SparkSettings, plan: Plan, world: World) -> str:
    """Describes the engine that will run; empty if none will: no table has anything to do, or only state is
    repaired, or all rows are passed on undecoded."""
    transfers = [step for step in plan.all_steps if isinstance(step, Load | Recover)]
    todo = [step for step in transfers if step.table.via != "undecoded"]
    if not todo:
        return ""
    rows = rows_of_run(todo, world.tables).values()
    if is_sail(settings.url):
        return f"Sail will start, an engine without a JVM ({_rows(rows)})"
    if is_connect(settings.url):  # only the host: the URL may contain a token
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


def _urls(spec: Spec) -> tuple[list[str], tuple[str, ...]]:
    """Every location that Spark may have to access: state (the buffer) and the roots of file connections. The second
    are the names of connections whose root is a secret that cannot be read; the tables that need them report it."""
    urls, unknown = [spec.state.url], list[str]()
    for name, connection in spec.connections.items():
        try:
            root = reveal(registry.storage(connection))
        except (TableError, TransientError):
            unknown.append(name)
        else:
            urls += [str(root)] if root is not None else []
    return urls, tuple(unknown)


def rows_of_run(todo: Iterable[Load | Recover], tables: Mapping[str, Observed]) -> dict[str, int | None]:
    """The rows in play of each table that runs, by table id; None if unknown."""
    return _by_table((step.id, rows_in_play(step, tables[step.id])) for step in todo)


def load_of_run(todo: Iterable[Load | Recover], tables: Mapping[str, Observed]) -> dict[str, int | None]:
    """The load of each table that runs, by table id; None if unknown."""
    return _by_table((step.id, _load(step, tables[step.id])) for step in todo)


def rows_in_play(step: Load | Recover, observed: Observed) -> int | None:
    target = observed.target.rows.value if observed.target else None
    return cost.in_play(cost.batch_rows(step.rows, observed.source), target, step.table.mode)


def _load(step: Load | Recover, observed: Observed) -> int | None:
    columns = len(observed.source.columns) if observed.source else len(step.columns.target)

    def load(rows: RowEstimate | None) -> int | None:
        return cost.load_of(rows, columns) if rows is not None else None

    batch, target = load(step.rows), load(observed.target.rows if observed.target else None)
    if batch is None:
        batch = load(observed.source.rows if observed.source else None)
    return cost.in_play(batch, target, step.table.mode)


def _by_table(sizes: Iterable[tuple[str, int | None]]) -> dict[str, int | None]:
    """The maximum over a table's steps, which run one after the other; None if one is unknown."""
    found: dict[str, int | None] = {}
    for id, size in sizes:
        other = found.get(id, 0)
        found[id] = None if size is None or other is None else max(size, other)
    return found
