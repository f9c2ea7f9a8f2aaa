"""Where each change stream keeps what it remembers: a small flow of its own below the flow's folder.

A stream has its own state log and lease, so that one that runs for weeks neither keeps `flowctl apply` and the state
commands from the other tables nor writes their document twice a second.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from flowctl.model.position import LandedPosition
from flowctl.spec.spec import Spec
from flowctl.state.document import StateDocument, StreamState
from flowctl.state.location import flow_url, open_flow
from flowctl.state.store import Retention, StateStore
from flowctl.storage.blobs import BlobStore
from flowctl.storage.landing import LandingLog

#: Kept besides the newest numbers: one an hour.
_RETENTION = Retention(hourly=True)


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


def landing_log(spec: Spec, stream: str) -> LandingLog:
    return LandingLog(open_flow(spec), flow_url(spec), prefix(stream), spec.storage)
