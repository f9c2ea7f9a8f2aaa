"""The benchmark harness itself: a whole run of a case that needs no peers, measuring, and what becomes of failures."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench import contents, peers
from bench.case import Case, Command, Competitor, Prepared, Setting, Verdict, World
from bench.cases import CASES
from bench.measure import CommandFailed, measure
from bench.programs import ingestr, sling
from bench.rounds import run_case
from bench.servers import SECRETS

ROOT = Path(__file__).parents[2]
SECRET_VALUES = dict.fromkeys((*SECRETS, "AWS_ACCESS_KEY_ID"), "hidden")


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


@pytest.mark.parametrize(
    "name",
    ["postgres-to-duckdb", "mysql-to-delta", "delta-to-postgres", "csv-on-s3-to-iceberg", "postgres-to-postgres"],
)
def test_the_specs_of_the_bulk_loads_are_valid_and_have_no_password(name: str, tmp_path: Path) -> None:
    [case] = [case for case in CASES if case.name == name]
    [ours] = [competitor for competitor in case.competitors if competitor.name == "flowctl"]
    world = World(1, tmp_path, "postgresql://u@h:1/d", "mysql://u@h:2/d", "http://h:3")
    command = ours.command(Setting(world, tmp_path, "postgresql://u@h:1/other", Prepared(1, "one row")))
    argv = [each if each != "apply" else "validate" for each in command.argv]
    ran = subprocess.run(argv, cwd=command.cwd, capture_output=True, text=True, env={**os.environ, **SECRET_VALUES})
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "lineitem" in (tmp_path / "flow.yaml").read_text()
    assert "hidden" not in (tmp_path / "flow.yaml").read_text()


@pytest.mark.parametrize("name", SECRETS)
def test_no_secret_is_in_the_words_of_a_failure(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "hidden")

    def fails(setting: Setting) -> Command:
        return Command(("/bin/sh", "-c", "echo refused: user:hidden@host; exit 1"), setting.folder)

    outcome = run_case(_case(Competitor("one", "a shell", fails)), 1, rounds=1, say=lambda text: None)
    assert outcome.entries[0].failed == "exit code 1: refused: user:***@host"


def test_a_peer_that_is_not_made_for_a_case_says_so() -> None:
    case = _case(sling.cannot("fly"), ingestr.cannot("swim"))
    outcome = run_case(case, 1, rounds=1, say=lambda text: None)
    said = [entry.skipped for entry in outcome.entries]
    versions = peers.versions()
    assert said == [
        f"Sling {versions['sling-linux-amd64']} cannot fly",
        f"ingestr {versions['ingestr']} cannot swim",
    ]


@pytest.mark.parametrize("peer", peers.PEERS)
def test_every_package_of_a_peer_is_pinned(peer: str) -> None:
    lines = (peers.HERE / f"{peer}.txt").read_text().splitlines()
    assert lines
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+(; .+)?", line)] == []


def test_iceberg_is_read_as_of_its_newest_metadata(tmp_path: Path) -> None:
    metadata = tmp_path / "metadata"
    metadata.mkdir()
    for seconds, name in ((3, "00002-b"), (1, "00000-c"), (2, "00001-a")):
        (metadata / f"{name}.metadata.json").touch()
        os.utime(metadata / f"{name}.metadata.json", (seconds, seconds))
    assert contents.iceberg(tmp_path).sql == f"iceberg_scan('{metadata}/00002-b.metadata.json')"


def _case(*competitors: Competitor) -> Case:
    def prepare(_world: World) -> Prepared:
        return Prepared(1, "one row")

    return Case("test", "Test", "A test.", prepare, competitors)
