"""Sail: a Spark Connect server in a Rust library, started inside this process. No JVM, no jars (`pysail`, from PyPI).

It ends with the process, so nothing of it outlives a killed run.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from flowctl.errors import FlowctlError

_MISSING_HINT = "Install it: pip install 'flowctl[sail]'"


class SailMissing(FlowctlError):
    """``spark.url: sail`` without the package."""


def require() -> None:
    """:class:`SailMissing` when the package is not there; loads nothing."""
    if importlib.util.find_spec("pysail") is None:
        raise SailMissing("spark.url: sail needs pysail, which is not installed", hint=_MISSING_HINT)


@contextmanager
def server(environment: Mapping[str, str], memory: int, scratch: Path, *, verbose: bool) -> Iterator[str]:
    """The ``sc://`` URL of a server of our own. ``environment`` has the object store's credentials, which the library
    reads from the process's environment only; ``memory`` is what queries may use, in bytes, before they spill."""
    require()
    settings = {
        "RUST_LOG": "warn" if verbose else "off",
        "SAIL_RUNTIME__MEMORY_POOL__TYPE": "fair",
        "SAIL_RUNTIME__MEMORY_POOL__FAIR__MAX_SIZE": str(memory),
        "SAIL_RUNTIME__TEMPORARY_FILES__PATHS": f'["{scratch}"]',
        **environment,
    }
    os.environ.update({name: value for name, value in settings.items() if name not in os.environ})
    from pysail.spark import SparkConnectServer

    started = SparkConnectServer("127.0.0.1", 0)
    started.start(background=True)
    _, port = started.listening_address
    try:
        yield f"sc://127.0.0.1:{port}"
    finally:
        with suppress(RuntimeError):  # it has ended by itself
            started.stop()
