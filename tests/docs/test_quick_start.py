"""The README's quick start prints what it shows: its sources, its spec and its plans are taken from the page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
PROGRAMS = re.findall(r"<<'EOF'\n(.*?)^EOF$", README, re.MULTILINE | re.DOTALL)
(SPEC,) = re.findall(r"^```yaml\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
FIRST_PLAN, FIRST_RUN, SECOND_PLAN = re.findall(r"^```text\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.yaml").write_text(SPEC)
    return tmp_path


def test_the_first_plan(folder: Path) -> None:
    change_source(PROGRAMS[0], folder)
    assert run("plan", folder) == FIRST_PLAN


@pytest.mark.server
def test_the_run_and_the_second_plan(folder: Path) -> None:
    change_source(PROGRAMS[0], folder)
    assert without_times(FIRST_RUN) in without_times(run("apply", folder))
    change_source(PROGRAMS[1], folder)
    assert run("plan", folder) == SECOND_PLAN


def change_source(program: str, folder: Path) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=folder, check=True)


def run(command: str, folder: Path) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "flowctl", command, "shop.yaml"], cwd=folder, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def without_times(text: str) -> str:
    """Run id and seconds differ from run to run."""
    return re.sub(r"\d+\.\d\b", "0.0", re.sub(r"run \S+:", "run:", text))
