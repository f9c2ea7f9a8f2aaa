"""The objects of the server that a stream uses, by the spec."""

from __future__ import annotations

import re
from dataclasses import dataclass

from flowctl.spec.spec import StreamSpec

_LONGEST = 63


@dataclass(frozen=True)
class Publication:
    """``is_managed``: a run creates it, and adds tables to it."""

    name: str
    is_managed: bool


def slot_of(stream: StreamSpec) -> str:
    return str(stream.options.get("slot") or _default(stream))


def publication_of(stream: StreamSpec) -> Publication:
    match stream.options.get("publication"):
        case None:
            return Publication(_default(stream), is_managed=True)
        case str() as name:
            return Publication(name, is_managed=False)
        case written:
            return Publication(written["name"], bool(written.get("manage", False)))


def _default(stream: StreamSpec) -> str:
    return re.sub(r"[^a-z0-9_]", "_", f"flowctl_{stream.flow}_{stream.name}".lower())[:_LONGEST]
