"""Where each change stream keeps what it remembers: a small flow of its own below the flow's folder.

A stream has its own state log and lease, so that one that runs for weeks neither keeps `flowctl apply` and the state
commands from the other tables nor writes their document twice a second.
"""

from __future__ import annotations

from flowctl.spec.spec import Spec
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


def landing_log(spec: Spec, stream: str) -> LandingLog:
    return LandingLog(open_flow(spec), flow_url(spec), prefix(stream), spec.storage)
