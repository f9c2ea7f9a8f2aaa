"""The commits since an earlier sequence number, which a restoration of that number undoes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from flowctl.connectors.lake.record import Record, data_commit
from flowctl.errors import StoppedByPolicy


@dataclass(frozen=True)
class PastCommit:
    """One commit of a table. ``record``: None for one of another application. ``changes_rows``: whether it has changed
    rows. ``at``: in milliseconds since 1970; None: not recorded. ``restores``: whether it has brought an earlier
    version back."""

    version: int
    record: Record | None
    changes_rows: bool
    at: int | None
    restores: bool


@dataclass(frozen=True)
class Past:
    """``version`` is that of the commit ``wanted``. ``undone`` are the sequence numbers since with content of their
    own, in ascending order. ``others`` is how many commits of others have changed rows since. ``origins``: ``wanted``
    and, if that was a restoration, what it restored, back to the commit with the data. ``intents``: those of all
    numbers whose versions are derived from the same observations; empty if the table was no history."""

    version: int
    wanted: Record
    undone: tuple[int, ...]
    others: int
    origins: tuple[Record, ...]
    intents: frozenset[str]
    at: int | None


def read_past(commits: Iterable[PastCommit], seq: int, place: str, where: str) -> Past:
    """``commits`` are those of the table, newest first. ``place`` and ``where`` name the table and its history, for
    errors. :class:`StoppedByPolicy` if they do not have ``seq``, or if it was given up."""
    later: list[Record] = []
    others = 0
    commits = iter(commits)
    for one in commits:
        record = one.record
        if record is not None and record.seq == seq:
            if record.commit.void:
                raise StoppedByPolicy(
                    f"sequence number {seq} of {place} was given up: it has no content", hint="Choose another number"
                )
            undone = sorted({one.seq for one in later if not one.commit.void and not one.restores})
            before = tuple(_until_data(record, commits))
            intents = frozenset(_same_content(record, (*later, *before)))
            return Past(one.version, record, tuple(undone), others, _origins(record, before), intents, one.at)
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


def version_of_observations(commits: Iterable[PastCommit], past: Past, where: str) -> int | None:
    """The version of a history's sidecar that has the observations of the wanted number; None if the table was no
    history then. ``commits`` are those of the sidecar, newest first, ``where`` names them. :class:`StoppedByPolicy` if
    they do not have that version.

    It is the last version before the observations changed again: the commits in between are compactions, and the files
    that they have replaced may be deleted. A restoration changes them, too; one without a record is Spark's, or that of
    an older flowctl.
    """
    if not past.intents:
        return None
    newest = None
    for one in commits:
        newest = one.version if newest is None else newest
        if one.record is not None and one.record.commit.intent_id.partition("/")[0] in past.intents:
            return newest
        if one.record is not None or one.restores:
            newest = None
    raise StoppedByPolicy(
        f"{where} has no observations of sequence number {past.wanted.seq} any more", hint="Choose a later number"
    )


def _same_content(wanted: Record, records: Iterable[Record]) -> Iterator[str]:
    """The intents of ``wanted`` and of those records whose history counts the same observations."""
    attempt = data_commit(wanted).attempt
    if attempt:
        same = (one for one in records if data_commit(one).attempt == attempt and not one.commit.void)
        yield from (one.commit.intent_id for one in (wanted, *same))


def _until_data(wanted: Record, commits: Iterable[PastCommit]) -> Iterator[Record]:
    """The records before ``wanted``, back to the one with its data, which it may have restored."""
    restored = wanted.restores
    for one in commits if restored else ():
        if one.record is not None:
            yield one.record
            if one.record.seq == restored:
                restored = one.record.restores
                if not restored:
                    return


def _origins(wanted: Record, before: Iterable[Record]) -> tuple[Record, ...]:
    found = [wanted]
    for one in before:
        if one.seq == found[-1].restores:
            found.append(one)
    return tuple(found)
