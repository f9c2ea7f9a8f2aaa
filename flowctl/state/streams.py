"""Where each change stream keeps what it remembers: a small flow of its own below the flow's folder.

A stream has its own state log and lease, so that one that runs for weeks neither keeps `flowctl apply` and the state
commands from the other tables nor writes their document twice a second.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from flowctl.diagnostics import Mark
from flowctl.model.position import LandedPosition
from flowctl.spec.spec import Spec, StreamSpec
from flowctl.state.document import StateDocument, StreamState, TableState
from flowctl.state.location import flow_url, open_flow
from flowctl.state.store import Retention, StateStore
from flowctl.storage.blobs import BlobStore
from flowctl.storage.landing import LandedBatch, LandingLog

#: What a definition says of the source as it was observed.
OBSERVED = ("source_system", "source_identity", "source_view", "published", "row_filter", "partitions")
#: A followed stream writes all the time.
_RETENTION = Retention(step=dt.timedelta(hours=1), recent=dt.timedelta(0))


def prefix(stream: str) -> str:
    """The stream's part of the flow's folder."""
    return f"streams/{stream}/"


def lease_prefix(stream: str) -> str:
    return f"{prefix(stream)}lease/"


def stream_store(blobs: BlobStore, stream: str) -> StateStore:
    return StateStore(blobs, prefix=prefix(stream), retention=_RETENTION)


def applied(document: StateDocument, table_id: str) -> int | None:
    """The batch up to which the table has its changes; None if it waits for its snapshot."""
    position, stream = document.table(table_id).position, document.stream
    if not isinstance(position, LandedPosition) or stream is None:
        return None
    return max(position.batch, stream.apart.get(table_id, stream.applied))


def needed(document: StateDocument, table_ids: Iterable[str]) -> int:
    """The batch above which one of these tables, or the stream itself, still needs all."""
    found = [number for one in table_ids if (number := applied(document, one)) is not None]
    return min(found, default=0) if document.stream is None else min([document.stream.applied, *found])


def with_apart(stream: StreamState, apart: Mapping[str, int]) -> StreamState:
    """``apart`` without the tables that have come as far as the stream."""
    return replace(stream, apart={id: batch for id, batch in sorted(apart.items()) if batch < stream.applied})


def without_positions(document: StateDocument, table_ids: Collection[str]) -> StateDocument:
    """These tables are read in full before they take changes again. What is pending is abandoned."""
    tables = {
        id: replace(state, position=None, given_up=state.intent is not None) if id in table_ids else state
        for id, state in document.tables.items()
    }
    stream = document.stream
    if stream is not None:
        apart = {id: batch for id, batch in stream.apart.items() if id not in table_ids}
        stream = replace(stream, apart=apart)
    return replace(document, tables=tables, stream=stream)


def joined(document: StateDocument, table_ids: Collection[str], position: LandedPosition) -> StateDocument:
    """These tables take all changes after ``position``, and have no snapshot (`snapshot: never`)."""
    tables = {id: replace(document.table(id), position=position) for id in table_ids}
    return replace(document, tables={**document.tables, **tables})


def resnapshot(document: StateDocument, table_ids: Collection[str], *, append_again: bool) -> StateDocument:
    """``state resnapshot``: the tables are read in full at a new moment. How they are published since then is known
    only then. ``append_again``: a table that appends gets all rows again."""
    document = without_positions(document, table_ids)
    tables = {
        id: replace(
            with_source_forgotten(state), append_again=append_again and state.definition.get("mode") == "append"
        )
        if id in table_ids
        else state
        for id, state in document.tables.items()
    }
    return replace(document, tables=tables)


def with_source_forgotten(state: TableState) -> TableState:
    """``state`` without what its definitions say of the source as it was observed."""
    definition, *accepted = (
        {name: value for name, value in one.items() if name not in OBSERVED}
        for one in (state.definition, *state.accepted)
    )
    return replace(state, definition=definition, accepted=tuple(accepted))


def anew(document: StateDocument) -> StateDocument:
    """The whole stream begins again, with a new reader."""
    return replace(document, stream=replace(document.stream or StreamState(), anew=True))


def rewound(document: StateDocument, table_ids: Collection[str], batch: LandedBatch) -> StateDocument:
    """``state set --batch``: the tables take everything after ``batch`` again."""
    tables = dict(document.tables)
    stream = document.stream or StreamState()
    for id in table_ids:
        before = tables[id]
        if isinstance(before.position, LandedPosition):
            position = LandedPosition(batch.batch, str(batch.upper), before.position.since)
            tables[id] = replace(before, position=position, given_up=before.intent is not None)
    apart = {**stream.apart, **dict.fromkeys(table_ids, batch.batch)}
    return replace(document, tables=tables, stream=with_apart(stream, apart))


def with_rolled_back(before: StateDocument, document: StateDocument, then: StateDocument) -> StateDocument:
    """``document``, in which tables have gone back to what ``then`` records: they lag behind."""
    stream = document.stream
    if stream is None:
        return document
    moved = [id for id, state in document.tables.items() if state.position != before.table(id).position]
    lost = [id for id in moved if document.table(id).position is None]
    reached = {id: number for id in moved if id not in lost and (number := applied(then, id)) is not None}
    document = replace(document, stream=with_apart(stream, {**stream.apart, **reached}))
    return without_positions(document, lost)


def with_adopted(before: StateDocument, document: StateDocument, table_id: str) -> StateDocument:
    """``document``, in which the table has the position that its target records: an earlier one if that was
    restored. Without a position, it is read in full."""
    stream, position = document.stream, document.table(table_id).position
    if stream is not None and position is None:
        return without_positions(document, [table_id])
    if stream is None or position == before.table(table_id).position or not isinstance(position, LandedPosition):
        return document
    return replace(document, stream=with_apart(stream, {**stream.apart, table_id: position.batch}))


def former_stream(spec: Spec, name: str, state: StreamState) -> StreamSpec:
    """A stream that the spec no longer has, as far as its state tells."""
    options = {key: value for key, value in state.options.items() if key != "landed"}
    landed = str(state.options.get("landed", ""))
    return StreamSpec(name, spec.flow, state.connection, Mark(spec.path, 1), landed=landed, options=options)


def ended(document: StateDocument) -> StateDocument:
    """The stream has no reader any more: if the spec has it again, it begins anew."""
    return replace(without_positions(document, list(document.tables)), stream=None)


def landing_log(spec: Spec, stream: str) -> LandingLog:
    return LandingLog(open_flow(spec), flow_url(spec), prefix(stream), spec.storage)
