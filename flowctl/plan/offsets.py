"""The interval of a topic: from the recorded offset of each partition to the end that it had when the plan was made."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping

from flowctl.connectors.source import HighWatermark
from flowctl.model.interval import Interval
from flowctl.model.position import OffsetsPosition, Position, to_json
from flowctl.plan.commands import state_command
from flowctl.plan.finding import Finding, Idle, Stop, Work
from flowctl.spec.spec import TableSpec, TopicSource
from flowctl.text import counted, some


def offsets_interval(table: TableSpec, watermark: HighWatermark, recorded: Position | None, spec_path: str) -> Finding:
    """A partition that was added since is read from its beginning; if the last message of a key counts, after the
    others, so the interval begins without it. Stops where messages were lost."""
    upper, start = watermark.position, watermark.start
    if not isinstance(upper, OffsetsPosition) or not isinstance(start, OffsetsPosition):
        return Stop("the topic was deleted while the plan was made", "Plan again", "from")
    if recorded is None and (later := _later_start(table, watermark)):
        return Idle(f"begins at {later}")  # the ends of today would let in what comes until then
    notes = tuple(_held_back(watermark))
    if recorded is None and isinstance(table.source, TopicSource) and isinstance(table.source.start, OffsetsPosition):
        given = table.source.start
        oldest = watermark.oldest if isinstance(watermark.oldest, OffsetsPosition) else upper
        if wrong := _outside(given, oldest, upper):
            return Stop(f"`start` is not within the topic: {wrong}", "Correct `start`", "from.start")
        start = given.or_else(oldest)
    if recorded is None:
        count = upper.messages_since(start)
        return Work(Interval(start, upper), f"first run, {_messages(count)} from {_start_of(table)}", notes)
    if not isinstance(recorded, OffsetsPosition):
        way = f"Set one with {state_command('set', spec_path, table.id, '--position', 'beginning')}"
        return Stop("its recorded position is not one of a topic", way, "from")
    lower = from_beginnings(recorded, upper)
    if ahead := _ahead(lower, upper):
        end = _position(
            {one: min(offset, upper.of(one) or 0) for one, offset in lower.offsets if upper.of(one) is not None}
        )
        way = state_command("set", spec_path, table.id, "--position", end)
        return Stop(
            f"the topic ends before what was read of it ({ahead}): a broker has lost messages, or others replaced them",
            f"Find out which; to read what comes from now on: {way}",
            "from",
        )
    if lost := expired(lower, watermark):
        where = some([f"{count:,} of partition {partition}" for partition, count in lost.items()])
        left = _position({one: offset + lost.get(one, 0) for one, offset in lower.offsets})
        way = state_command("set", spec_path, table.id, "--position", left)
        return Stop(
            f"{counted(sum(lost.values()), 'message')} expired before they were read: {where}",
            f"Move to the oldest that are left: {way}",
            "from",
        )
    count = upper.messages_since(lower)
    if not count:
        return Idle("no new messages", recorded, notes)
    if table.mode != "merge" or table.has_source_order:
        return Work(Interval(lower, upper), _messages(count), notes)
    return Work(Interval(recorded, upper), _messages(count), (*notes, *_added(recorded, upper)))


def from_beginnings(lower: OffsetsPosition, upper: OffsetsPosition) -> OffsetsPosition:
    """``lower``, with the first offset of the partitions that only ``upper`` has: they were added."""
    return lower.or_else(OffsetsPosition(tuple((partition, 0) for partition, _ in upper.offsets)))


def expired(lower: OffsetsPosition, watermark: HighWatermark) -> Mapping[int, int]:
    """How many messages above ``lower`` no longer exist, by partition. Empty if all do."""
    oldest = dict(watermark.oldest.offsets) if isinstance(watermark.oldest, OffsetsPosition) else {}
    found = {partition: oldest.get(partition, offset) - offset for partition, offset in lower.offsets}
    return {partition: count for partition, count in found.items() if count > 0}


def _held_back(watermark: HighWatermark) -> Iterator[str]:
    if watermark.uncommitted:
        count = counted(watermark.uncommitted, "message")
        yield f"an open transaction holds back at most {count}: the run after it has ended reads them"


def _added(recorded: OffsetsPosition, upper: OffsetsPosition) -> Iterator[str]:
    added = [partition for partition, end in upper.offsets if end and recorded.of(partition) is None]
    if len(added) == 1:
        yield f"partition {added[0]} was added: it is read after the others, in a commit of its own"
    elif added:
        yield f"partitions {some(added)} were added: they are read after the others, in a commit of their own"


def _ahead(lower: OffsetsPosition, upper: OffsetsPosition) -> str:
    """The first partition that ends below ``lower``."""
    for partition, offset in lower.offsets:
        end = upper.of(partition)
        if end is None:
            return f"there is no partition {partition}"
        if end < offset:
            return f"partition {partition} at {end}, read up to {offset}"
    return ""


def _outside(given: OffsetsPosition, oldest: OffsetsPosition, upper: OffsetsPosition) -> str:
    """What is wrong with the offsets of the spec; empty if all of them exist, or are the ends."""
    for partition, offset in given.offsets:
        first, end = oldest.of(partition), upper.of(partition)
        if first is None or end is None:
            return f"there is no partition {partition}"
        if not first <= offset <= end:
            return f"partition {partition} has offsets from {first} to {end}, not {offset}"
    return ""


def _position(offsets: Mapping[int, int]) -> str:
    """As `state set --position` takes it."""
    return json.dumps(to_json(OffsetsPosition(tuple(offsets.items()))))


def _start_of(table: TableSpec) -> str:
    start = table.source.start if isinstance(table.source, TopicSource) else "earliest"
    return start if isinstance(start, str) else "`start`"


def _later_start(table: TableSpec, watermark: HighWatermark) -> str:
    """The time at which a first run begins, if that has not come yet."""
    start = table.source.start if isinstance(table.source, TopicSource) else ""
    if watermark.clock is None or not isinstance(start, str) or start in ("", "earliest", "latest"):
        return ""
    return start if dt.datetime.fromisoformat(start) > watermark.clock else ""


def _messages(count: int) -> str:
    return f"at most {counted(count, 'message')}" if count else "no messages"
