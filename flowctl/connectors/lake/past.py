"""The commits since an earlier sequence number, which a restoration of that number undoes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flowctl.connectors.lake.record import Record
from flowctl.errors import StoppedByPolicy


@dataclass(frozen=True)
class PastCommit:
    """One commit of a table. ``record``: None for one of another application. ``changes_rows``: whether it has changed
    rows. ``at``: in milliseconds since 1970; None: not recorded."""

    version: int
    record: Record | None
    changes_rows: bool
    at: int | None


@dataclass(frozen=True)
class Past:
    """``version`` is that of the commit ``wanted``. ``undone`` are the sequence numbers since with content of their
    own, in ascending order, ``intents`` those of all numbers since. ``others`` is how many commits of others have
    changed rows since."""

    version: int
    wanted: Record
    undone: tuple[int, ...]
    intents: frozenset[str]
    others: int
    at: int | None


def read_past(commits: Iterable[PastCommit], seq: int, place: str, where: str) -> Past:
    """``commits`` are those of the table, newest first. ``place`` and ``where`` name the table and its history, for
    errors. :class:`StoppedByPolicy` if they do not have ``seq``, or if it was given up."""
    later: list[Record] = []
    others = 0
    for one in commits:
        record = one.record
        if record is not None and record.seq == seq:
            if record.commit.void:
                raise StoppedByPolicy(
                    f"sequence number {seq} of {place} was given up: it has no content", hint="Choose another number"
                )
            undone = sorted({one.seq for one in later if not one.commit.void and not one.restores})
            intents = frozenset(one.commit.intent_id for one in later)
            return Past(one.version, record, tuple(undone), intents, others, one.at)
        if record is not None:
            later.append(record)
        else:
            others += one.changes_rows
    known = sorted(one.seq for one in later if not one.commit.void)
    if not known:
        what, hint = f"{where} has no commit of this flow", "Check the table's id and its `to`"
    else:
        what = f"{where} has no sequence number {seq}"
        hint = f"Choose one from {known[0]} to {known[-1]}" if len(known) > 1 else f"Choose {known[0]}"
    raise StoppedByPolicy(what, hint=hint)


def first_undone(commits: Iterable[PastCommit], past: Past) -> int | None:
    """The first version of a history's sidecar that one of the undone numbers has made; None if none has written to
    it. ``commits`` are those of the sidecar, newest first."""
    first = None
    for one in commits:
        intent = one.record.commit.intent_id.partition("/")[0] if one.record is not None else ""
        if intent == past.wanted.commit.intent_id:
            break
        first = one.version if intent in past.intents else first
    return first
