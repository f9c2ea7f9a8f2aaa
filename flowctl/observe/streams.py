"""What state and the landing log say of the streams of one plan."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from flowctl.connectors.base import Connector
from flowctl.connectors.stream import StreamInfo, StreamProblem, StreamSource
from flowctl.errors import FlowctlError
from flowctl.model.position import LandedPosition, order_of, order_of_moment
from flowctl.observe.asking import Connections
from flowctl.observe.landed import landed_source
from flowctl.observe.world import SeenStream
from flowctl.spec.spec import Spec, StreamSpec
from flowctl.state.document import StateDocument, StreamState
from flowctl.state.streams import former_stream, landing_log, needed, stream_store
from flowctl.storage.blobs import BlobStore


def recorded_streams(spec: Spec, blobs: BlobStore, names: Iterable[str]) -> dict[str, SeenStream]:
    return {name: _recorded(spec, blobs, name) for name in dict.fromkeys(names)}


def _recorded(spec: Spec, blobs: BlobStore, name: str) -> SeenStream:
    state = stream_store(blobs, name).read()
    applied = state.stream.applied if state.stream else 0
    if state.stream is None:
        return SeenStream(state)
    log = landing_log(spec, name)
    newest = log.newest(applied)
    waiting = log.between(needed(state, state.tables), newest.batch) if newest is not None else []
    digests = {digest for batch in waiting for table in batch.tables for digest in table.shapes.values()}
    shapes = {digest: log.shape(digest) for digest in sorted(digests)}
    taken = {
        (batch.batch, since): log.changes_from(batch, batch.tables, order_of_moment(since))
        for since, number in _moments(state).items()
        for batch in waiting
        if batch.batch > number and order_of(batch.lower) < order_of_moment(since)
    }
    return SeenStream(state, newest=newest, waiting=tuple(waiting), shapes=shapes, taken=taken)


def _moments(state: StateDocument) -> dict[str, int]:
    """The moments at which tables were read, with the batch before each. Few batches after that begin before it."""
    found: dict[str, int] = {}
    for one in state.tables.values():
        if isinstance(one.position, LandedPosition):
            since = one.position.since
            found[since] = min(one.position.batch, found.get(since, one.position.batch))
    return found


def stream_source(spec: Spec, stream: StreamSpec, connector: Connector) -> StreamSource:
    """What the stream is captured from: its connection, or what another flow has captured there."""
    assert connector.streams is not None, "the spec's checks have refused other types"
    return landed_source(spec, stream, connector.streams) if stream.landed else connector.streams


def former_streams(
    spec: Spec, blobs: BlobStore, read: Collection[str], connections: Connections
) -> dict[str, SeenStream]:
    """Streams with a state that none of the tables ``read`` from, with what their source says of them."""
    found = {}
    for name in blobs.folders("streams/"):
        state = stream_store(blobs, name).read() if name not in read else None
        if state is not None and state.stream is not None and state.stream.connection:
            found[name] = _asked(spec, name, state, state.stream, connections)
    return found


def _asked(spec: Spec, name: str, state: StateDocument, stream: StreamState, connections: Connections) -> SeenStream:
    if stream.connection not in spec.connections:
        return SeenStream(state)
    try:
        connector = connections.get(stream.connection)
        if connector.streams is None:
            return SeenStream(state)
        former = former_stream(spec, name, stream)
        return SeenStream(state, stream_source(spec, former, connector).describe_stream(former, []))
    except FlowctlError as error:
        return SeenStream(state, error=error)


def with_info(
    seen: SeenStream, info: StreamInfo | FlowctlError, stream: StreamSpec, connections: Connections
) -> SeenStream:
    if isinstance(info, FlowctlError):
        return replace(seen, error=info)
    return replace(seen, info=info, no_snapshots=_why_no_snapshots(info, stream, connections))


def _why_no_snapshots(info: StreamInfo, stream: StreamSpec, connections: Connections) -> StreamProblem | None:
    if not stream.snapshot_from:
        return None
    try:
        source = connections.get(stream.snapshot_from).streams
        assert source is not None, "the spec's checks have refused other types"
        return source.why_no_snapshots(info.system)
    except FlowctlError as error:
        return StreamProblem(error.message, error.hint)
