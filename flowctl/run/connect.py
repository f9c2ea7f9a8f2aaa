"""`validate --connect`: checks everything that would prevent a run from succeeding, without doing any of its work.

What the plan stops for is reported in the plan's own words, with the line of the spec. It also checks the engine, the
location of the state, and whether the targets are writable. It reads no rows and writes nothing. It starts an engine
only if that runs on other machines and a target needs Python modules there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowctl.connectors import registry
from flowctl.diagnostics import Diagnostic, in_order
from flowctl.engine import java, sail
from flowctl.engine.conf import is_connect, is_local, is_sail
from flowctl.errors import ExitCode, FlowctlError, SpecError
from flowctl.model.step import Stopped
from flowctl.observe.asking import Connections
from flowctl.plan.planning import Planned, make_plan
from flowctl.resolve.resolve import PlanOptions
from flowctl.run.engine import engine_for
from flowctl.run.failure import translate
from flowctl.spec.spec import Spec, TableSpec
from flowctl.state.location import check_reachable, flow_url
from flowctl.storage.folders import why_unwritable
from flowctl.storage.urls import local_path, scheme

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The exit code with which `plan` or `apply` would end. All other findings concern the spec itself.
EXIT_CODES: Mapping[str, int] = {
    "unreachable": ExitCode.TABLE,
    "unwritable": ExitCode.TABLE,
    "no-engine": ExitCode.BROKEN,
    "stopped": ExitCode.STOPPED,
}


def exit_code(diagnostics: Iterable[Diagnostic]) -> int:
    """Findings of the systems themselves have the code that `plan` and `apply` end with."""
    return ExitCode.first([EXIT_CODES.get(one.code, ExitCode.SPEC) for one in diagnostics])


@dataclass(frozen=True)
class Checked:
    """``diagnostics`` are all findings, sorted by location in the spec. ``planned`` is None if nothing could be
    planned."""

    diagnostics: tuple[Diagnostic, ...]
    planned: Planned | None = None


def check(spec: Spec) -> Checked:
    alone = (*_engine(spec), *_state(spec))
    try:
        planned = make_plan(spec, PlanOptions(estimate="none"))
    except SpecError as error:
        return Checked(in_order((*alone, *error.diagnostics)))
    except FlowctlError as error:
        return Checked(in_order((*alone, Diagnostic(error.message, error.hint, error.mark, "unreachable"))))
    found = (*_streams(planned), *_tables(planned), *_targets(spec, planned), *_executors(spec, planned))
    return Checked(in_order((*alone, *found)), planned)


def _streams(planned: Planned) -> Iterator[Diagnostic]:
    """Why a stream is stopped, and all that its source would have to change."""
    for stream in planned.plan.streams:
        if stream.action != "stop":
            continue
        seen = planned.world.streams[stream.name]
        code = "unreachable" if seen.error is not None else "stopped"
        yield Diagnostic(f"{stream.name}: {stream.reason}", stream.hint, stream.mark, code)
        for problem in seen.info.problems if seen.info is not None else ():
            if problem.what != stream.reason:
                yield Diagnostic(f"{stream.name}: {problem.what}", problem.repair, stream.mark, code)


def _tables(planned: Planned) -> Iterator[Diagnostic]:
    stopped = {step.id for stream in planned.plan.streams if stream.action == "stop" for step in stream.steps}
    reported: set[tuple[str, str]] = set()
    for step in planned.plan.all_steps:
        finding = (str(step.table.mark), step.reason)
        # A table that depends on a stopped one, or whose stream is, is no finding; a connection that fails is one.
        is_own = isinstance(step, Stopped) and step.by != "dependency" and step.id not in stopped
        if isinstance(step, Stopped) and is_own and finding not in reported:
            reported.add(finding)
            code = "unreachable" if step.by == "error" else "stopped"
            yield Diagnostic(f"{step.id}: {step.reason}", step.hint, step.table.mark, code)


def _targets(spec: Spec, planned: Planned) -> Iterator[Diagnostic]:
    written = [planned.tables[step.id] for step in planned.plan.all_steps if step.id in planned.tables
               and not (isinstance(step, Stopped) and step.by == "error")]  # fmt: skip
    with Connections(spec) as connections:
        for table, path, to in ((one, *place) for one in written for place in one.written.items()):
            refused: FlowctlError | None
            try:
                target = connections.get(to.connection).target
                refused = target.why_unwritable(to.object, table.mode) if target is not None else None
            except FlowctlError as error:
                refused = error
            if refused is not None:
                message = f"{table.id}: {refused.message}"
                yield Diagnostic(message, refused.hint, refused.mark or table.mark_of(path), "unwritable")


def _executors(spec: Spec, planned: Planned) -> Iterator[Diagnostic]:
    tables = [planned.tables[step.id] for step in planned.plan.all_steps if step.id in planned.tables]
    if not (names := needed_modules(spec, tables)):
        return
    try:
        with engine_for(spec, tables, {}, verbose=False, say=lambda _: None) as engine:
            missing = missing_modules(engine.session("validate"), names)
    except Exception as cause:  # noqa: BLE001 - any error of Spark is the finding
        error = translate(cause, None, spec.state.url)
        hint = error.hint or "Check spark.url, and that executors have pyarrow"
        yield Diagnostic(f"no executor answers: {error.message}", hint, None, "no-engine")
        return
    if missing:
        what = f"executors have no {' and no '.join(missing)}, which a target of this flow needs there"
        yield Diagnostic(what, "Install it where PYSPARK_PYTHON of the executors points", None, "no-engine")


def needed_modules(spec: Spec, tables: Iterable[TableSpec]) -> list[str]:
    """Import names of the modules that the targets need on executors, if Spark runs on other machines."""
    if is_local(spec.spark.url) or is_sail(spec.spark.url):
        return []
    pairs = ((spec.connections[to.connection], table) for table in tables for to in table.written.values())
    needed = (registry.capabilities(connection.type).on_executors(connection, table) for connection, table in pairs)
    return sorted({name for names in needed for name in names})


def missing_modules(spark: SparkSession, names: Sequence[str]) -> list[str]:
    """Those that an executor cannot import. If it has no pyarrow, the job itself fails."""
    found = spark.range(1).coalesce(1).mapInArrow(_importer(list(names)), "name STRING").collect()
    return [row["name"] for row in found]


def _importer(names: list[str]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Pickled by value: executors may have no flowctl."""

    def missing(batches: Iterator[Any]) -> Iterator[Any]:
        import importlib.util

        import pyarrow as pa

        for _ in batches:
            absent = [name for name in names if importlib.util.find_spec(name) is None]
            yield pa.RecordBatch.from_pydict({"name": pa.array(absent, pa.string())})

    return missing


def _engine(spec: Spec) -> Iterator[Diagnostic]:
    try:
        if is_sail(spec.spark.url):
            sail.require()
        elif not is_connect(spec.spark.url):
            java.find()
    except FlowctlError as error:
        yield Diagnostic(error.message, error.hint, None, "no-engine")


def _state(spec: Spec) -> Iterator[Diagnostic]:
    url = flow_url(spec)
    try:
        check_reachable(url, spec.spark.url)
    except SpecError as error:
        yield from error.diagnostics
    if scheme(url) != "file":
        return
    if failure := why_unwritable(local_path(url)):
        hint = f"{failure.hint}, or give `state` another place"
        yield Diagnostic(f"state {failure.message}", hint, None, "unwritable")
