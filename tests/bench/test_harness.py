"""The benchmark harness itself: a whole run of a case that needs no peers, measuring, and what becomes of failures."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.case import Case, Command, Competitor, Prepared, Setting, Verdict, World
from bench.cases import CASES
from bench.measure import CommandFailed, measure
from bench.rounds import run_case

ROOT = Path(__file__).parents[2]


def test_a_case_is_run_and_written_down(tmp_path: Path) -> None:
    file = tmp_path / "RESULTS.md"
    command = [sys.executable, "-m", "bench", "run", "--case", "validate", "--scale", "0.02", "--rounds", "1"]
    ran = subprocess.run([*command, "--results", file], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    written = file.read_text()
    assert "## Validate 500 tables" in written
    assert "10 tables" in written
    assert "| Validate 500 tables | flowctl at most 1 s |" in written
    [figures] = json.loads((tmp_path / "results" / "validate.json").read_text())["figures"]
    assert figures["right"] is True
    assert figures["cpu_seconds"] > 0
    assert figures["main_peak_bytes"] > 1 << 20


def test_two_checkouts_take_turns(tmp_path: Path) -> None:
    """Each runs its own flowctl: the older one here finds no tables."""
    (tmp_path / "flowctl").mkdir()
    (tmp_path / "flowctl" / "__init__.py").touch()
    (tmp_path / "flowctl" / "__main__.py").write_text("print('0 of them')")
    options = ["--case", "validate", "--scale", "0.02", "--rounds", "1"]
    command = [sys.executable, "-m", "bench", "compare", str(tmp_path), str(ROOT), *options]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    title, line = ran.stdout.splitlines()
    assert title == "validate, scale 0.02, median of 1"
    assert re.fullmatch(r"  flowctl: [\d.]+ → [\d.]+ s \([+-]\d+%\), CPU [\d.]+ → [\d.]+ s, old is WRONG", line), line


def test_competitors_take_turns_and_one_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def says(text: str, code: int = 0) -> Competitor:
        argv = ("/bin/sh", "-c", f"echo {text} >> {log}; echo broken; exit {code}")
        return Competitor(text, "a shell", lambda setting: Command(argv, setting.folder))

    broken, absent = says("broken", 3), replace(says("absent"), missing=lambda _: "not here")
    case = _case(says("one"), broken, absent, says("two"))
    outcome = run_case(case, 1, rounds=2, say=lambda text: None)
    assert log.read_text().split() == ["one", "broken", "two", "one", "two"]
    assert [len(entry.measured) for entry in outcome.entries] == [2, 0, 0, 2]
    assert outcome.entries[1].failed == "exit code 3: broken"
    assert outcome.entries[2].skipped == "not here"


def test_each_round_finds_the_loaded_target_as_it_was() -> None:
    def append(setting: Setting) -> Command:
        return Command(("/bin/sh", "-c", "echo x >> target"), setting.folder)

    def check(setting: Setting, _output: Path) -> Verdict:
        return Verdict((setting.folder / "target").read_text() == "x\nx\n")

    outcome = run_case(_case(Competitor("one", "a shell", append, check, append)), 1, rounds=3, say=lambda text: None)
    assert [verdict.right for verdict in outcome.entries[0].verdicts] == [True, True, True]


def test_what_a_process_leaves_behind_is_waited_for_and_counted(tmp_path: Path) -> None:
    busy = f"{sys.executable} -c 'while __import__(\"time\").process_time() < 0.5: pass'"
    measured = measure(Command(("/bin/sh", "-c", f"{busy} & exit 0"), tmp_path), tmp_path / "out")
    assert measured.cpu_seconds >= 0.5


def test_memory_is_that_of_all_processes_and_of_the_first(tmp_path: Path) -> None:
    hold = "b = b'x' * (64 << 20); __import__('time').sleep(1)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hold!r}])"
    measured = measure(Command((sys.executable, "-c", code), tmp_path), tmp_path / "out")
    assert measured.main_peak_bytes < 64 << 20 < measured.peak_bytes


def test_a_failure_carries_what_was_said_last(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="exit code 7: no such table"):
        measure(Command(("/bin/sh", "-c", "echo no such table; exit 7"), tmp_path), tmp_path / "out")


def test_what_does_not_end_is_killed_and_has_failed(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="not done after 1 s"):
        measure(Command(("/bin/sleep", "1000"), tmp_path), tmp_path / "out", longest=1.0)


def test_cases_and_competitors_can_be_told_apart() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    for case in CASES:
        names = {competitor.name for competitor in case.competitors}
        assert len({competitor.slug for competitor in case.competitors}) == len(names) == len(case.competitors)
        assert all(competitor.how for competitor in case.competitors)
        assert {target.ours for target in case.targets} <= names


def _case(*competitors: Competitor) -> Case:
    def prepare(_world: World) -> Prepared:
        return Prepared(1, "one row")

    return Case("test", "Test", "A test.", prepare, competitors)
