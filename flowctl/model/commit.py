"""What a target and the state say about one committed (or intended) number of one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flowctl.model import interval as intervals
from flowctl.model import position as positions
from flowctl.model.interval import Interval
from flowctl.model.position import Position


@dataclass(frozen=True)
class Intent:
    """Written to state before anything is written to a target: number ``seq`` of this table belongs to this interval
    for ever. ``id`` is unique for each try that gets a number. ``at`` (RFC 3339) is the moment that fixes
    ``valid_from: now`` and detected deletions for every redo of this number. ``kind`` ``void`` is a number given up:
    committed empty, so that a stale writer of the old try cannot land. ``replaces``: the whole content is replaced, by
    every redo too. ``refresh``: somebody asked for a full refresh, which is owed until this number, or one after it,
    does it. ``runs`` is how many have tried this number."""

    id: str
    seq: int
    interval: Interval
    definition: Mapping[str, Any]
    target_id: str
    run_id: str
    fence: int
    at: str
    replaces: bool = False
    refresh: bool = False
    runs: int = 1

    def to_json(self) -> dict[str, Any]:
        """``refresh`` and ``runs`` are left out where they say nothing."""
        refresh = {"refresh": True} if self.refresh else {}
        runs = {"runs": self.runs} if self.runs > 1 else {}
        return {
            "id": self.id,
            "seq": self.seq,
            "interval": intervals.to_json(self.interval.recorded),
            "definition": dict(self.definition),
            "target_id": self.target_id,
            "run_id": self.run_id,
            "fence": self.fence,
            "at": self.at,
            "replaces": self.replaces,
            **refresh,
            **runs,
        }


def intent_from_json(document: Mapping[str, Any]) -> Intent:
    return Intent(**{**document, "interval": intervals.from_json(document["interval"])})


@dataclass(frozen=True)
class RowCounts:
    """What one commit did, as far as the target tells; None where it does not."""

    read: int | None = None
    inserted: int | None = None
    updated: int | None = None
    deleted: int | None = None
    quarantined: int | None = None
    bytes: int | None = None

    def to_json(self) -> dict[str, int | None]:
        return dict(vars(self))


def commit_name(seq: int, intent_id: str) -> str:
    """:attr:`Commit.name` of what is recorded elsewhere."""
    return f"{seq}/{intent_id}"


@dataclass(frozen=True)
class Commit:
    """The target's own record of the newest number of ``(lineage, table)``, stored atomically with the data.

    ``position`` is what was consumed; recovery copies it to state. ``version`` is the target's version after this
    commit where it has one. ``void`` marks a number given up; it carries the position of the commit before it (None
    from an older flowctl). ``counts`` is known only to the process that wrote it, and so are ``warnings``: what failed
    after the commit, and changes nothing about it.
    """

    lineage: str
    table: str
    seq: int
    intent_id: str
    target_id: str
    position: Position | None
    version: int | None = None
    void: bool = False
    counts: RowCounts = RowCounts()
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Number and intent: no other commit of this lineage has both."""
        return commit_name(self.seq, self.intent_id)

    def record(self) -> dict[str, Any]:
        """The JSON that targets store beside the data (Delta ``userMetadata``, ``_flowctl_commits``)."""
        return {
            "flowctl": 1,
            "lineage": self.lineage,
            "table": self.table,
            "seq": self.seq,
            "intent_id": self.intent_id,
            "target_id": self.target_id,
            "position": positions.to_json(self.position) if self.position else None,
            "void": self.void,
        }


def commit_from_record(document: Mapping[str, Any], version: int | None = None) -> Commit:
    recorded = document["position"]
    return Commit(
        lineage=document["lineage"],
        table=document["table"],
        seq=document["seq"],
        intent_id=document["intent_id"],
        target_id=document["target_id"],
        position=positions.from_json(recorded) if recorded else None,
        version=version,
        void=document["void"],
    )
