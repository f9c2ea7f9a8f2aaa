"""The engine under test, and what it cannot do: the one list.

A test names what it needs, ``@pytest.mark.needs("clustering")``, or a parameter of it does. Where the engine under test
has no such thing, the test is expected to fail, and is reported once it no longer does. What users meet of these gaps
is refused by name (:mod:`flowctl.resolve.sail`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pytest

#: ``spark``, ``connect`` (Spark behind a Spark Connect server) or ``sail``.
UNDER_TEST = os.environ.get("FLOWCTL_TEST_SPARK") or "spark"


class Gap(NamedTuple):
    why: str
    #: A test that cannot begin, or whose subject is not there, is skipped.
    runs: bool = True


_SPARK = {
    "partitions by flowctl": Gap("Spark's statements write partitions", runs=False),
}
GAPS: Mapping[str, Mapping[str, Gap]] = {
    "spark": _SPARK,
    "connect": {
        **_SPARK,
        "files that flowctl reads": Gap(
            "Avro, timestamps in ORC, arrays of structs in JSON, partitions and paths are refused"
        ),
    },
    "sail": {
        "added columns": Gap("columns.add is refused"),
        "clustering": Gap("clustering is refused"),
        "column mapping": Gap("no table with column mapping can be created"),
        "credentials per table": Gap("Sail gets credentials as it starts: see tests/e2e"),
        "CSV with an escape": Gap("refused"),
        "Delta's own statements": Gap("no INSERT, ALTER or RESTORE by another client, and no CREATE as Spark has it"),
        "files of executors": Gap("Sail writes with its own Delta writer", runs=False),
        "JDBC": Gap("an engine without a JVM has none", runs=False),
        "paths with a space": Gap("Sail reaches none"),
        "tables by SQL": Gap("refused"),
        "type widening": Gap("refused"),
    },
}


def marks(needs: Iterable[str]) -> list[pytest.MarkDecorator]:
    """For a test that needs these."""
    gaps = [(name, gap) for name in needs if (gap := GAPS[UNDER_TEST].get(name))]
    known = {name for lacks in GAPS.values() for name in lacks}
    assert known.issuperset(needs), f"nobody lacks {sorted(set(needs) - known)}"
    return [
        pytest.mark.xfail(reason=f"{UNDER_TEST}, {name}: {gap.why}", strict=True)
        if gap.runs
        else pytest.mark.skip(reason=f"{UNDER_TEST}, {name}: {gap.why}")
        for name, gap in gaps
    ]
