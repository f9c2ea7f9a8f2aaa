"""All checks, collected from the files of this folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from flowctl.expect.expectation import Expectation


@cache
def kinds() -> Mapping[str, type[Expectation]]:
    """Every check by its key in the spec, in the order of the files' names."""
    for file in Path(__file__).parent.glob("[a-z]*.py"):
        import_module(f"flowctl.expect.{file.stem}")
    checks = sorted(_concrete(Expectation), key=lambda check: check.__module__)
    return {check.key: check for check in checks}


def _concrete(base: Any) -> Iterator[type[Expectation]]:
    for check in base.__subclasses__():
        if hasattr(check, "key"):
            yield check
        yield from _concrete(check)
