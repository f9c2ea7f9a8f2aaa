"""`flowctl doctor`: what each connection and stream answers, what is wrong with it, and what repairs it.

Errors are those of `validate --connect`: what would prevent a run from succeeding. Advice is what works today and may
hurt later. Nothing is written, and no rows are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

from flowctl import text
from flowctl.diagnostics import Diagnostic
from flowctl.errors import FlowctlError
from flowctl.model.step import StreamPlan
from flowctl.observe.asking import Connections, in_parallel
from flowctl.plan.planning import Planned
from flowctl.plan.stream_entries import reader_facts
from flowctl.run.connect import check, exit_code
from flowctl.run.failure import translate
from flowctl.spec.spec import Connection, Spec, SqlSource, StreamTable

Kind = Literal["connection", "stream"]


@dataclass(frozen=True)
class Subject:
    """One connection or stream. ``what`` is what answers, empty if nothing does; ``origin`` what defines a connection
    (empty for streams)."""

    kind: Kind
    name: str
    what: str
    advice: tuple[Diagnostic, ...] = ()
    origin: str = ""


@dataclass(frozen=True)
class Report:
    """``errors`` concern the whole flow, its connections, streams and tables."""

    subjects: tuple[Subject, ...]
    errors: tuple[Diagnostic, ...]

    @property
    def exit_code(self) -> int:
        """That of the errors; advice has none."""
        return exit_code(self.errors)


def examine(spec: Spec) -> Report:
    checked = check(spec)
    connections, silent = _connections(spec)
    own = {(one.message, one.mark): one for one in silent}  # also of connections that no table uses
    others = {(one.message, one.mark): one for one in checked.diagnostics if not _repeats(one, silent)}
    streams = tuple(_streams(checked.planned)) if checked.planned is not None else ()
    return Report((*connections, *streams), tuple({**others, **own}.values()))


def _repeats(found: Diagnostic, silent: Sequence[Diagnostic]) -> bool:
    """Whether it says of a table what its connection says itself."""
    return any(found.mark == one.mark and found.message.endswith(f": {one.message}") for one in silent)


def _connections(spec: Spec) -> tuple[list[Subject], list[Diagnostic]]:
    with Connections(spec) as opened:

        def greeted(name: str) -> str | FlowctlError:
            try:
                return opened.get(name).greet()
            except Exception as cause:  # noqa: BLE001 - whatever it is, it is the finding
                return translate(cause, opened.mark(name))

        found = in_parallel(greeted, spec.connections)
        subjects = [
            Subject(
                "connection",
                name,
                "" if isinstance(what, FlowctlError) else f"{what}{_use(spec, name)}",
                origin=_origin(spec.connections[name]),
            )
            for name, what in found.items()
        ]
        silent = [
            Diagnostic(what.message, what.hint, what.mark or opened.mark(name), "unreachable")
            for name, what in found.items()
            if isinstance(what, FlowctlError)
        ]
    return subjects, silent


def _origin(connection: Connection) -> str:
    match connection.origin:
        case "option":
            return "--connection"
        case "spec":
            return f"spec {connection.mark.brief}"
        case "variable" | "user_file":
            return connection.mark.brief
        case _:
            assert_never(connection.origin)


def _use(spec: Spec, name: str) -> str:
    read = sum(
        not isinstance(table.source, SqlSource | StreamTable) and table.source.connection == name
        for table in spec.tables
    )
    counts = {
        "read by": read,
        "written by": sum(any(to.connection == name for to in table.written.values()) for table in spec.tables),
    }
    told = [f"{what} {text.counted(count, 'entry', 'entries')}" for what, count in counts.items() if count]
    told += [f"read by the stream {one.name}" for one in spec.streams.values() if one.connection == name]
    return f"; {', '.join(told)}" if told else "; no table uses it"


def _streams(planned: Planned) -> Iterator[Subject]:
    for plan in planned.plan.streams:
        seen = planned.world.streams.get(plan.name) or planned.world.former.get(plan.name)
        info = seen.info if seen is not None else None
        told = [Diagnostic(one.what, one.repair, plan.mark, "advice") for one in info.advice] if info else []
        if seen is not None and (problem := seen.no_snapshots):
            told.append(
                Diagnostic(f"no table can be read in full: {problem.what}", problem.repair, plan.mark, "advice")
            )
        if plan.action == "removed":
            told.append(Diagnostic(plan.reason, plan.hint, plan.mark, "advice"))
        yield Subject("stream", plan.name, _described(plan) if info is not None else "", tuple(told))


def _described(plan: StreamPlan) -> str:
    facts = [f"{plan.label} of {plan.connection}"]
    if plan.lower is None:
        facts.append("not begun")
    if plan.lag is not None and plan.lower is not None:
        facts.append(f"{text.size(plan.lag)} behind")
    return ", ".join([*facts, *reader_facts(plan)])
