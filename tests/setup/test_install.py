"""The scripts that make a machine ready, and the image that is made of nothing but them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[2]
SYSTEM = ROOT / "scripts" / "install-system.sh"


def test_where_nothing_is_missing_nothing_is_said() -> None:
    ran = subprocess.run([SYSTEM, "java", "postgresql", "venv"], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_an_unknown_part_is_refused() -> None:
    ran = subprocess.run([SYSTEM, "jvaa"], capture_output=True, text=True)
    assert ran.returncode == 64
    assert "java, postgresql, mariadb, node, venv" in ran.stderr


def test_without_root_the_command_is_told(bare_machine: Path) -> None:
    (bare_machine / "id").write_text("#!/bin/sh\necho 1000\n")
    ran = subprocess.run([SYSTEM, "java"], capture_output=True, text=True, env={"PATH": str(bare_machine)})
    assert ran.returncode == 1
    assert "apt-get install -y --no-install-recommends openjdk-17-jre-headless" in ran.stderr


@pytest.fixture
def bare_machine(tmp_path: Path) -> Path:
    """A path with hardly anything on it."""
    for name in ("ls", "id"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 2\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def test_the_image_runs_as_nobody_special_and_speaks_flowctl() -> None:
    steps = dockerfile()
    users = [value for word, value in steps if word == "USER"]
    assert users and users[-1] not in ("root", "0")
    assert [json.loads(value) for word, value in steps if word == "ENTRYPOINT"] == [["flowctl"]]


def test_the_image_installs_with_the_clones_own_scripts() -> None:
    runs = [value for word, value in dockerfile() if word == "RUN"]
    scripts = [ROOT / run.split()[0].removeprefix("/src/") for run in runs if run.startswith("/src/")]
    assert {script.name for script in scripts} == {"install-system.sh", "install-python.sh"}
    assert all(os.access(script, os.X_OK) for script in scripts)
    assert not [run for run in runs if re.search(r"\b(apt-get|pip) ", run)], "a step that the clone does not share"
    assert "flowctl setup" in runs


@pytest.mark.full
def test_the_images_steps_make_a_flowctl_that_runs_without_a_clone_or_a_network(tmp_path: Path) -> None:
    """Each RUN that concerns flowctl, below a folder of this test; the rest concerns the image's users and lists."""
    image = tmp_path / "opt" / "flowctl"
    source = tmp_path / "src"
    subprocess.run(["git", "clone", "-q", ROOT, source], check=True)
    env = {**os.environ, "PYTHON": sys.executable, "FLOWCTL_HOME": str(image / "home")}
    env["PATH"] = f"{image}/bin:{env['PATH']}"
    for word, value in dockerfile():
        if word == "RUN" and not value.startswith(("useradd", "chmod")):
            here = value.replace("/src/", f"{source}/").replace("/opt/flowctl", str(image))
            subprocess.run(shlex.split(here), check=True, env=env)
    subprocess.run(["rm", "-rf", source], check=True)
    spec = tmp_path / "spec.yaml"
    spec.write_text("version: 1\nflow: f\nstate: state\nconnections: {}\ntables: {}\n")
    told = subprocess.run(["flowctl", "--version"], check=True, capture_output=True, text=True, env=env, cwd=tmp_path)
    assert "Java 17" in told.stdout or "Java 2" in told.stdout
    env["FLOWCTL_IVY_SETTINGS"] = "/nowhere"
    again = subprocess.run(["flowctl", "setup"], check=True, capture_output=True, text=True, env=env, cwd=tmp_path)
    assert "Ready" in again.stdout and again.stderr == ""


def dockerfile() -> list[tuple[str, str]]:
    """(instruction, rest) of each step; continued lines joined."""
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
    steps = [line.split(maxsplit=1) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, value) for word, value in steps]
