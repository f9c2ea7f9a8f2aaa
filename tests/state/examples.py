"""Intents, commits and records for the state tests."""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import replace

from flowctl.model import types
from flowctl.model.commit import Commit, Intent
from flowctl.model.interval import Interval
from flowctl.model.position import CursorPosition
from flowctl.model.table_info import Column
from flowctl.model.value import TypedValue
from flowctl.state.document import Recorded, StateDocument, with_commit, with_intents

ID = Column("id", types.INT64, nullable=False, native="bigint")
UPDATED_AT = Column("updated_at", types.TIMESTAMP, native="timestamp with time zone")
DEFINITION = {"mode": "merge", "key": ["id"], "cursor": "updated_at"}
RECORDED = Recorded(DEFINITION, (ID, UPDATED_AT), (ID, UPDATED_AT), run_id="20261120T061533Z-1f0c9a")


def at(day: int) -> CursorPosition:
    """A cursor position on a day of November 2026."""
    return CursorPosition(TypedValue(types.TIMESTAMP, dt.datetime(2026, 11, day, tzinfo=dt.UTC)))


def intent(seq: int, day: int, id: str = "") -> Intent:
    return Intent(
        id=id or uuid.uuid4().hex,
        seq=seq,
        interval=Interval(lower=None, upper=at(day)),
        definition=DEFINITION,
        target_id="table-1",
        run_id="20261120T061533Z-1f0c9a",
        fence=7,
        at="2026-11-20T06:15:33.000001Z",
    )


def commit_of(document: StateDocument, table: str, *, void: bool = False) -> Commit:
    """What the target says when the table's pending intent is committed."""
    pending = document.tables[table].intent
    assert pending is not None
    return Commit(
        lineage=document.lineage,
        table=table,
        seq=pending.seq,
        intent_id=pending.id,
        target_id=pending.target_id,
        position=None if void else pending.interval.upper,
        version=pending.seq,
        void=void,
    )


def committed(document: StateDocument, table: str, day: int) -> StateDocument:
    """One whole number: begun, committed, recorded."""
    begun = with_intents(document, {table: intent(document.table(table).next_seq, day)})
    return with_commit(begun, commit_of(begun, table), RECORDED)


def with_serial(document: StateDocument, serial: int, write_id: str = "etl-1/4711/abc") -> StateDocument:
    return replace(document, serial=serial, write_id=write_id)
