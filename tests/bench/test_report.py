"""What is made of measurements: medians, ratios, targets, and the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench import results
from bench.case import (
    AtMostTimes,
    Case,
    Competitor,
    Contents,
    Faster,
    Measured,
    Prepared,
    Small,
    Target,
    Verdict,
    Within,
)
from bench.contents import compare
from bench.report import judge, render
from bench.results import Result
from bench.rounds import Entry, Outcome

MIB = 1 << 20
RIGHT = Verdict(True)


def measured(seconds: float, main: int = 100) -> Measured:
    return Measured(seconds, seconds * 2, {"PostgreSQL": 0.5}, main * 3 * MIB, main * MIB, main * 2 * MIB, 512 * MIB, 0)


def competitor(name: str, ours: bool = False) -> Competitor:
    return Competitor(name, f"how {name} is set up", lambda setting: pytest.fail("not run"), ours=ours)


def entry(name: str, *seconds: float, verdict: Verdict = RIGHT, ours: bool = False) -> Entry:
    return Entry(competitor(name, ours), "", "", [measured(each) for each in seconds], [verdict for _ in seconds])


def result(*entries: Entry, scale: float = 1.0, date: str = "2026-01-01 10:00 UTC") -> Result:
    run = {
        "scale": scale,
        "rounds": 3,
        "date": date,
        "commit": "abc",
        "machine": {"cores": "2"},
        "versions": {"a": "1"},
    }
    return results.result_of("one", Outcome(Prepared(1000, "1,000 rows"), entries), **run)


def case(*targets: Target, name: str = "one") -> Case:
    return Case(name, "The case", "It works.", lambda world: pytest.fail("not run"), (), targets=targets)


OURS, PEER = entry("flowctl", 4, 2, 3, ours=True), entry("peer", 6, 7, 5)


def test_medians_of_times_and_the_greatest_of_sizes() -> None:
    OURS.measured[1] = measured(2, main=300)
    ours, _ = result(OURS, PEER).figures
    assert (ours.median_seconds, ours.cpu_seconds, ours.server_cpu) == (3, 6, {"PostgreSQL": 0.5})
    assert (ours.main_peak_bytes, ours.seconds) == (300 * MIB, (4, 2, 3))


@pytest.mark.parametrize(
    ("target", "measured", "met"),
    [
        (Faster("flowctl", 2, than="peer"), "2.00 ×", "yes"),
        (Faster("flowctl", 2.1, than="peer"), "2.00 ×", "**no**"),
        (Within("flowctl", 3), "3.00 s", "yes"),
        (Within("flowctl", 2.9), "3.00 s", "**no**"),
        (AtMostTimes("peer", 2, of="flowctl"), "2.00 ×", "yes"),
        (AtMostTimes("peer", 1.9, of="flowctl"), "2.00 ×", "**no**"),
        (Small("peer", 101), "100 MiB", "yes"),
        (Small("peer", 100), "100 MiB", "**no**"),
        (Faster("flowctl", 2, than="nobody"), "not measured", "–"),
    ],
)
def test_targets(target: Target, measured: str, met: str) -> None:
    assert judge(target, result(OURS, PEER)) == (measured, met)


def test_a_smoke_run_and_a_wrong_result_meet_no_target() -> None:
    assert judge(Within("flowctl", 9), result(OURS, PEER, scale=0.1))[1] == "not at scale 0.1"
    wrong = entry("flowctl", 1, verdict=Verdict(False, "999 rows"))
    assert judge(Within("flowctl", 9), result(wrong))[1] == "**no**: WRONG"


def test_the_page() -> None:
    typed = entry("typed", 6, verdict=Verdict(True, "", ("DATE came as VARCHAR: day",)))
    wrong = entry("wrong", 1, verdict=Verdict(False, "999 rows where 1,000 are right"))
    skipped, failed = Entry(competitor("absent"), skipped="not here"), Entry(competitor("broken"), failed="exit code 1")
    page = render([case(Within("flowctl", 5)), case(name="two")], {"one": result(OURS, typed, wrong, skipped, failed)})
    assert "| The case | flowctl at most 5 s | 3.00 s | yes | 2026-01-01, abc |" in page
    assert "| flowctl | 3.00 (2.00–4.00) | 333 | 6.0 | 0.5 |" in page
    assert "right, other types | 2.00 × as fast |" in page
    assert "**WRONG** | 0.33 × as fast |" in page
    assert "- wrong is WRONG: 999 rows where 1,000 are right" in page
    assert "- Types of typed are not the source's: DATE came as VARCHAR: day" in page
    assert "- absent did not take part: not here" in page
    assert "- broken FAILED: exit code 1" in page
    assert "- typed: how typed is set up" in page
    assert "Not run yet: `two`." in page


def test_a_case_that_is_run_again_replaces_only_itself(tmp_path: Path) -> None:
    first, second = result(OURS), replace(result(PEER), case="two")
    results.save(first, tmp_path)
    results.save(second, tmp_path)
    again = result(OURS, PEER, date="2026-02-02 10:00 UTC")
    results.save(again, tmp_path)
    assert results.load(tmp_path) == {"one": again, "two": second}


def test_contents_are_compared_by_value_and_types_told_apart() -> None:
    source = Contents(2, "3.50", "77", {"id": "BIGINT", "a": "DECIMAL(9,2)", "b": "DECIMAL(9,2)"})
    assert compare(source, source) == Verdict(True)
    floats = replace(source, types={"id": "BIGINT", "a": "DOUBLE", "b": "DOUBLE", "_load": "VARCHAR"})
    assert compare(source, floats) == Verdict(True, "", ("DECIMAL(9,2) came as DOUBLE: a, b",))
    assert compare(source, replace(source, rows=1)).says == "1 rows where 2 are right"
    assert compare(source, replace(source, amount="3.51")).says == "the sum is 3.51, right is 3.50"
    assert compare(source, replace(source, digest="78")).right is False
