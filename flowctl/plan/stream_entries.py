"""The plan's text for a change stream: one line, its position in the source's log, and what waits."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

from flowctl import text
from flowctl.model.step import Advance, Stopped, StreamPlan
from flowctl.plan.entries import Detail, Entry

_SIGNS = {
    "create": ("+", "green"),
    "advance": ("~", "yellow"),
    "capture": ("~", "yellow"),
    "none": ("=", "dim"),
    "stop": ("!", "bold red"),
    "removed": ("-", "yellow"),
}


def stream_entry(stream: StreamPlan) -> Entry:
    sign, style = _SIGNS[stream.action]
    if stream.action == "stop":
        mark = stream.mark
        next_step = (Detail("next step", stream.hint),) if stream.hint else ()
        return Entry(stream.name, sign, style, f"stopped: {stream.reason} ({mark.brief})", next_step)
    if stream.action == "removed":
        return Entry(stream.name, sign, style, stream.reason, (*_kept(stream), Detail("next step", stream.hint)))
    tables = text.counted(sum(not isinstance(step, Stopped) for step in stream.steps), "table")
    what = f"stream of {stream.connection}, {stream.label}, {tables}"
    return Entry(stream.name, sign, style, what, tuple(_details(stream)))


def _details(stream: StreamPlan) -> Iterator[Detail]:
    for statement in stream.source_changes:
        yield Detail("source", statement)
    if stream.action == "create" and stream.landed:
        yield Detail("begins", "reads its tables at a moment of the source, and changes from what was captured since")
    elif stream.action == "create" and not _has_slot(stream):
        yield Detail("begins", f"reads its tables at a moment of the {stream.label}, and changes from there")
    elif stream.action == "create":
        yield Detail("begins", f"creates the {stream.label}, and reads its tables at that moment")
    elif stream.lower is not None:
        lag = f", {text.size(stream.lag)} of log" if stream.lag is not None else ""
        yield Detail(
            "reads", f"{stream.lower} (batch {stream.batch}) → {stream.upper}{lag}".replace(" ", text.NO_BREAK)
        )
        if stream.lower_time and stream.upper_time:
            yield Detail("commits", _commits(stream.lower_time, stream.upper_time))
    yield from _kept(stream)
    if stream.batch > stream.applied:
        batches = text.counted(stream.batch - stream.applied, "batch", "batches")
        yield Detail("landed", f"{batches} with {text.counted(stream.waiting, 'change')}, applied first")
    advancing = [step.id for step in stream.steps if isinstance(step, Advance)]
    if advancing:
        yield Detail("tables", text.some(advancing))
    for note in stream.notes:
        yield Detail("note", note, "yellow")


def _commits(lower: str, upper: str) -> str:
    """The commits that are read, by the source's clock."""
    first, last = (dt.datetime.fromisoformat(moment).replace(tzinfo=None) for moment in (lower, upper))
    end = f"{last:%H:%M:%S}" if last.date() == first.date() else f"{last:%Y-%m-%d %H:%M:%S}"
    since = text.elapsed(max((last - first).total_seconds(), 0.0))
    return f"{first:%Y-%m-%d %H:%M:%S} → {end} UTC, {since}".replace(" ", text.NO_BREAK)


def _kept(stream: StreamPlan) -> Iterator[Detail]:
    if facts := reader_facts(stream):
        what = "there" if stream.landed else "slot" if _has_slot(stream) else "log"
        yield Detail(what, ", ".join(facts))


def _has_slot(stream: StreamPlan) -> bool:
    """Otherwise the source makes nothing for the stream."""
    return stream.label.startswith("slot ")


def reader_facts(stream: StreamPlan) -> list[str]:
    """What the source keeps for the stream's reader, and says of it."""
    kept = [f"the server keeps {text.size(stream.retained)} for it"] if stream.retained is not None else []
    return [*kept, *(f"{name.replace('_', ' ')} {value}" for name, value in stream.health.items() if value != "")]
