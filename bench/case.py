"""What a benchmark is: a case, the competitors in it, and what each must answer. All of it is data and functions.

The order of one case, in ``rounds.py``: the case *prepares* its source; competitors with a *load* build their target
once, which is kept; the case *changes* the source; then, round by round, each competitor in turn gets its target back
as it was, is measured, and is checked. Only ``command`` is measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Service = Literal["postgres", "connect"]


@dataclass(frozen=True)
class World:
    """What a case finds: the scale, a folder of its own, and the servers that it needs (libpq URL, ``sc://`` URL)."""

    scale: float
    folder: Path
    postgres: str = ""
    connect: str = ""

    def count(self, at_scale_1: int) -> int:
        """So many things at scale 1 and above, a share of them below."""
        return max(2, round(at_scale_1 * min(1.0, self.scale)))


@dataclass(frozen=True)
class Relation:
    """Something that DuckDB can read: what stands after FROM, and a condition. Passwords come from the environment.
    ``table`` is the URL and the name of a table in PostgreSQL."""

    sql: str
    where: str = "true"
    table: tuple[str, str] | None = None


@dataclass(frozen=True)
class Contents:
    """What two relations must agree in: rows, the sum of a number's column, the sum of all rows' hashes. ``types`` are
    DuckDB's, by column."""

    rows: int
    amount: str
    digest: str
    types: Mapping[str, str]


@dataclass(frozen=True)
class Prepared:
    """``rows`` is what rows/s counts. ``source`` are the relations a result is compared with, after the change."""

    rows: int
    facts: str
    source: tuple[Relation, ...] = ()
    amount: str = ""
    types: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """One competitor in one case: its folder, its own database (when it asked for one), what is expected."""

    world: World
    folder: Path
    database: str
    prepared: Prepared
    expected: Contents | None = None


@dataclass(frozen=True)
class Command:
    """``scratch`` is a folder whose greatest size is measured too."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    scratch: Path | None = None


@dataclass(frozen=True)
class Measured:
    """One process with all that it started. Memory is resident memory; ``main`` is the process itself, ``jvm`` the
    largest Java process; ``server_cpu`` is what servers that ran before spent meanwhile, by name."""

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
    """``right`` is None when there is nothing to compare. ``types`` says where types are not the source's."""

    right: bool | None
    says: str = ""
    types: tuple[str, ...] = ()


def _always(_setting: Setting) -> str:
    return ""


def unchecked(_setting: Setting, _output: Path) -> Verdict:
    return Verdict(None)


@dataclass(frozen=True)
class Competitor:
    """``how`` states the configuration in one line of prose. ``missing`` says why it cannot take part here (empty: it
    can). One on servers that are to be warm runs ``rehearsals`` times unmeasured. One that is not ``compared`` does
    other work than the rest, so that no ratio is shown. ``check`` gets the output's file."""

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
    """At least so many times as fast as a peer in the same run."""

    ours: str
    times: float
    than: str


@dataclass(frozen=True)
class Within:
    """At most so many seconds, the whole process."""

    ours: str
    seconds: float


@dataclass(frozen=True)
class AtMostTimes:
    """At most so many times the seconds of another."""

    ours: str
    times: float
    of: str


@dataclass(frozen=True)
class Small:
    """The started process itself stays below so many MiB."""

    ours: str
    mib: int


Target = Faster | Within | AtMostTimes | Small


def _unchanged(world: World) -> None:
    """The source stays as prepared."""


@dataclass(frozen=True)
class Case:
    """``says`` describes the work; ``notes`` what a reader should know. Cases that are not ``by_default``
    run when they are asked for by name. A command that has not ended after ``longest`` seconds has failed."""

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
