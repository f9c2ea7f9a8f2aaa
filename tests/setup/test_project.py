"""Things the project says about itself that a change may make untrue."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, check=True, capture_output=True, text=True)
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def test_a_module_that_is_too_long_is_named(tmp_path: Path) -> None:
    check = [sys.executable, ROOT / "scripts" / "check_lines.py", tmp_path]
    (tmp_path / "short.py").write_text("x = 1\n" * 400)
    (tmp_path / ".venvs").mkdir()
    (tmp_path / ".venvs" / "not_ours.py").write_text("x = 1\n" * 401)
    assert subprocess.run(check).returncode == 0
    (tmp_path / "long.py").write_text("x = 1\n" * 401)
    ran = subprocess.run(check, capture_output=True, text=True)
    assert ran.returncode == 1
    assert "long.py:401: 401 lines" in ran.stdout


def test_constraints_pin_exactly_and_name_no_index() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.+!-]+", line) for line in lines)


def test_every_dependency_is_pinned() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    wanted += [each for extra in project["project"]["optional-dependencies"].values() for each in extra]
    names = {_canonical(re.split(r"[\[<>=~! ]", each)[0]) for each in wanted} - {"flowctl"}
    pinned = {_canonical(line.split("==")[0]) for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert names <= pinned


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_readmes_links_lead_somewhere() -> None:
    for page in tracked("*.md"):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("command", ["setup"])
def test_a_command_that_did_its_work_does_nothing_again(command: str) -> None:
    """Jars and archive are there after the first; the second is quick and silent on standard error."""
    first = subprocess.run([sys.executable, "-m", "flowctl", command, "--no-archive"], capture_output=True, text=True)
    again = subprocess.run(
        [sys.executable, "-m", "flowctl", command, "--no-archive", "--format", "json"], capture_output=True, text=True
    )
    assert (first.returncode, again.returncode, again.stderr) == (0, 0, "")
    assert '"jars": ' in again.stdout
