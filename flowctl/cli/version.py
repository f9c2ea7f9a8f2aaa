"""The versions that determine what a run does, found without importing or starting Spark."""

from __future__ import annotations

from importlib import metadata

import flowctl
from flowctl.engine import java
from flowctl.errors import EngineFailed


def version_lines() -> list[str]:
    """``name version``, one per line."""
    return [
        f"flowctl {flowctl.__version__}",
        f"Spark {_distribution('pyspark')}",
        f"Delta {_distribution('delta-spark')}",
        f"Java {_java()}",
    ]


def _distribution(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _java() -> str:
    try:
        return java.find().version
    except EngineFailed as missing:
        return f"none ({missing.message})"
