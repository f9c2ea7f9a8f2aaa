"""What an engine cannot do with a connector's rows, as the connector says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from flowctl.engine.session import SAIL, reachable
from flowctl.spec.secrets import without_references
from flowctl.spec.spec import Connection

UNREACHABLE = "it can only reach paths with letters, digits and . _ - / = + ~ @ :"


@dataclass(frozen=True)
class Gap:
    """``key`` of the spec cannot be on the engine, or ``what`` that follows from it, for this ``reason``."""

    key: str
    reason: str
    what: str = ""


def unreachable_root(engine: str, connection: Connection) -> Iterator[Gap]:
    """Of a connection whose `path` executors read or write below."""
    path = without_references(str(connection.options["path"]), "x")  # whose values nobody knows here
    if engine == SAIL and not reachable(path):
        yield Gap("path", UNREACHABLE)
