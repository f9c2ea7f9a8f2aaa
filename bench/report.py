"""``RESULTS.md``: generated from the results of all cases, never edited by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

from bench.case import AtMostTimes, Case, Faster, Small, Target, Within
from bench.results import Figures, Result

_INTRO = """# Results

Written by `python -m bench run`; [README.md](README.md) describes what is measured, and how. Seconds depend on the
machine: take the ratios, which are from one run each. Every result was compared with its source after it was measured.
"""
_MIB = 1 << 20


def render(cases: Sequence[Case], results: Mapping[str, Result]) -> str:
    """The whole page, with the cases in the given order; cases without results are listed at the end."""
    there = [(case, results[case.name]) for case in cases if case.name in results]
    if not there:
        return _INTRO
    newest = max((result for _, result in there), key=lambda result: result.date)
    parts = [_INTRO, _setting(newest), _targets(there)]
    parts += [_case(case, result, newest) for case, result in there]
    absent = [f"`{case.name}`" for case in cases if case.name not in results]
    if absent:
        parts.append(f"Not run yet: {', '.join(absent)}.\n")
    return "\n".join(parts)


def _setting(result: Result) -> str:
    machine = "; ".join(f"{name} {value}" for name, value in result.machine.items())
    versions = ", ".join(f"{name} {value}" for name, value in result.versions.items())
    return f"Machine: {machine}.\n\nVersions: {versions}.\n"


def _targets(there: Iterable[tuple[Case, Result]]) -> str:
    rows = [
        [case.title, says(target), *judge(target, result), f"{result.date[:10]}, {result.commit}"]
        for case, result in there
        for target in case.targets
    ]
    return f"## Targets\n\n{_table(['case', 'target', 'measured', 'met', 'run'], rows)}\n"


def says(target: Target) -> str:
    match target:
        case Faster(ours, times, than):
            return f"{ours} at least {times:g} × as fast as {than}"
        case Within(ours, seconds):
            return f"{ours} at most {seconds:g} s"
        case AtMostTimes(ours, times, of):
            return f"{ours} at most {times:g} × the time of {of}"
        case Small(ours, mib):
            return f"{ours}: its own process below {mib} MiB"
        case _:
            assert_never(target)


def judge(target: Target, result: Result) -> tuple[str, str]:
    """The measured value, and whether it meets the target: a wrong result never does, a smoke run does not count."""
    by_name = {each.name: each for each in result.figures}
    ours = by_name.get(target.ours)
    other = by_name.get(_other(target)) if _other(target) else ours
    if ours is None or other is None or not ours.seconds or not other.seconds:
        return "not measured", "–"
    match target:
        case Faster(_, times, _):
            ratio = other.median_seconds / ours.median_seconds
            measured, met = f"{ratio:.2f} ×", ratio >= times
        case Within(_, seconds):
            measured, met = f"{ours.median_seconds:.2f} s", ours.median_seconds <= seconds
        case AtMostTimes(_, times, _):
            ratio = ours.median_seconds / other.median_seconds
            measured, met = f"{ratio:.2f} ×", ratio <= times
        case Small(_, mib):
            measured, met = _mib(ours.main_peak_bytes), ours.main_peak_bytes < mib * _MIB
        case _:
            assert_never(target)
    if ours.right is False:
        return measured, "**no**: WRONG"
    if result.scale < 1:
        return measured, f"not at scale {result.scale:g}"
    return measured, "yes" if met else "**no**"


def _other(target: Target) -> str:
    match target:
        case Faster(_, _, than):
            return than
        case AtMostTimes(_, _, of):
            return of
        case _:
            return ""


def _case(case: Case, result: Result, newest: Result) -> str:
    where = "" if result.machine == newest.machine else f" On another machine: {'; '.join(result.machine.values())}."
    run = f"Run {result.date}, commit {result.commit}, scale {result.scale:g}, median of {result.rounds}.{where}"
    shown = [each for each in result.figures if each.seconds]
    lines = [f"## {case.title}\n", f"{case.says} {result.facts}.\n", f"{run}\n"]
    if shown:
        lines.append(_figures(shown, result.rows))
    lines += [f"- {each.name} did not take part: {each.skipped}" for each in result.figures if each.skipped]
    lines += [f"- {each.name} FAILED: {each.failed}" for each in result.figures if each.failed]
    lines += [f"- {each.name} is WRONG: {each.says}" for each in shown if each.right is False]
    lines += [f"- Types of {each.name} are not the source's: {'; '.join(each.types)}" for each in shown if each.types]
    lines += [f"- {each.name}: {each.how}" for each in shown]
    lines += [f"- {note}" for note in case.notes]
    return "\n".join(lines) + "\n"


def _figures(shown: Sequence[Figures], rows: int) -> str:
    """The table of figures, without columns that have no meaning in this case."""
    ours = [each for each in shown if each.ours and each.compared]
    servers = sorted({name for each in shown for name in each.server_cpu})
    columns: list[tuple[str, list[str]]] = [
        ("", [each.name for each in shown]),
        ("s", [_seconds(each) for each in shown]),
    ]
    if rows:
        columns.append(("rows/s", [_rate(rows, each) for each in shown]))
    columns.append(("CPU s", [f"{each.cpu_seconds:.1f}" for each in shown]))
    columns += [(f"{name} CPU s", [f"{each.server_cpu.get(name, 0):.1f}" for each in shown]) for name in servers]
    columns.append(("peak", [_mib(each.peak_bytes) for each in shown]))
    columns.append(("of that its own process", [_mib(each.main_peak_bytes) for each in shown]))
    if any(each.jvm_peak_bytes for each in shown):
        columns.append(("JVM (heap limit)", [_jvm(each) for each in shown]))
    if any(each.scratch_peak_bytes for each in shown):
        columns.append(("buffer on disk", [_mib(each.scratch_peak_bytes) for each in shown]))
    columns.append(("result", [_result(each) for each in shown]))
    if len(shown) > 1:
        columns += [(f"{one.name} is", [_ratio(one, each) for each in shown]) for one in ours]
    names = [name for name, _ in columns]
    return _table(names, [list(row) for row in zip(*(cells for _, cells in columns), strict=True)]) + "\n"


def _seconds(figures: Figures) -> str:
    digits = 2 if figures.median_seconds < 10 else 1
    if len(figures.seconds) == 1:
        return f"{figures.median_seconds:.{digits}f}"
    return f"{figures.median_seconds:.{digits}f} ({min(figures.seconds):.{digits}f}–{max(figures.seconds):.{digits}f})"


def _rate(rows: int, figures: Figures) -> str:
    return f"{rows / figures.median_seconds:,.0f}" if figures.compared else "–"


def _jvm(figures: Figures) -> str:
    if not figures.jvm_peak_bytes:
        return "–"
    return f"{_mib(figures.jvm_peak_bytes)} ({_mib(figures.jvm_heap_bytes)})"


def _result(figures: Figures) -> str:
    if figures.right is None:
        return "–"
    if not figures.right:
        return "**WRONG**"
    return "right, other types" if figures.types else "right"


def _ratio(ours: Figures, peer: Figures) -> str:
    return "–" if ours is peer or not peer.compared else f"{peer.median_seconds / ours.median_seconds:.2f} × as fast"


def _mib(size: int) -> str:
    return f"{size / _MIB:,.0f} MiB"


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"
