"""Two checkouts of flowctl in turns, in one run of a case: how much slower or faster is a change?

Each of a case's own competitors becomes two, whose commands import flowctl from one checkout or the other. The source,
the rounds and the check are shared, and those of the checkout from which ``bench`` runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bench.case import Case, Command, Competitor, Setting
from bench.rounds import Entry, Outcome


def in_turns(case: Case, old: Path, new: Path, only: Sequence[str] = ()) -> Case:
    """``case`` with each of flowctl's own competitors (of those named ``only``) from both checkouts, old before new."""
    ours = [each for each in case.competitors if each.ours and (not only or each.name in only)]
    both = [_from(each, label, tree) for each in ours for label, tree in (("old", old), ("new", new))]
    return replace(case, competitors=tuple(both))


def _from(competitor: Competitor, label: str, tree: Path) -> Competitor:
    def importing(command: Callable[[Setting], Command]) -> Callable[[Setting], Command]:
        def changed(setting: Setting) -> Command:
            there = command(setting)
            return replace(there, env={**there.env, "PYTHONPATH": str(tree)})

        return changed

    return replace(
        competitor,
        name=f"{label} {competitor.name}",
        command=importing(competitor.command),
        load=importing(competitor.load) if competitor.load else None,
    )


def lines(outcome: Outcome) -> list[str]:
    """One line for each pair: medians of wall and processor time, and whether the results are right."""
    entries = outcome.entries
    return [_line(old, new) for old, new in zip(entries[::2], entries[1::2], strict=True)]


def _line(old: Entry, new: Entry) -> str:
    name = old.competitor.name.removeprefix("old ")
    if not old.measured or not new.measured:
        why = [f"{label}: {one.skipped or one.failed}" for label, one in (("old", old), ("new", new))]
        return f"{name}: not measured, {'; '.join(why)}"
    before, after = (statistics.median(one.seconds for one in entry.measured) for entry in (old, new))
    cpu = [statistics.median(one.cpu_seconds for one in entry.measured) for entry in (old, new)]
    wrong = [
        f", {label} is WRONG"
        for label, entry in (("old", old), ("new", new))
        if any(verdict.right is False for verdict in entry.verdicts)
    ]
    change = f"{before:.2f} → {after:.2f} s ({after / before - 1:+.0%}), CPU {cpu[0]:.2f} → {cpu[1]:.2f} s"
    return f"{name}: {change}{''.join(wrong)}"
