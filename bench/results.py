"""Results as values and as JSON: one file per case, so that a single case can be run again."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from bench.case import Measured, Verdict
from bench.rounds import Entry, Outcome


@dataclass(frozen=True)
class Figures:
    """The figures of one competitor: ``seconds`` of each round, medians of times, maxima of sizes."""

    name: str
    how: str
    ours: bool
    compared: bool
    skipped: str
    failed: str
    seconds: tuple[float, ...]
    median_seconds: float
    cpu_seconds: float
    server_cpu: Mapping[str, float]
    peak_bytes: int
    main_peak_bytes: int
    jvm_peak_bytes: int
    jvm_heap_bytes: int
    scratch_peak_bytes: int
    right: bool | None
    says: str
    types: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """One case as it was run."""

    case: str
    facts: str
    rows: int
    scale: float
    rounds: int
    date: str
    commit: str
    machine: Mapping[str, str]
    versions: Mapping[str, str]
    figures: tuple[Figures, ...]


def figures(entry: Entry) -> Figures:
    """The figures of the completed rounds; one wrong round makes the result wrong."""
    measured, verdicts = entry.measured, entry.verdicts
    wrong = [each for each in verdicts if each.right is False]
    verdict = wrong[0] if wrong else verdicts[-1] if verdicts else Verdict(None)
    servers = {name for each in measured for name in each.server_cpu}
    return Figures(
        name=entry.competitor.name,
        how=entry.competitor.how,
        ours=entry.competitor.ours,
        compared=entry.competitor.compared,
        skipped=entry.skipped,
        failed=entry.failed,
        seconds=tuple(round(each.seconds, 3) for each in measured),
        median_seconds=_median([each.seconds for each in measured]),
        cpu_seconds=_median([each.cpu_seconds for each in measured]),
        server_cpu={name: _median([each.server_cpu.get(name, 0) for each in measured]) for name in sorted(servers)},
        right=verdict.right,
        says=verdict.says,
        types=verdict.types,
        **{name: max((getattr(each, name) for each in measured), default=0) for name in _SIZES},
    )


def result_of(case: str, outcome: Outcome, **run: Any) -> Result:
    return Result(
        case=case,
        facts=outcome.prepared.facts,
        rows=outcome.prepared.rows,
        figures=tuple(map(figures, outcome.entries)),
        **run,
    )


def save(result: Result, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{result.case}.json").write_text(json.dumps(asdict(result), indent=1, ensure_ascii=False) + "\n")


def load(folder: Path) -> dict[str, Result]:
    """All results in ``folder`` by case, including those of other runs."""
    return {file.stem: _read(json.loads(file.read_text())) for file in sorted(folder.glob("*.json"))}


def _read(document: dict[str, Any]) -> Result:
    found = [
        Figures(**{**each, "seconds": tuple(each["seconds"]), "types": tuple(each["types"])})
        for each in document["figures"]
    ]
    return Result(**{**document, "figures": tuple(found)})


def _median(values: list[float]) -> float:
    return round(statistics.median(values), 3) if values else 0.0


_SIZES = tuple(each.name for each in fields(Measured) if each.name.endswith("_bytes"))
