"""What an engine cannot do with a connector's rows, as the connector declares it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from flowctl.engine.session import SAIL, reachable
from flowctl.spec.secrets import without_references
from flowctl.spec.spec import Connection

UNREACHABLE = "it can only reach paths with letters, digits and . _ - / = + ~ @ :"


@dataclass(frozen=True)
class Gap:
    """The engine does not support ``key`` of the spec, or ``what`` follows from it, for this ``reason``."""

    key: str
    reason: str
    what: str = ""


def unreachable_root(engine: str, connection: Connection) -> Iterator[Gap]:
    """The gap of a connection whose executors read or write below its `path`."""
    path = without_references(str(connection.options["path"]), "x")  # their values are unknown here
    if engine == SAIL and not reachable(path):
        yield Gap("path", UNREACHABLE)
