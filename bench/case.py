"""A benchmark as data and functions: a case, its competitors, and the results required of them.

The order of one case, in ``rounds.py``: the case *prepares* its source; competitors with a *load* build their target
once, and it is kept; the case *changes* the source; then, in each round, each competitor in turn gets its kept target
back, is measured, and is checked. Only ``command`` is measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Service = Literal["postgres", "mysql", "s3", "connect", "kafka", "registry"]


@dataclass(frozen=True)
class World:
    """The environment of a case: the scale, its own folder, and the servers it needs (libpq URL, ``mysql://`` URL, the
    S3 server's endpoint, ``sc://`` URL, the broker's address, the schema registry's URL)."""

    scale: float
    folder: Path
    postgres: str = ""
    mysql: str = ""
    s3: str = ""
    connect: str = ""
    kafka: str = ""
    registry: str = ""

    def count(self, at_scale_1: int) -> int:
        """``at_scale_1`` at scale 1 and above, proportionally fewer below, at least 2."""
        return max(2, round(at_scale_1 * min(1.0, self.scale)))


@dataclass(frozen=True)
class Relation:
    """A relation that DuckDB can read: the SQL after FROM, and a condition. Passwords come from the environment.
    ``table`` is the URL and the name of a table in PostgreSQL. ``attach`` is a DuckDB file, known to the SQL as
    ``attached``."""

    sql: str
    where: str = "true"
    table: tuple[str, str] | None = None
    attach: str = ""


@dataclass(frozen=True)
class Contents:
    """What must be equal in two relations: the row count, the sum of a numeric column, the sum of all row hashes.
    ``types`` are DuckDB's, by column."""

    rows: int
    amount: str
    digest: str
    types: Mapping[str, str]


@dataclass(frozen=True)
class Prepared:
    """``rows`` is the number of rows for rows/s. ``source`` are the relations that a result is compared with, after the
    change."""

    rows: int
    facts: str
    source: tuple[Relation, ...] = ()
    amount: str = ""
    types: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """One competitor in one case: its folder, its own database (if it requires one), the expected contents."""

    world: World
    folder: Path
    database: str
    prepared: Prepared
    expected: Contents | None = None


@dataclass(frozen=True)
class Command:
    """``scratch`` is a folder whose peak size is also measured."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    scratch: Path | None = None


@dataclass(frozen=True)
class Measured:
    """One process and all its descendants. Memory is resident memory; ``main`` is the process itself, ``jvm`` the
    largest Java process; ``server_cpu`` is the CPU time of servers that were already running, by name."""

    seconds: float
    cpu_seconds: float
    server_cpu: Mapping[str, float]
    peak_bytes: int
    main_peak_bytes: int
    jvm_peak_bytes: int
    jvm_heap_bytes: int
    scratch_peak_bytes: int


@dataclass(frozen=True)
class Verdict:
    """``right`` is None if there is nothing to compare. ``types`` lists the types that differ from the source's."""

    right: bool | None
    says: str = ""
    types: tuple[str, ...] = ()


def _always(_setting: Setting) -> str:
    return ""


def unchecked(_setting: Setting, _output: Path) -> Verdict:
    return Verdict(None)


@dataclass(frozen=True)
class Competitor:
    """``how`` describes the configuration in one line. ``missing`` returns why it cannot take part here (empty: it
    can). It runs ``rehearsals`` times unmeasured, to warm up servers. If it is not ``compared``, it does different work
    from the others, and no ratio is shown. ``check`` receives the output file."""

    name: str
    how: str
    command: Callable[[Setting], Command]
    check: Callable[[Setting, Path], Verdict] = unchecked
    load: Callable[[Setting], Command] | None = None
    missing: Callable[[Setting], str] = _always
    ours: bool = False
    database: bool = False
    rehearsals: int = 0
    compared: bool = True

    @property
    def slug(self) -> str:
        return re.sub(r"[^a-z0-9]+", "_", self.name.lower()).strip("_")


@dataclass(frozen=True)
class Faster:
    """``ours`` is at least ``times`` times as fast as the peer ``than`` in the same run."""

    ours: str
    times: float
    than: str


@dataclass(frozen=True)
class Within:
    """The whole process takes at most ``seconds``."""

    ours: str
    seconds: float


@dataclass(frozen=True)
class AtMostTimes:
    """``ours`` takes at most ``times`` times as long as the competitor ``of``."""

    ours: str
    times: float
    of: str


@dataclass(frozen=True)
class Small:
    """The started process itself, without its children, stays below ``mib`` MiB."""

    ours: str
    mib: int


Target = Faster | Within | AtMostTimes | Small


def _unchanged(world: World) -> None:
    """Leaves the source as prepared."""


@dataclass(frozen=True)
class Case:
    """``says`` describes the work; ``notes`` are for the reader of the results. Cases that are not ``by_default`` run
    only if they are named. A command that has not ended after ``longest`` seconds has failed."""

    name: str
    title: str
    says: str
    prepare: Callable[[World], Prepared]
    competitors: tuple[Competitor, ...]
    needs: tuple[Service, ...] = ()
    change: Callable[[World], None] = _unchanged
    targets: tuple[Target, ...] = ()
    notes: tuple[str, ...] = ()
    by_default: bool = True
    longest: float = 3600.0
