"""What an engine cannot do with a connector's rows, as the connector declares it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flowctl.engine.session import reachable
from flowctl.spec.secrets import without_references

UNREACHABLE = "it can only reach paths with letters, digits and . _ - / = + ~ @ :"


@dataclass(frozen=True)
class Gap:
    """The engine does not support ``key`` of the spec, or ``what`` follows from it, for this ``reason``."""

    key: str
    reason: str
    what: str = ""


def unreachable(path: object, base_dir: str) -> Iterator[Gap]:
    """The gap of a table that Sail writes to ``path``, as the spec has it: a relative one starts from ``base_dir``.
    What is a secret is unknown here; one at the beginning may be a whole root."""
    text = without_references(str(path), "/x")
    root = text if "://" in text else str(Path(base_dir, text).resolve())
    if not reachable(root):
        yield Gap("to", UNREACHABLE if text != str(path) else f"{UNREACHABLE}, not {root}")
