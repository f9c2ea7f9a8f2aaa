"""What state and the landing log say of the streams of one plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from flowctl.connectors.stream import StreamInfo
from flowctl.errors import FlowctlError
from flowctl.observe.world import SeenStream
from flowctl.spec.spec import Spec
from flowctl.state.streams import landing_log, needed, stream_store
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
    return SeenStream(state, newest=newest, waiting=tuple(waiting), shapes=shapes)


def with_info(seen: SeenStream, info: StreamInfo | FlowctlError) -> SeenStream:
    return replace(seen, error=info) if isinstance(info, FlowctlError) else replace(seen, info=info)
