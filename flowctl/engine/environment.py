"""Temporary changes to the environment variables that this process's Python code sees."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def change_environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Sets variables, or removes those with the value None; restores all of them on exit.

    pyspark reads them from `os.environ`, and passes that on to the processes that it starts. The C library's own copy
    stays as it is: `setenv` may move it while another thread is inside `getenv` (libpq and OpenSSL are when they
    connect), which ends the process with a segmentation fault (seen with glibc 2.36)."""
    before = {name: os.environ.get(name) for name in changes}
    _set(changes)
    try:
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    environ: Any = os.environ
    for name, value in values.items():
        if value is None:
            environ._data.pop(environ.encodekey(name), None)
        else:
            environ._data[environ.encodekey(name)] = environ.encodevalue(value)
