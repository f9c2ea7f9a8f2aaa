"""The state of one flow as a frozen value, and every change to it as a pure function.

One rule holds for all of them: **sequence numbers only increase**. A table's ``next_seq`` never decreases, whatever is
set, reset, rolled back or adopted; a sequence number belongs to one intent forever. Only the position may move back.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from flowctl.errors import StateConflict
from flowctl.model.codec import in_json
from flowctl.model.commit import Commit, Intent
from flowctl.model.position import CursorPosition, Position
from flowctl.model.table_info import Column, TableInfo
from flowctl.state.letters import PassedLetters, Replay, with_passed, without_number

FORMAT = 2


@dataclass(frozen=True)
class TableState:
    """The last recorded commit of one table, and where its next run starts.

    ``seq``, ``intent_id`` and ``target_id`` belong to the newest sequence number: before a new intent, the target's own
    record must match them. ``schema`` holds the source's columns as recorded, ``target_columns`` the target's.
    ``deletes_checked_at`` (RFC 3339) is when missing keys were last checked; ``last_run`` is a run id. ``intent`` was
    started but not recorded: it is finished first, with the same interval. ``given_up``: the position has changed
    since, so the intent is not finished but voided in the target; if something is committed under its sequence number,
    only the number is recorded. ``highest`` is the highest sequence number ever recorded or assigned to an intent;
    it is above ``seq`` after adopting a target that was rolled back. ``append_again``: a user has moved the position
    back and wants append to write the rows above it again. ``upstream_shape`` is set for SQL tables only: a digest of
    the columns that the table read, and their types; empty if unknown. ``replay``: a user wants the dead letters read
    again. ``passed`` are those that no longer count. ``accepted``: if a user has accepted a definition since the last
    commit, those that the target's rows may have been written under, and last the accepted one; ``definition`` is then
    empty.
    """

    seq: int = 0
    intent_id: str = ""
    position: Position | None = None
    definition: Mapping[str, Any] = field(default_factory=dict)
    schema: tuple[Column, ...] = ()
    target_columns: tuple[Column, ...] = ()
    target_id: str = ""
    target_version: int | None = None
    deletes_checked_at: str | None = None
    last_run: str | None = None
    highest: int = 0
    intent: Intent | None = field(default=None, metadata=in_json("not_default"))
    given_up: bool = field(default=False, metadata=in_json("not_default"))
    append_again: bool = field(default=False, metadata=in_json("not_default"))
    upstream_shape: str = field(default="", metadata=in_json("not_default"))
    replay: Replay | None = field(default=None, metadata=in_json("not_default"))
    passed: tuple[PassedLetters, ...] = field(default=(), metadata=in_json("not_default"))
    accepted: tuple[Mapping[str, Any], ...] = field(default=(), metadata=in_json("not_default"))

    @property
    def next_seq(self) -> int:
        """The sequence number for a new intent; a pending one keeps its own."""
        return max(self.seq, self.highest, self.intent.seq if self.intent else 0) + 1

    @property
    def pending(self) -> Intent | None:
        """The started intent, unless it was abandoned."""
        return None if self.given_up else self.intent

    @property
    def forgotten(self) -> bool:
        """After a reset: only the sequence number is known."""
        return self.position is None and not self.definition and self.intent is None


@dataclass(frozen=True)
class StreamState:
    """What one change stream records besides its tables. ``source`` identifies the system whose log is read,
    ``published`` what makes it send the changes (:class:`flowctl.connectors.stream.StreamInfo`). Every
    table has applied all batches up to ``applied``, except those in ``apart``: by table id, the batch up to which it
    has: it lags behind. ``begun`` names the reader in the source (a replication slot) that is being created: one that
    is found under this name is flowctl's own and incomplete. ``anew``: a user has asked for a new reader, from which
    all tables begin again. ``connection`` and ``options`` are those of the spec with which the reader was made: they
    name it when the spec no longer has the stream."""

    source: str = ""
    published: str = field(default="", metadata=in_json("not_default"))
    applied: int = 0
    apart: Mapping[str, int] = field(default_factory=dict)
    begun: str = ""
    anew: bool = field(default=False, metadata=in_json("not_default"))
    connection: str = field(default="", metadata=in_json("not_default"))
    options: Mapping[str, Any] = field(default_factory=dict, metadata=in_json("since"))


@dataclass(frozen=True)
class StateDocument:
    """One entry of the state log. ``serial`` is 0 for a flow that never ran. ``write_id`` identifies the write
    (``host/pid/random``): a writer whose create was refused can tell its own document from another writer's.
    ``shapes`` names the blob with the tables' columns and definitions (:mod:`flowctl.state.shapes`); empty if the
    document contains them. ``stream`` is set in the document of a change stream, which has a log of its own."""

    lineage: str
    serial: int = 0
    write_id: str = ""
    tables: Mapping[str, TableState] = field(default_factory=dict)
    format: int = FORMAT
    shapes: str = field(default="", compare=False, metadata=in_json("since"))
    stream: StreamState | None = field(default=None, metadata=in_json("since"))

    @property
    def recorded_lineage(self) -> str:
        """Empty before the first write: until then, each reader generates a different lineage."""
        return self.lineage if self.serial else ""

    def table(self, table_id: str) -> TableState:
        """The table's state; an empty one if it never ran."""
        return self.tables.get(table_id, TableState())

    def positions(self) -> Iterator[Position | None]:
        """Every position in this document, including those of pending intents."""
        for table in self.tables.values():
            yield table.position
            if table.intent is not None:
                yield table.intent.interval.lower
                yield table.intent.interval.upper


@dataclass(frozen=True)
class Recorded:
    """What is recorded in addition to the commit when a sequence number is finished."""

    definition: Mapping[str, Any]
    schema: tuple[Column, ...]
    target_columns: tuple[Column, ...]
    run_id: str
    deletes_checked_at: str | None = None
    upstream_shape: str = ""


def keep_recorded(before: TableState, run_id: str) -> Recorded:
    """What is already recorded, for a sequence number whose rows were not read."""
    return Recorded(
        before.definition, before.schema, before.target_columns, run_id, upstream_shape=before.upstream_shape
    )


def with_stream(document: StateDocument, stream: StreamState) -> StateDocument:
    """Raises ``StateConflict`` if batches would be applied twice."""
    before = document.stream
    if before is not None and stream.applied < before.applied:
        raise StateConflict(f"batch {before.applied} is applied already, batch {stream.applied} is not the next one")
    return replace(document, stream=stream)


def new_document() -> StateDocument:
    return StateDocument(lineage=uuid.uuid4().hex)


def with_intents(document: StateDocument, intents: Mapping[str, Intent]) -> StateDocument:
    """Starts sequence numbers. Raises ``StateConflict`` if a table has another pending intent, or the number was used
    before."""
    changed = {}
    for table_id, intent in intents.items():
        before = document.table(table_id)
        pending = before.intent
        if pending is not None and (pending.id, pending.seq) != (intent.id, intent.seq):
            raise StateConflict(
                f"table {table_id}: sequence number {pending.seq} of run {pending.run_id} was begun but not finished",
                hint="Finish or void it first: run `flowctl apply` again",
            )
        if pending is None and intent.seq < before.next_seq:
            raise StateConflict(f"table {table_id}: sequence number {intent.seq} was used before", hint="Plan again")
        changed[table_id] = replace(
            _with_letters_moved(before, intent), intent=intent, highest=max(before.highest, intent.seq)
        )
    return _with_tables(document, changed)


def without_intents(document: StateDocument, table_ids: Collection[str]) -> StateDocument:
    """Withdraws intents under which no write has begun, so nothing can still be committed, or none to a table that
    exists. Their sequence numbers are not reused, because ``highest`` includes them."""
    left = {table_id: replace(document.table(table_id), intent=None, given_up=False) for table_id in table_ids}
    return _with_tables(document, left)


def with_commit(document: StateDocument, commit: Commit, recorded: Recorded) -> StateDocument:
    """Records the target's commit, with the target's position, not the intent's. A void, or a commit whose intent was
    abandoned, changes only the sequence number."""
    before = document.table(commit.table)
    if commit.seq < before.seq:
        raise StateConflict(
            f"table {commit.table}: the target's sequence number {commit.seq} is below the recorded {before.seq}",
            hint=f"Check why the target was rolled back, then run `flowctl state adopt … {commit.table}`",
        )
    numbered = _with_number(before, commit, recorded.run_id)
    settled = _with_letters_settled(before, commit)
    numbered = replace(numbered, replay=settled.replay, passed=settled.passed)
    if commit.void or (before.given_up and before.intent is not None and commit.seq >= before.intent.seq):
        return _with_tables(document, {commit.table: numbered})
    return _with_tables(
        document,
        {
            commit.table: replace(
                numbered,
                position=commit.position,
                definition=dict(recorded.definition),
                schema=recorded.schema,
                target_columns=recorded.target_columns,
                deletes_checked_at=recorded.deletes_checked_at or before.deletes_checked_at,
                append_again=False,
                upstream_shape=recorded.upstream_shape,
                accepted=(),
            )
        },
    )


def letters_read(intent: Intent) -> int | None:
    """The sequence number up to which a commit under this intent settles dead letters: it has read them again, or
    begun the target's content anew with what the source has. None: it settles none."""
    return intent.seq - 1 if intent.replaces or not intent.target_id else intent.interval.letters


def _with_letters_settled(before: TableState, commit: Commit) -> TableState:
    """``before``, without the dead letters that this commit of its intent has settled. A void settles none, and its
    own do not count."""
    intent = before.intent
    if intent is None or intent.id != commit.intent_id:
        return before
    if commit.void:
        passed = PassedLetters(intent.seq, intent.seq, intent.letters_at)
        return replace(before, passed=with_passed(before.passed, passed)) if intent.letters_at else before
    if (letters := letters_read(intent)) is None:
        return before
    passed = PassedLetters(1, letters, "" if intent.interval.letters is None else intent.letters_at)
    return replace(before, replay=None, passed=with_passed(before.passed, passed))


def _with_letters_moved(before: TableState, intent: Intent) -> TableState:
    """``before``, without the dead letters that an attempt of this sequence number has left in another place."""
    pending = before.intent
    if pending is None or pending.letters_at == intent.letters_at:
        return before
    left, kept = (PassedLetters(intent.seq, intent.seq, place) for place in (pending.letters_at, intent.letters_at))
    known = tuple(one for one in before.passed if one != kept)
    return replace(before, passed=with_passed(known, left) if left.place else known)


def with_replay(document: StateDocument, table_id: str, replay: Replay | None) -> StateDocument:
    """``dlq replay``: the next run reads the table's dead letters again; None: it does not. A pending intent that reads
    some is then abandoned."""
    before = document.table(table_id)
    is_reading = before.intent is not None and before.intent.interval.letters is not None
    given_up = before.given_up or (replay is None and is_reading)
    return _with_tables(document, {table_id: replace(before, replay=replay, given_up=given_up)})


def with_position(
    document: StateDocument, table_id: str, position: Position | None, *, append_again: bool = False
) -> StateDocument:
    """``state set``: the next run starts from ``position``. A pending intent is abandoned."""
    before = document.table(table_id)
    given_up = before.intent is not None
    changed = replace(before, position=position, given_up=given_up, append_again=append_again)
    return _with_tables(document, {table_id: changed})


def with_table(document: StateDocument, table_id: str, state: TableState) -> StateDocument:
    """Replaces the state of one table, whose sequence numbers must not decrease."""
    if state.next_seq < document.table(table_id).next_seq:
        raise StateConflict(f"table {table_id}: numbers only rise")
    return _with_tables(document, {table_id: state})


def with_definition_accepted(
    document: StateDocument, table_id: str, accepted: tuple[Mapping[str, Any], ...] = ()
) -> StateDocument:
    """``state set --accept-definition``: the next commit records the spec's definition, which is the last one of
    ``accepted``, or any if that is empty. A pending intent belongs to the old definition and is abandoned. With the new
    one, the source need not contain the rows already written at the position."""
    before = document.table(table_id)
    position = before.position
    if isinstance(position, CursorPosition):
        ties = replace(position.ties, may_be_gone=True) if position.ties is not None else None
        position = replace(position, ties=ties, rows=None)
    given_up = before.intent is not None
    changed = replace(before, position=position, definition={}, accepted=accepted, given_up=given_up)
    return _with_tables(document, {table_id: changed})


def reset(document: StateDocument, table_id: str) -> StateDocument:
    """``state reset``: discards everything except the sequence number, its owner and its run."""
    return _with_tables(document, {table_id: _only_number(document.table(table_id))})


def adopt(
    document: StateDocument,
    table_id: str,
    info: TableInfo,
    commit: Commit | None,
    columns: tuple[Column, ...],
    *,
    keeps_position: bool = True,
) -> StateDocument:
    """``state adopt``: takes sequence number and position from the target. ``commit`` None: the target has no record
    of this lineage, and the position stays. ``columns`` are the target's columns that flowctl writes.
    ``keeps_position`` False: both positions are of another target. New sequence numbers still start above the highest
    ever used."""
    before = document.table(table_id)
    position = commit.position if commit and (commit.position or not commit.void) else before.position
    committed = commit is not None and before.intent is not None and commit.intent_id == before.intent.id
    if commit is not None:
        before = _with_letters_settled(before, commit)
        last = commit.seq if commit.restored is None else commit.restored
        above = PassedLetters(last + 1, before.next_seq - 1)  # of commits that the target no longer has
        passed = without_number(before.passed, commit.seq) if commit.seq > before.seq else before.passed
        before = replace(before, passed=with_passed(passed, above))
    return _with_tables(
        document,
        {
            table_id: replace(
                before,
                seq=commit.seq if commit else 0,
                intent_id=commit.intent_id if commit else "",
                position=position if keeps_position else None,
                definition={},
                accepted=(),
                append_again=False,
                target_columns=columns,
                target_id=info.identity,
                target_version=info.version,
                intent=None if committed else before.intent,
                given_up=before.intent is not None and not committed,
                highest=max(before.next_seq - 1, commit.seq if commit else 0),
            )
        },
    )


def with_definition_of(document: StateDocument, table_id: str, then: TableState, target: str) -> StateDocument:
    """``document``, in which the table has the definition and the columns of its source that ``then`` has, as after a
    commit that was restored. ``target`` is its `to` as of now: the connection may have had another name."""
    changed = replace(
        document.table(table_id),
        definition={**then.definition, "to": target},
        schema=then.schema,
        upstream_shape=then.upstream_shape,
        deletes_checked_at=then.deletes_checked_at,
    )
    return _with_tables(document, {table_id: changed})


def _with_number(before: TableState, commit: Commit, run_id: str) -> TableState:
    finished = before.intent is None or commit.seq >= before.intent.seq
    return replace(
        before,
        seq=commit.seq,
        intent_id=commit.intent_id,
        target_id=commit.target_id or before.target_id,  # a void has no target id for a missing table
        target_version=commit.version,
        last_run=run_id,
        intent=None if finished else before.intent,
        given_up=before.given_up and not finished,
        highest=max(before.highest, commit.seq),
    )


def _only_number(before: TableState) -> TableState:
    return TableState(
        seq=before.seq,
        intent_id=before.intent_id,
        target_id=before.target_id,
        last_run=before.last_run,
        intent=before.intent,
        given_up=before.intent is not None,
        highest=before.highest,
        passed=before.passed,
    )


def _with_tables(document: StateDocument, changed: Mapping[str, TableState]) -> StateDocument:
    return replace(document, tables={**document.tables, **changed})
