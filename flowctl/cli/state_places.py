"""Where the commands of `flowctl state` find a table: in the state of its flow, or in that of its change stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from flowctl.errors import UsageError
from flowctl.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from flowctl.spec.spec import Spec
    from flowctl.state.document import StateDocument, TableState
    from flowctl.state.store import StateStore
    from flowctl.storage.blobs import BlobStore

stream_option = click.option("--stream", metavar="NAME", help="The state of this change stream, not that of the flow.")


@dataclass(frozen=True)
class StatePlace:
    """One state log and its lease; ``stream`` is empty for the flow's own."""

    store: StateStore
    lease_prefix: str = "lease/"
    stream: str = ""


def place_of_stream(spec: Spec, stream: str | None) -> StatePlace:
    """That of the flow without a name. Raises :class:`UsageError` if there is no such stream."""
    from flowctl.state.location import open_flow
    from flowctl.state.store import StateStore

    blobs = open_flow(spec)
    if not stream:
        return StatePlace(StateStore(blobs))
    if stream not in spec.streams:
        hint = "Leave --stream out: the spec has no streams"
        if spec.streams:
            hint = did_you_mean(stream, spec.streams, "There are: ")
        raise UsageError(f"there is no stream {stream!r}", hint=hint)
    return _of_stream(blobs, stream)


def place_of_former(spec: Spec, name: str) -> StatePlace:
    """That of a stream which the spec need not have any more. Raises :class:`UsageError` if it has no state."""
    from flowctl.state.location import open_flow

    blobs = open_flow(spec)
    known = blobs.folders("streams/")
    if name not in known:
        hint = did_you_mean(name, known, "There are: ") if known else "Run `flowctl plan`: it lists the streams"
        raise UsageError(f"the state has no stream {name!r}", hint=hint)
    return _of_stream(blobs, name)


def _of_stream(blobs: BlobStore, name: str) -> StatePlace:
    from flowctl.state.streams import lease_prefix, stream_store

    return StatePlace(stream_store(blobs, name), lease_prefix(name), name)


def all_places(spec: Spec) -> Iterator[StatePlace]:
    """The flow's own first."""
    yield place_of_stream(spec, None)
    for name in spec.streams:
        yield place_of_stream(spec, name)


def place_of_table(spec: Spec, table_id: str) -> StatePlace:
    """The place whose state has the table; the flow's own if none has."""
    places = list(all_places(spec))
    return next((place for place in places[1:] if table_id in place.store.read().tables), places[0])


def known_table(spec: Spec, document: StateDocument, table_id: str) -> TableState:
    if table_id in document.tables:
        return document.tables[table_id]
    known = sorted(id for place in all_places(spec) for id in place.store.read().tables)
    raise UsageError(f"state has no table {table_id!r}", hint=f"Choose one of {', '.join(known[:10]) or 'none'}")
