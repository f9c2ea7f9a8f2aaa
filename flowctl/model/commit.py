"""What a target and the state record of one committed (or intended) sequence number of one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from flowctl.model import codec
from flowctl.model.codec import in_json
from flowctl.model.interval import Interval
from flowctl.model.position import Position
from flowctl.model.table_info import Column


@dataclass(frozen=True)
class IntendedColumns:
    """The columns of the source and of the target that are recorded once an intent is committed; None: those recorded
    before it."""

    source: tuple[Column, ...] | None = field(default=None, metadata=in_json("not_default"))
    target: tuple[Column, ...] | None = field(default=None, metadata=in_json("not_default"))


@dataclass(frozen=True)
class Intent:
    """Written to state before anything is written to a target: binds sequence number ``seq`` of this table to this
    interval permanently. ``id`` is unique per attempt that gets a sequence number. ``at`` (RFC 3339) is the time used
    for ``valid_from: now`` and detected deletions in every retry. ``replaces``: the whole content is replaced, in every
    retry too. ``refresh``: a full refresh was requested; it stays pending until this or a later sequence number
    completes it. ``runs`` counts the runs that have attempted it. ``letters_at`` is where the newest of them keeps dead
    letters (empty: nowhere). ``altered`` names the target's columns that it adds, drops or gives another type: before
    the commit, in some targets. ``columns`` is None if only the engine determines them, or if an older flowctl wrote
    the intent."""

    id: str
    seq: int
    interval: Interval
    definition: Mapping[str, Any]
    target_id: str
    run_id: str
    fence: int
    at: str
    replaces: bool = field(default=False, metadata=in_json("since"))
    refresh: bool = field(default=False, metadata=in_json("not_default"))
    runs: int = field(default=1, metadata=in_json("not_default"))
    letters_at: str = field(default="", metadata=in_json("not_default"))
    altered: tuple[str, ...] = field(default=(), metadata=in_json("not_default"))
    columns: IntendedColumns | None = field(default=None, metadata=in_json("not_default"))

    @property
    def recorded(self) -> Intent:
        """The form kept in state, without the files: the file log has them."""
        return replace(self, interval=self.interval.recorded)


@dataclass(frozen=True)
class RowCounts:
    """Row counts of one commit; None for those that the target does not report. ``ignored``: where changes have an
    order, those that are not newer than what was applied of their row."""

    read: int | None = None
    inserted: int | None = None
    updated: int | None = None
    deleted: int | None = None
    quarantined: int | None = None
    ignored: int | None = field(default=None, metadata=in_json("since"))
    bytes: int | None = None


def commit_name(seq: int, intent_id: str) -> str:
    """Returns the :attr:`Commit.name` of a commit that is recorded elsewhere."""
    return f"{seq}/{intent_id}"


@dataclass(frozen=True)
class Commit:
    """The target's own record of the newest sequence number of ``(lineage, table)``, stored atomically with the data.

    ``position`` is what was consumed; recovery copies it to state. ``version`` is the target's version after this
    commit, if it has versions. ``void`` marks an abandoned sequence number; it carries the position of the previous
    commit (None if an older flowctl wrote it). ``counts`` and ``warnings`` are known only to the process that made the
    commit; ``warnings`` are failures after the commit that do not affect it. ``restored`` is the sequence number whose
    content the target has again (None: that of ``seq``)."""

    lineage: str
    table: str
    seq: int
    intent_id: str
    target_id: str
    position: Position | None
    version: int | None = field(default=None, metadata=in_json("never"))
    void: bool = False
    counts: RowCounts = field(default=RowCounts(), metadata=in_json("never"))
    warnings: tuple[str, ...] = field(default=(), metadata=in_json("never"))
    restored: int | None = field(default=None, metadata=in_json("never"))

    @property
    def name(self) -> str:
        """Sequence number and intent id, which together are unique in this lineage."""
        return commit_name(self.seq, self.intent_id)

    def record(self) -> dict[str, Any]:
        """The JSON that targets store with the data (Delta ``userMetadata``, ``_flowctl_commits``)."""
        return {"flowctl": 1, **codec.to_json(self)}


def commit_from_record(document: Mapping[str, Any], version: int | None = None) -> Commit:
    return replace(codec.from_json(Commit, document), version=version)
